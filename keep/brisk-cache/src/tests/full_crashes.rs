//! Every state in which a killed process or a loss of power can leave a cache that is at its limit: whole segments go, used
//! records are copied forward, and the index grows as long as it may.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::recording_disk::{Call, Loss, Machine, RecordingDisk};
use super::{doubling, home, insert, named, value};
use crate::directory::{FileId, INDEX, LEDGER, Name};
use crate::eviction::Eviction;
use crate::format::digest::Digest;
use crate::format::index_header::SLOTS_AT;
use crate::format::ledger_state::{self, LedgerState};
use crate::format::slot::{self, Kind, Slot};
use crate::lock::{Wait, with_lock};
use crate::locked::Locked;
use crate::lookup::Patience;
use crate::writer::home_of;
use crate::{Cache, CacheCounts, CacheOptions, Durability};

/// The values of these keys have files of their own.
const ALONE: u64 = 1 << 20;

/// What became of a key.
struct Deed {
    /// The first call that may belong to it.
    from: usize,
    /// How many calls were made when it was done.
    to: usize,
    what: What,
}

#[derive(PartialEq)]
enum What {
    Inserted(Vec<u8>),
    Removed,
    /// Its slot was freed, or given to another key, and counted.
    Evicted,
}

/// How a machine stopped.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Stop {
    /// The process was killed. All calls count, and the next one goes on with its ledger.
    Kill,
    Power(Loss),
}

impl Stop {
    fn loses_nothing(self) -> bool {
        matches!(self, Self::Kill | Self::Power(Loss::Nothing))
    }
}

/// Work on a full cache, and a record of its calls.
struct History {
    base: Machine,
    disk: Arc<RecordingDisk>,
    cache: Cache,
    /// Another handle, for what two do by turns.
    second: Cache,
    options: CacheOptions,
    deeds: BTreeMap<u64, Vec<Deed>>,
    /// The index at the beginning, and which key has which of its slots.
    index: (FileId, BTreeMap<u64, Digest>),
    seed: u64,
    counted: u64,
    _home: tempfile::TempDir,
}

impl History {
    /// Begins after `set_up`, whose work is on the disk and evicts nothing. It returns the keys and their values.
    fn begin(
        options: CacheOptions,
        beside_writers: bool,
        set_up: impl FnOnce(&Cache) -> Vec<(u64, Vec<u8>)>,
    ) -> Self {
        let home = home();
        let disk = Arc::new(RecordingDisk::default());
        // The look-ups that compare what is there are no uses.
        let options = options.note_use_after(None);
        let cache = match beside_writers {
            true => doubling(home.path(), &options, disk.clone()),
            false => Cache::on_disk(home.path(), options.clone(), disk.clone()),
        };
        let cache = cache.unwrap();
        let second = Cache::on_disk(home.path(), options.clone(), disk.clone()).unwrap();
        let mut deeds: BTreeMap<u64, Vec<Deed>> = BTreeMap::new();
        for (key, value) in set_up(&cache) {
            let what = What::Inserted(value);
            let (from, to) = (0, 0);
            deeds.entry(key).or_default().push(Deed { from, to, what });
        }
        assert_eq!(freed(&cache), 0);
        disk.calls.lock().unwrap().clear();
        let base = Machine::of(home.path());
        let (index, seed) = slots_of(&cache);
        Self {
            base,
            disk,
            cache,
            second,
            options,
            deeds,
            index,
            seed,
            counted: 0,
            _home: home,
        }
    }

    fn note(&mut self, key: u64, from: usize, what: What) {
        let to = self.disk.len();
        let deeds = self.deeds.entry(key).or_default();
        deeds.push(Deed { from, to, what });
    }

    fn insert(&mut self, key: u64, bytes: Vec<u8>) {
        let from = self.disk.len();
        insert(&self.cache, key, &bytes).unwrap();
        self.note(key, from, What::Inserted(bytes));
    }

    fn remove(&mut self, key: u64) {
        let from = self.disk.len();
        self.cache.remove(&key.to_le_bytes()).unwrap();
        self.note(key, from, What::Removed);
    }

    fn update_use(&self, key: u64) {
        assert!(self.cache.update_use(&key.to_le_bytes()).unwrap());
    }

    /// Inserts new keys from this one on, until another segment was evicted. Returns the next one.
    fn evict(&mut self, mut key: u64, len: usize) -> u64 {
        let before = self.freed();
        let until = key + 500;
        while self.freed() == before {
            assert!(key < until, "nothing is evicted");
            self.insert(key, value(key, 0, len));
            key += 1;
        }
        key
    }

    /// Makes room for so many bytes, in batches of one copy. The two handles have them by turns, and each begins anew: as if
    /// the other had been killed between two of its batches, or had to wait too long for the next one.
    fn make_room_by_turns(&self, needed: u64) {
        let batch = |cache: &Cache| {
            let mut begun = Eviction::new(1);
            // One record each, however slow the machine is.
            begun.batch_time = Duration::from_secs(3600);
            crate::eviction::evict_batch(&cache.store, &mut begun, needed).unwrap()
        };
        while batch(&self.cache) && batch(&self.second) {}
    }

    /// How many entries have lost their slots, by the counters of both handles.
    fn freed(&self) -> u64 {
        freed(&self.cache) + freed(&self.second)
    }

    /// Notes which keys lost their slots at which call. There are as many as the counters say.
    fn end(&mut self) {
        let calls = self.disk.calls.lock().unwrap().clone();
        let keys: HashMap<u128, u64> = self
            .deeds
            .keys()
            .map(|&key| {
                let digest = Digest::of(self.seed, &key.to_le_bytes());
                (digest.number(), key)
            })
            .collect();
        let mut evicted = 0;
        for (call, digest) in slots_lost(&calls, &self.index, self.seed) {
            let key = keys[&digest.number()];
            let deeds = self.deeds.get_mut(&key).unwrap();
            let removes =
                |deed: &Deed| deed.what == What::Removed && (deed.from..deed.to).contains(&call);
            if !deeds.iter().any(removes) {
                let (from, to, what) = (call, call + 1, What::Evicted);
                deeds.push(Deed { from, to, what });
                evicted += 1;
            }
        }
        // An insertion that evicts the old value of its own key has evicted it before.
        for deeds in self.deeds.values_mut() {
            deeds.sort_by_key(|deed| deed.to);
        }
        self.counted = self.freed();
        assert_eq!(evicted, self.counted);
        for (&key, deeds) in &self.deeds {
            let there = match &deeds.last().unwrap().what {
                What::Inserted(bytes) => Some(bytes.clone()),
                What::Removed | What::Evicted => None,
            };
            assert!(get(&self.cache, key) == there, "{key}");
        }
    }

    /// Opens what each number of calls leaves: after a kill, and after a loss of power with this many random losses besides
    /// the three plain ones. If these are more than `most` states, the seed draws about so many of them. There is one
    /// machine, and each call is applied to it once. Returns how many were opened.
    fn check(&self, losses: u64, most: u64, seed: u64) -> u64 {
        let calls = self.disk.calls.lock().unwrap().clone();
        let mut machine = self.base.clone();
        let all = (calls.len() as u64 + 1) * (losses + 4);
        let mut states = 0;
        for after in 0..=calls.len() {
            if let Some(call) = after.checked_sub(1) {
                machine.apply(&calls[call]);
            }
            let plain = [Loss::Nothing, Loss::Everything, Loss::Contents];
            // Xorshift needs another state than 0.
            let random = (0..losses).map(|number| Loss::Random(mixed(seed, after, number) | 1));
            let power = plain.into_iter().chain(random).map(Stop::Power);
            for (number, stop) in (1 << 32..).zip([Stop::Kill].into_iter().chain(power)) {
                if mixed(seed, after, number) % all >= most {
                    continue;
                }
                self.open(&machine, after, stop, states % 2 == 1);
                states += 1;
            }
        }
        states
    }

    /// Opens one state. Returns what the next writer has counted.
    fn open(&self, machine: &Machine, calls: usize, stop: Stop, mapped: bool) -> CacheCounts {
        let there = home();
        match stop {
            Stop::Kill => {
                machine.leave(Loss::Nothing, there.path());
                move_home(there.path());
            }
            Stop::Power(loss) => {
                machine.leave(loss, there.path());
            }
        }
        let state = State {
            history: self,
            calls,
            stop,
            mapped,
        };
        state.check(there.path())
    }
}

/// A number that these say.
fn mixed(seed: u64, after: usize, number: u64) -> u64 {
    let mut bytes = (after as u64).to_le_bytes().to_vec();
    bytes.extend(number.to_le_bytes());
    crate::format::check::seeded(seed, &bytes)
}

/// The value of a key. A damaged chunk of one that is borrowed is known when it is read, and then it is a miss.
fn get(cache: &Cache, key: u64) -> Option<Vec<u8>> {
    let hit = cache.get(&key.to_le_bytes()).unwrap()?;
    match hit.to_vec() {
        Err(e) if e.kind() == std::io::ErrorKind::InvalidData => None,
        bytes => Some(bytes.unwrap()),
    }
}

/// How many entries have lost their slots.
fn freed(cache: &Cache) -> u64 {
    let counts = cache.counts();
    counts.evicted + counts.displaced
}

/// The index, which digest is at which offset of it, and its seed.
fn slots_of(cache: &Cache) -> ((FileId, BTreeMap<u64, Digest>), u64) {
    let look = |locked: &mut Locked<'_>| {
        let mut slots = BTreeMap::new();
        for number in 0..locked.index.header.blocks {
            let block = locked.index.block(number)?;
            slots.extend(block.into_iter().map(|(at, slot)| (at, slot.digest)));
        }
        Ok(((locked.index.id, slots), locked.index.header.seed))
    };
    with_lock(&cache.store, Wait::Bounded, look).unwrap()
}

/// At which calls which digests lost their slots, in the index that had the name then.
fn slots_lost(
    calls: &[Call],
    (first, slots): &(FileId, BTreeMap<u64, Digest>),
    seed: u64,
) -> Vec<(usize, Digest)> {
    let mut files = HashMap::from([(*first, slots.clone())]);
    let mut names = HashMap::new();
    // Other files have bytes that are no slots.
    for call in calls {
        match call {
            Call::Create { name, file } => {
                names.extend(name.clone().map(|name| (name, *file)));
            }
            Call::Link { file, name } => {
                names.insert(name.clone(), *file);
            }
            Call::Rename { from, to } if to == INDEX => {
                files.insert(names[from], BTreeMap::new());
            }
            _ => {}
        }
    }
    let mut current = *first;
    let mut lost = Vec::new();
    for (number, call) in calls.iter().enumerate() {
        match call {
            Call::Write { file, at, bytes } if *at >= SLOTS_AT => {
                let Some(slots) = files.get_mut(file) else {
                    continue;
                };
                let (new, _) = bytes.as_chunks::<{ slot::LEN }>();
                for (at, bytes) in (*at..).step_by(slot::LEN).zip(new) {
                    let after = Slot::parse(seed, bytes).map(|slot| slot.digest);
                    let before = match after {
                        Some(digest) => slots.insert(at, digest),
                        None => slots.remove(&at),
                    };
                    let is_gone = before.filter(|_| *file == current && before != after);
                    lost.extend(is_gone.map(|digest| (number, digest)));
                }
            }
            Call::Rename { from, to } if to == INDEX => {
                let before = std::mem::replace(&mut current, names[from]);
                let after: HashSet<Digest> = files[&current].values().copied().collect();
                let before = files[&before].values();
                let is_gone = before.filter(|digest| !after.contains(digest));
                lost.extend(is_gone.map(|&digest| (number, digest)));
            }
            _ => {}
        }
    }
    lost
}

/// The bytes of all files.
fn bytes_of(there: &Path) -> u64 {
    let files = fs::read_dir(there).unwrap();
    files
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum()
}

/// Makes the ledger of a copied directory the one of this boot and of this file, as it was before.
fn move_home(there: &Path) {
    let options = File::options().read(true).write(true).clone();
    let ledger = options.open(there.join(LEDGER)).unwrap();
    let mut bytes = [0; ledger_state::LEN];
    ledger.read_exact_at(&mut bytes, 0).unwrap();
    let state = LedgerState::parse(&bytes).unwrap();
    let home = home_of(FileId::of(&ledger).unwrap());
    let moved = LedgerState { home, ..state };
    ledger.write_all_at(&moved.encode(), 0).unwrap();
}

/// What was left, and what it must have.
struct State<'a> {
    history: &'a History,
    calls: usize,
    stop: Stop,
    mapped: bool,
}

impl State<'_> {
    fn when(&self) -> String {
        let Self {
            calls,
            stop,
            mapped,
            history,
        } = self;
        let durability = history.options.durability;
        format!("{durability:?}, after {calls} calls, {stop:?}, mapped {mapped}")
    }

    fn check(&self, there: &Path) -> CacheCounts {
        let when = self.when();
        self.fits(there);
        let options = self.history.options.clone();
        let cache = match self.mapped {
            // SAFETY: nobody else knows of the directory.
            #[allow(unsafe_code)]
            true => unsafe { Cache::open_mapped(there, options) },
            false => Cache::open(there, options),
        };
        let cache = cache.unwrap();
        // The first answer of a handle is read in another way. It needs no header of the segment, which may be lost.
        let first = self.calls % self.history.deeds.len();
        let (&key, deeds) = self.history.deeds.iter().nth(first).unwrap();
        self.is_allowed(key, deeds, get(&cache, key).as_deref());
        let mut found = BTreeMap::new();
        for (&key, deeds) in &self.history.deeds {
            let bytes = get(&cache, key);
            self.is_allowed(key, deeds, bytes.as_deref());
            found.extend(bytes.map(|bytes| (key, bytes)));
        }
        // The next writer tidies up before it does anything.
        cache.remove(b"no key").unwrap();
        self.is_tidy(&cache);
        let used: BTreeSet<u64> = found
            .keys()
            .copied()
            .filter(|&key| {
                let slot = crate::lookup::slot_of(&cache.store, &key.to_le_bytes(), Patience::Wait);
                slot.unwrap()
                    .is_some_and(|slot| slot.touched && slot.kind == Kind::Shared)
            })
            .collect();
        // It goes on, and what it evicts is counted.
        let new = value(u64::MAX, self.calls as u64, 300);
        insert(&cache, u64::MAX, &new).unwrap();
        assert!(get(&cache, u64::MAX) == Some(new), "{when}");
        let mut lost = Vec::new();
        for (&key, bytes) in &found {
            match get(&cache, key) {
                Some(now) => assert!(now == *bytes, "{when}: key {key} changes"),
                None => {
                    assert!(!used.contains(&key), "{when}: key {key} was used");
                    lost.push(key);
                }
            }
        }
        let counted = freed(&cache);
        assert!(
            lost.len() as u64 <= counted,
            "{when}: {lost:?} are lost, {counted} are counted"
        );
        self.fits(there);
        self.is_tidy(&cache);
        cache.counts()
    }

    /// Whether a key may have this value.
    fn is_allowed(&self, key: u64, deeds: &[Deed], found: Option<&[u8]>) {
        let durable = self.history.options.durability == Durability::Durable;
        let all = self.stop.loses_nothing();
        // The last deed that no stop undoes.
        let stays = |deed: &Deed| {
            deed.to <= self.calls
                && match deed.what {
                    What::Inserted(_) => all || durable,
                    What::Removed => true,
                    What::Evicted => all,
                }
        };
        let floor = deeds.iter().rposition(stays);
        let may = deeds.get(floor.unwrap_or(0)..).unwrap_or_default();
        let has_begun = |deed: &&Deed| deed.from < self.calls || deed.to <= self.calls;
        let right = may.iter().filter(has_begun).any(|deed| match &deed.what {
            What::Inserted(bytes) => found == Some(bytes),
            What::Removed | What::Evicted => found.is_none(),
        });
        // Nothing promises that it is there.
        let none = found.is_none() && (floor.is_none() || !(all || durable));
        let len = found.map(<[u8]>::len);
        assert!(right || none, "{}: key {key} has {len:?}", self.when());
    }

    /// All files are within the limit.
    fn fits(&self, there: &Path) {
        let (bytes, limit) = (bytes_of(there), self.history.options.limit);
        assert!(bytes <= limit, "{}: {bytes} bytes", self.when());
    }

    /// Each file is one that a slot names or that is appended to, and is counted.
    fn is_tidy(&self, cache: &Cache) {
        let when = self.when();
        let look = |locked: &mut Locked<'_>| {
            assert!(!locked.state.unsettled, "{when}");
            let mut named = named(locked)?;
            named.insert(locked.state.active);
            let mut bytes = 0;
            for listed in locked.store.directory.list()? {
                bytes += listed.len;
                let is_named = match listed.name {
                    // One of which all records were replaced goes in its turn.
                    Name::Segment(_) if self.stop == Stop::Kill => true,
                    Name::Segment(number) | Name::Value(number) => named.contains(&number),
                    Name::Unfinished(_) => false,
                    Name::Index | Name::Small => true,
                };
                assert!(is_named, "{when}: {:?} is left", listed.name);
            }
            // A killed writer can have counted what it did not come to reserve.
            let counted = locked.state.bytes;
            let right = counted == bytes || (self.stop == Stop::Kill && counted > bytes);
            assert!(right, "{when}: {bytes} bytes, {counted} are counted");
            Ok(())
        };
        with_lock(&cache.store, Wait::Bounded, look).unwrap();
    }
}

/// With 5 full segments, a sixth leaves 100 KB within the limit. That is too little for a seventh.
fn six_segments(durability: Durability) -> CacheOptions {
    CacheOptions::new()
        .limit(1000 << 10)
        .segment_len(128 << 10)
        .durability(durability)
}

/// Inserts keys until so many segments have been begun.
fn fill(cache: &Cache, segments: u64, known: &mut Vec<(u64, Vec<u8>)>) {
    for key in 0..500 {
        if cache.stat().unwrap().segments == segments {
            return;
        }
        let bytes = value(key, 0, 6_000);
        insert(cache, key, &bytes).unwrap();
        known.push((key, bytes));
    }
    panic!("nothing fills {segments} segments");
}

/// Three segments go. Of the records that were copied from the first one, some are replaced, removed, and copied again.
fn evicting(durability: Durability) -> History {
    let mut history = History::begin(six_segments(durability), false, |cache| {
        let mut known = Vec::new();
        fill(cache, 5, &mut known);
        // In the first two segments.
        for key in [0, 2, 4, 6, 22, 24, 26] {
            assert!(cache.update_use(&u64::to_le_bytes(key)).unwrap());
        }
        known
    });
    let mut key = history.evict(1_000, 6_000);
    assert_eq!(history.cache.counts().copied, 4);
    history.insert(0, value(0, 1, 6_000));
    history.remove(2);
    history.update_use(4);
    // One of the next segment that would be copied, and one that would not.
    history.remove(24);
    history.remove(25);
    history.insert(26, value(26, 1, 500));
    key = history.evict(key, 6_000);
    assert_eq!(history.cache.counts().copied, 5);
    history.insert(23, value(23, 1, 500));
    history.remove(key - 1);
    key = history.evict(key, 9_000);
    history.remove(22);
    history.insert(key, value(key, 0, 500));
    history.end();
    history
}

/// One evicts what another has begun to evict, and has copied from.
fn evicting_by_turns(durability: Durability) -> History {
    let mut history = History::begin(six_segments(durability), false, |cache| {
        let mut known = Vec::new();
        fill(cache, 5, &mut known);
        for key in [0, 2, 4, 22] {
            assert!(cache.update_use(&u64::to_le_bytes(key)).unwrap());
        }
        known
    });
    history.make_room_by_turns(400 << 10);
    let copied = [&history.cache, &history.second].map(|cache| cache.counts().copied);
    assert_eq!(copied, [2, 2]);
    history.insert(4, value(4, 1, 6_000));
    history.end();
    history
}

/// With four full segments and a value of 70 KB, 419 KB are left for a fifth one, or for a longer index.
fn five_segments(durability: Durability) -> CacheOptions {
    CacheOptions::new()
        .limit(1768 << 10)
        .segment_len(256 << 10)
        .durability(durability)
}

/// New keys whose slots can be in the same 16 places alone, in an index of up to 8 blocks.
fn crowd(seed: u64) -> impl Iterator<Item = u64> {
    let places = move |key: u64| {
        let digest = Digest::of(seed, &key.to_le_bytes());
        let mut sets = digest.sets();
        sets.sort_unstable();
        (digest.block(8), sets)
    };
    let wanted = places(5_000);
    (5_000..).filter(move |&key| places(key) == wanted)
}

/// Segments and values of their own go, one of which was used. The index grows at the limit, until it may no more. Then
/// the entry goes that was not used for longest.
fn growing(durability: Durability, beside_writers: bool) -> History {
    let options = five_segments(durability);
    let mut history = History::begin(options, beside_writers, |cache| {
        let mut known = vec![(ALONE, value(ALONE, 0, 70_000))];
        insert(cache, ALONE, &known[0].1).unwrap();
        fill(cache, 4, &mut known);
        for key in [ALONE, 1, 3, 5] {
            assert!(cache.update_use(&u64::to_le_bytes(key)).unwrap());
        }
        known
    });
    let slots = |history: &History| history.cache.stat().unwrap().slots;
    let before = slots(&history);
    let key = history.evict(1_000, 6_000);
    let mut crowd = crowd(history.seed);
    while history.cache.counts().displaced == 0 {
        let key = crowd.next().unwrap();
        history.insert(key, value(key, 0, 300));
    }
    assert!(slots(&history) > before, "the index has not grown");
    history.insert(ALONE + 2, value(ALONE + 2, 0, 70_000));
    history.insert(ALONE + 2, value(ALONE + 2, 1, 70_000));
    history.remove(ALONE);
    history.evict(key, 6_000);
    history.end();
    history
}

/// So many states of a history are opened, about.
const SOME: u64 = 1_000;

/// Opens states of a history, about `most`. Prints the seed, and `SEED` says another one. The numbers of segments and the
/// places of slots are random in any case.
fn check(history: &History, losses: u64, most: u64) {
    let given = std::env::var("SEED").ok();
    let given = given.map(|seed| seed.parse().unwrap());
    let seed = given.unwrap_or_else(|| crate::random::number().unwrap() >> 32);
    let (calls, durability) = (history.disk.len(), history.options.durability);
    eprintln!("{durability:?}, {calls} calls, SEED={seed}");
    let states = history.check(losses, most, seed);
    eprintln!("{durability:?}, {calls} calls, SEED={seed}: {states} states");
    assert!(states > most.min(calls as u64 * losses) / 2, "{states}");
}

#[test]
fn eviction_leaves_a_relaxed_cache_right_in_any_state() {
    check(&evicting(Durability::Relaxed), 4, SOME);
}

#[test]
fn eviction_costs_a_durable_cache_only_what_it_counts_in_any_state() {
    check(&evicting(Durability::Durable), 4, SOME);
}

#[test]
fn an_eviction_by_turns_costs_a_durable_cache_only_what_it_counts_in_any_state() {
    let history = evicting_by_turns(Durability::Durable);
    let mut machine = history.base.clone();
    let calls = history.disk.calls.lock().unwrap().clone();
    for (after, call) in (1..).zip(&calls) {
        machine.apply(call);
        let losses = [Loss::Nothing, Loss::Everything, Loss::Contents];
        for stop in losses.map(Stop::Power).into_iter().chain([Stop::Kill]) {
            history.open(&machine, after, stop, after % 2 == 1);
        }
    }
}

#[test]
fn growth_at_the_limit_leaves_a_relaxed_cache_right_in_any_state() {
    check(&growing(Durability::Relaxed, false), 4, SOME);
}

#[test]
fn growth_at_the_limit_costs_a_durable_cache_only_what_it_counts_in_any_state() {
    check(&growing(Durability::Durable, false), 4, SOME);
}

#[test]
fn growth_beside_writers_at_the_limit_costs_only_what_it_counts_in_any_state() {
    check(&growing(Durability::Durable, true), 4, SOME);
}

#[test]
#[ignore = "thousands of states: make torture"]
fn a_full_cache_is_right_after_each_call_whatever_is_lost() {
    for durability in [Durability::Relaxed, Durability::Durable] {
        check(&evicting(durability), 8, u64::MAX);
        check(&evicting_by_turns(durability), 8, u64::MAX);
        for beside_writers in [false, true] {
            check(&growing(durability, beside_writers), 8, u64::MAX);
        }
    }
}

/// Between the calls of an insertion that begins a segment and evicts another one. Nobody may append to the one that it has
/// begun, and there is no room for one of full length.
#[test]
fn what_was_used_outlives_its_segment_after_a_loss_of_power_in_an_eviction() {
    for durability in [Durability::Relaxed, Durability::Durable] {
        let history = evicting(durability);
        let calls = history.disk.calls.lock().unwrap().clone();
        let begins = |call: &Call| matches!(call, Call::Create { .. });
        let begun = calls.iter().position(begins).unwrap();
        let removes = |call: &Call| matches!(call, Call::Remove { .. });
        let removed = calls.iter().position(removes).unwrap();
        let mut machine = history.base.clone();
        let mut copied = 0;
        for (after, call) in (1..).zip(&calls[..removed]) {
            machine.apply(call);
            if after > begun {
                let stop = Stop::Power(Loss::Nothing);
                copied += history.open(&machine, after, stop, false).copied;
            }
        }
        assert!(copied > 20, "{copied}");
    }
}

#[test]
fn what_was_used_outlives_its_segment_though_the_one_that_is_appended_to_is_full() {
    let home = home();
    let cache = Cache::open(home.path(), six_segments(Durability::Relaxed)).unwrap();
    let mut known = Vec::new();
    fill(&cache, 5, &mut known);
    // 21 of them are in a segment.
    for key in known.len() as u64..5 * 21 {
        insert(&cache, key, &value(key, 0, 6_000)).unwrap();
    }
    for key in [0, 2, 4, 6] {
        assert!(cache.update_use(&u64::to_le_bytes(key)).unwrap());
    }
    let stat = cache.stat().unwrap();
    assert_eq!((stat.segments, stat.counts.evicted), (5, 0));
    insert(&cache, ALONE, &value(ALONE, 0, 40_000)).unwrap();
    for key in [0, 2, 4, 6] {
        assert!(get(&cache, key) == Some(value(key, 0, 6_000)), "{key}");
    }
    let stat = cache.stat().unwrap();
    assert!(
        stat.counts.evicted > 0 && stat.bytes <= stat.limit,
        "{stat:?}"
    );
    assert_eq!(stat.counts.copied, 4);
}

#[test]
fn what_was_evicted_before_it_was_removed_does_not_come_back() {
    for durability in [Durability::Relaxed, Durability::Durable] {
        let options = six_segments(durability);
        let mut history = History::begin(options, false, |cache| {
            let mut known = Vec::new();
            fill(cache, 5, &mut known);
            known
        });
        history.evict(1_000, 6_000);
        let after_eviction = history.disk.len();
        assert!(!history.cache.remove(&u64::to_le_bytes(1)).unwrap());
        history.note(1, after_eviction, What::Removed);
        history.end();
        let mut machine = history.base.clone();
        let calls = history.disk.calls.lock().unwrap().clone();
        calls.iter().for_each(|call| machine.apply(call));
        for loss in [Loss::Nothing, Loss::Everything, Loss::Contents] {
            history.open(&machine, calls.len(), Stop::Power(loss), false);
        }
    }
}

/// Some copies fill the active segment, and the others are in one that is begun for them.
#[test]
fn copies_in_both_segments_are_on_the_disk_before_their_first_places_go() {
    let home = home();
    let durable = Cache::open(home.path(), six_segments(Durability::Durable)).unwrap();
    // There is room for two more in the fifth segment.
    for key in 0..5 * 21 - 2 {
        insert(&durable, key, &value(key, 0, 6_000)).unwrap();
    }
    for key in [0, 2, 4, 6] {
        assert!(durable.update_use(&u64::to_le_bytes(key)).unwrap());
    }
    let mut machine = Machine::of(home.path());
    let disk = Arc::new(RecordingDisk::default());
    let options = six_segments(Durability::Relaxed);
    let relaxed = Cache::on_disk(home.path(), options.clone(), disk.clone()).unwrap();
    insert(&relaxed, ALONE, &value(ALONE, 0, 40_000)).unwrap();
    let counts = relaxed.counts();
    assert!(counts.evicted > 0 && counts.copied == 4, "{counts:?}");
    for call in disk.calls.lock().unwrap().iter() {
        machine.apply(call);
        for loss in [Loss::Everything, Loss::Contents] {
            let there = super::home();
            machine.leave(loss, there.path());
            let after = Cache::open(there.path(), options.clone()).unwrap();
            for key in [0, 2, 4, 6] {
                assert!(
                    get(&after, key) == Some(value(key, 0, 6_000)),
                    "{key}, {loss:?}"
                );
            }
        }
    }
}

/// What is left within the limit is less than what may be copied.
#[test]
fn a_segment_that_is_begun_for_copies_grows_only_within_the_limit() {
    let home = home();
    let options = CacheOptions::new().limit(1448 << 10).segment_len(256 << 10);
    let disk = Arc::new(RecordingDisk::default());
    let cache = Cache::on_disk(home.path(), options.clone(), disk.clone()).unwrap();
    // 43 of them fill a segment.
    for key in 0..4 * 43 {
        insert(&cache, key, &value(key, 0, 6_000)).unwrap();
    }
    for key in 0..20 {
        assert!(cache.update_use(&u64::to_le_bytes(key)).unwrap());
    }
    assert_eq!(cache.counts().evicted, 0);
    let mut machine = Machine::of(home.path());
    disk.calls.lock().unwrap().clear();
    insert(&cache, ALONE, &value(ALONE, 0, 70_000)).unwrap();
    for call in disk.calls.lock().unwrap().iter() {
        machine.apply(call);
        let there = super::home();
        machine.leave(Loss::Nothing, there.path());
        assert!(bytes_of(there.path()) <= options.limit, "{call:?}");
    }
    // 100 KB were left, and the shortest file has 64.
    assert_eq!(cache.counts().copied, 10);
}
