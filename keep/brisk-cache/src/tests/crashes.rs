//! Every state in which a killed process or a loss of power can leave the directory.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use super::recording_disk::{Call, Loss, Machine, RecordingDisk};
use super::{doubling, get, home, insert, small, value};
use crate::{About, Cache, CacheOptions, Durability};

/// What a program did: the first call that may belong to it, the number of calls when it had returned, the key, and the
/// value that it left.
struct Deed {
    from: usize,
    to: usize,
    key: u64,
    value: Option<Vec<u8>>,
}

struct History {
    base: Machine,
    disk: Arc<RecordingDisk>,
    deeds: Vec<Deed>,
    cache: Cache,
    options: CacheOptions,
    /// The keys from this one on may be evicted at any time.
    evicts_from: u64,
    /// Whether what is left is opened by [`Cache::open_mapped`].
    mapped: bool,
    _home: tempfile::TempDir,
}

/// A state in which a directory was left.
#[derive(Debug, Clone, Copy)]
struct Crash {
    /// The calls that were made.
    calls: usize,
    /// Those of them that were on the disk for sure.
    sure: usize,
    loss: Loss,
}

/// So many states are left after each call, at most: all that can be, or so many of them.
const MOST_STATES: u64 = 256;

impl History {
    /// Begins after `set_up`, whose work is on the disk.
    fn begin(options: CacheOptions, set_up: impl FnOnce(&Cache) -> Vec<(u64, Vec<u8>)>) -> Self {
        let home = home();
        let disk = Arc::new(RecordingDisk::default());
        let cache = Cache::on_disk(home.path(), options.clone(), disk.clone()).unwrap();
        Self::begin_with(home, disk, cache, options, set_up)
    }

    fn begin_with(
        home: tempfile::TempDir,
        disk: Arc<RecordingDisk>,
        cache: Cache,
        options: CacheOptions,
        set_up: impl FnOnce(&Cache) -> Vec<(u64, Vec<u8>)>,
    ) -> Self {
        let known = set_up(&cache);
        disk.calls.lock().unwrap().clear();
        let base = Machine::of(home.path());
        let deed = |(key, value)| Deed {
            from: 0,
            to: 0,
            key,
            value: Some(value),
        };
        let deeds = known.into_iter().map(deed).collect();
        Self {
            base,
            disk,
            deeds,
            cache,
            options,
            evicts_from: u64::MAX,
            mapped: false,
            _home: home,
        }
    }

    fn insert(&mut self, key: u64, bytes: Vec<u8>) {
        let from = self.disk.len();
        insert(&self.cache, key, &bytes).unwrap();
        let to = self.disk.len();
        self.deeds.push(Deed {
            from,
            to,
            key,
            value: Some(bytes),
        });
    }

    /// Like [`History::insert`], piece by piece.
    fn insert_in_pieces(&mut self, key: u64, bytes: Vec<u8>, expected: Option<u64>) {
        let from = self.disk.len();
        let mut pending = self.cache.pending(expected).unwrap();
        for part in bytes.chunks(60_000) {
            pending.write(part).unwrap();
        }
        let key_bytes = key.to_le_bytes();
        pending.finish(&key_bytes, About::default()).unwrap();
        let to = self.disk.len();
        self.deeds.push(Deed {
            from,
            to,
            key,
            value: Some(bytes),
        });
    }

    fn remove(&mut self, key: u64) {
        let from = self.disk.len();
        self.cache.remove(&key.to_le_bytes()).unwrap();
        let to = self.disk.len();
        self.deeds.push(Deed {
            from,
            to,
            key,
            value: None,
        });
    }

    fn clear(&mut self) {
        let from = self.disk.len();
        self.cache.clear().unwrap();
        let to = self.disk.len();
        let keys: Vec<u64> = self.deeds.iter().map(|deed| deed.key).collect();
        for key in keys {
            self.deeds.push(Deed {
                from,
                to,
                key,
                value: None,
            });
        }
    }

    /// Opens each state, and compares each key with what it may be.
    fn check(&self, prefixes: impl Iterator<Item = usize>, losses: u64) -> usize {
        let calls = self.disk.calls.lock().unwrap().clone();
        let mut machine = self.base.clone();
        let mut applied = 0;
        let mut states = 0;
        for prefix in prefixes.take_while(|&prefix| prefix <= calls.len()) {
            for call in &calls[applied..prefix] {
                machine.apply(call);
            }
            applied = prefix;
            let random =
                (0..losses).map(|n| Loss::Random((prefix as u64 + 1) * 7919 + n * 104_729));
            let sure = [Loss::Nothing, Loss::Everything, Loss::Contents];
            for loss in sure.into_iter().chain(random) {
                let there = home();
                machine.leave(loss, there.path());
                let crash = Crash {
                    calls: prefix,
                    sure: 0,
                    loss,
                };
                self.check_state(crash, there.path());
                states += 1;
            }
        }
        states
    }

    /// Opens the states after each call from the one with the number `from` on: every one in which a loss of power can
    /// leave the last `late` calls, while all before them are on the disk. Returns how many those were, and after how many
    /// calls there were too many for all of them.
    fn check_every(&self, from: usize, late: usize) -> (u64, usize) {
        let calls = self.disk.calls.lock().unwrap().clone();
        let mut on_disk = self.base.clone();
        let mut applied = 0;
        let (mut opened, mut sampled) = (0, 0);
        for prefix in from..=calls.len() {
            let sure = prefix.saturating_sub(late);
            calls[applied..sure]
                .iter()
                .for_each(|call| on_disk.apply(call));
            on_disk.sync();
            applied = sure;
            let mut machine = on_disk.clone();
            calls[sure..prefix]
                .iter()
                .for_each(|call| machine.apply(call));
            let mut number = 0;
            // As many as are known. Which choices there are can depend on those before.
            let mut known = 1;
            while number < known.min(MOST_STATES) {
                let loss = match known > MOST_STATES {
                    true => Loss::Random((prefix as u64 + 1) * 7919 + number * 104_729),
                    false => Loss::Numbered {
                        rest: number,
                        states: 1,
                    },
                };
                let there = home();
                let left = machine.leave(loss, there.path());
                number += 1;
                if let Loss::Numbered { rest, states } = left {
                    known = known.max(states);
                    if rest > 0 {
                        continue;
                    }
                }
                let crash = Crash {
                    calls: prefix,
                    sure,
                    loss,
                };
                self.check_state(crash, there.path());
                opened += 1;
            }
            sampled += usize::from(known > MOST_STATES);
        }
        (opened, sampled)
    }

    fn check_state(&self, crash: Crash, there: &std::path::Path) {
        let Crash { calls, sure, loss } = crash;
        let durable = self.options.durability == Durability::Durable;
        let cache = match self.mapped {
            // SAFETY: nobody else knows of the directory.
            #[allow(unsafe_code)]
            true => unsafe { Cache::open_mapped(there, self.options.clone()) },
            false => Cache::open(there, self.options.clone()),
        };
        let cache = cache.unwrap();
        let mut by_key: BTreeMap<u64, Vec<&Deed>> = BTreeMap::new();
        for deed in &self.deeds {
            by_key.entry(deed.key).or_default().push(deed);
        }
        let mut before = BTreeMap::new();
        for (&key, deeds) in &by_key {
            let found = get(&cache, key);
            let evicts = key >= self.evicts_from;
            // The last thing that must have survived.
            let holds = |deed: &Deed| {
                let synced = durable || deed.value.is_none() || deed.to <= sure;
                deed.to <= calls && (synced || loss == Loss::Nothing)
            };
            let floor = deeds.iter().rposition(|deed| holds(deed));
            let may = &deeds[floor.unwrap_or(0)..];
            let begun = may
                .iter()
                .filter(|deed| deed.from < calls || deed.to <= calls);
            let right = begun.clone().any(|deed| deed.value == found);
            // Between two states of a key there may be none, unless every one is kept.
            let lost = found.is_none() && (evicts || floor.is_none());
            // A relaxed update may lose the record and keep the slot.
            let torn = found.is_none() && !durable && loss != Loss::Nothing;
            assert!(
                right || lost || torn,
                "{crash:?}: key {key} has {:?}",
                found.map(|found| found.len())
            );
            before.insert(key, found);
        }
        // The next writer goes on, and changes nothing that was found.
        let new = value(u64::MAX, calls as u64, 300);
        insert(&cache, u64::MAX, &new).unwrap();
        assert_eq!(get(&cache, u64::MAX), Some(new));
        for (&key, found) in &before {
            let now = get(&cache, key);
            // In a full cache, it evicts. `full_crashes` compares what goes with what is counted.
            let is_gone = self.evicts_from < u64::MAX && now.is_none();
            assert!(now == *found || is_gone, "{crash:?}: key {key}");
        }
        let left = fs::read_dir(there).unwrap().filter(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            name.to_str().unwrap().starts_with(".new-")
        });
        assert_eq!(left.count(), 0, "{crash:?}");
    }
}

fn mixed(options: CacheOptions) -> History {
    let mut history = History::begin(options, |cache| {
        let known = (0..4).map(|key| (key, value(key, 0, 500)));
        known
            .inspect(|(key, value)| insert(cache, *key, value).unwrap())
            .collect()
    });
    for turn in 1..12 {
        history.insert(turn % 5, value(turn % 5, turn, 300 * turn as usize));
        if turn % 4 == 0 {
            history.remove(turn % 5);
        }
    }
    // Chunked, and alone.
    history.insert(7, value(7, 0, 40_000));
    history.insert(8, value(8, 0, 300_000));
    history.insert(8, value(8, 1, 300_001));
    history.remove(8);
    history.insert(0, value(0, 99, 100));
    history.clear();
    history.insert(1, value(1, 100, 100));
    history.insert(9, value(9, 0, 100));
    history
}

/// Values that arrive in pieces: in memory, in a file that goes to a segment, in a file that stays, in one that is copied.
fn arriving(options: CacheOptions) -> History {
    let mut history = History::begin(options, |cache| {
        let known = (0..4).map(|key| (key, value(key, 0, 300_000 * key as usize)));
        known
            .inspect(|(key, value)| insert(cache, *key, value).unwrap())
            .collect()
    });
    history.insert_in_pieces(0, value(0, 1, 50_000), None);
    history.insert_in_pieces(1, value(1, 1, 150_000), None);
    history.insert_in_pieces(2, value(2, 1, 300_000), None);
    history.insert_in_pieces(3, value(3, 1, 300_001), Some(300_001));
    history.insert_in_pieces(3, value(3, 2, 300_000), Some(600_000));
    history.insert_in_pieces(4, value(4, 0, 120_000), Some(600_000));
    // One that is given up.
    let mut pending = history.cache.pending(Some(400_000)).unwrap();
    pending.write(&[7; 100_000]).unwrap();
    drop(pending);
    history.insert(2, value(2, 2, 300));
    history.remove(3);
    history
}

#[test]
fn what_arrives_in_pieces_is_right_or_a_miss_in_every_state() {
    let states = arriving(small()).check(0.., 6);
    assert!(states > 500, "{states}");
}

#[test]
fn what_arrived_in_pieces_is_not_lost_in_any_state_of_a_durable_cache() {
    let states = arriving(small().durability(Durability::Durable)).check(0.., 6);
    assert!(states > 600, "{states}");
}

#[test]
fn a_relaxed_cache_is_right_or_misses_in_every_state() {
    let history = mixed(small());
    let states = history.check(0.., 8);
    assert!(states > 800, "{states}");
}

#[test]
fn a_durable_cache_loses_nothing_in_any_state() {
    let history = mixed(small().durability(Durability::Durable));
    let states = history.check(0.., 8);
    assert!(states > 1_000, "{states}");
}

#[test]
fn an_index_that_grows_loses_nothing_in_any_state() {
    let options = small().durability(Durability::Durable);
    let history = History::begin(options, six_hundred);
    grow_and_check(history);
}

#[test]
fn an_index_that_is_doubled_beside_writers_loses_nothing_in_any_state() {
    let options = small().durability(Durability::Durable);
    let (home, disk) = (home(), Arc::new(RecordingDisk::default()));
    let cache = doubling(home.path(), &options, disk.clone()).unwrap();
    let history = History::begin_with(home, disk, cache, options, six_hundred);
    grow_and_check(history);
}

fn six_hundred(cache: &Cache) -> Vec<(u64, Vec<u8>)> {
    let known = (0..600).map(|key| (key, value(key, 0, 20)));
    known
        .inspect(|(key, value)| insert(cache, *key, value).unwrap())
        .collect()
}

/// Returns after how many calls the last insertion began, without that the index grew.
fn grow(history: &mut History) -> usize {
    let before = history.cache.stat().unwrap().slots;
    let mut key = 1_000;
    let mut last = 0;
    while history.cache.stat().unwrap().slots == before {
        last = history.disk.len();
        history.insert(key, value(key, 0, 20));
        key += 1;
    }
    history.insert(key, value(key, 0, 20));
    last
}

fn grow_and_check(mut history: History) {
    let last = grow(&mut history);
    let states = history.check(last.saturating_sub(3).., 4);
    assert!(states > 60, "{states}");
}

/// Both kinds of growth, with and without durability, and what is left opened in both ways.
#[test]
#[ignore = "thousands of states: make torture"]
fn growth_leaves_right_values_after_each_call_whatever_the_last_ones_lost() {
    for (durability, mapped) in [
        (Durability::Durable, false),
        (Durability::Relaxed, false),
        (Durability::Relaxed, true),
    ] {
        for beside_writers in [false, true] {
            let options = small().durability(durability);
            let (home, disk) = (home(), Arc::new(RecordingDisk::default()));
            let cache = match beside_writers {
                true => doubling(home.path(), &options, disk.clone()),
                false => Cache::on_disk(home.path(), options.clone(), disk.clone()),
            };
            let mut history = History::begin_with(home, disk, cache.unwrap(), options, six_hundred);
            history.mapped = mapped;
            let last = grow(&mut history);
            let (states, sampled) = history.check_every(last.saturating_sub(3), 4);
            eprintln!(
                "{durability:?}, mapped {mapped}, beside writers {beside_writers}: {states} states, after {sampled} calls not all"
            );
            assert!(states > 60, "{states}");
        }
    }
}

#[test]
fn eviction_leaves_right_values_or_none_in_any_state() {
    let options = CacheOptions::new().limit(5 << 20).segment_len(1 << 20);
    let mut history = History::begin(options, |cache| {
        let known = (0..280).map(|key| (key, value(key, 0, 10_000)));
        known
            .inspect(|(key, value)| insert(cache, *key, value).unwrap())
            .collect()
    });
    for key in 0..20 {
        history
            .cache
            .update_use(&(key * 3u64).to_le_bytes())
            .unwrap();
    }
    let mut key = 1_000;
    while history.cache.counts().copied == 0 {
        assert!(key < 2_000, "nothing is evicted");
        history.insert(key, value(key, 0, 10_000));
        key += 1;
    }
    history.evicts_from = 0;
    let len = history.disk.len();
    let states = history.check((len.saturating_sub(250)..).step_by(9), 2);
    assert!(states > 80, "{states}");
}

#[test]
fn an_update_of_400_bytes_writes_608_in_three_calls() {
    let mut history = History::begin(small(), |cache| {
        insert(cache, 1, &value(1, 0, 400)).unwrap();
        vec![(1, value(1, 0, 400))]
    });
    history.insert(1, value(1, 1, 400));
    let calls = history.disk.calls.lock().unwrap();
    let written: Vec<usize> = calls
        .iter()
        .map(|call| match call {
            Call::Write { bytes, .. } => bytes.len(),
            other => panic!("{other:?}"),
        })
        .collect();
    // The ledger with a total, the record, and the slot.
    assert_eq!(written, [80, 64 + 400, 64]);
}

#[test]
fn a_process_that_updates_often_writes_528_bytes_in_two_calls() {
    let mut history = History::begin(small(), |cache| {
        for turn in 0..400 {
            insert(cache, 1, &value(1, turn, 400)).unwrap();
        }
        vec![(1, value(1, 399, 400))]
    });
    for turn in 400..800 {
        history.insert(1, value(1, turn, 400));
    }
    let calls = history.disk.calls.lock().unwrap().clone();
    let mut written = BTreeMap::new();
    for call in &calls {
        match call {
            Call::Write { bytes, .. } => *written.entry(bytes.len()).or_insert(0) += 1,
            Call::Reserve { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    // The ledger is written once for 30 records.
    assert_eq!((written[&464], written[&64]), (400, 400));
    assert!(written[&80] <= 14 && written.len() == 3, "{written:?}");
    let states = history.check((calls.len() - 100)..calls.len(), 2);
    assert!(states > 400, "{states}");
}

#[test]
fn processes_that_append_by_turns_write_over_nothing() {
    let home = home();
    // Two handles have a process of their own as little as two processes do.
    let caches: Vec<Cache> = (0..3)
        .map(|_| Cache::open(home.path(), small()).unwrap())
        .collect();
    let mut expected = BTreeMap::new();
    for turn in 0..6_000u64 {
        let key = turn % 700;
        let bytes = value(key, turn, (turn * 37 % 900) as usize);
        insert(&caches[(turn * turn % 7 % 3) as usize], key, &bytes).unwrap();
        expected.insert(key, bytes);
    }
    for cache in &caches {
        for (&key, bytes) in &expected {
            assert_eq!(get(cache, key).as_ref(), Some(bytes), "{key}");
        }
        assert_eq!(cache.counts().damaged, 0);
    }
    let inspection = crate::Inspection::open(home.path()).unwrap();
    let verified = inspection.verify(|_| (), |damage| panic!("{damage:?}"));
    assert_eq!(verified.unwrap().entries, 700);
    // What the three leave unused is a small part.
    let used: usize = (0..6_000).map(|turn| turn * 37 % 900 + 40).sum();
    let stat = caches[0].stat().unwrap();
    assert!(stat.bytes < 3 * used as u64, "{stat:?} for {used}");
}

#[test]
fn a_relaxed_handle_that_evicts_keeps_what_others_were_promised() {
    let options = CacheOptions::new().limit(5 << 20).segment_len(1 << 20);
    let home = home();
    let disk = Arc::new(RecordingDisk::default());
    let open = |durability| {
        let options = options.clone().durability(durability);
        Cache::on_disk(home.path(), options, disk.clone()).unwrap()
    };
    let relaxed = open(Durability::Relaxed);
    relaxed.remove(b"no key").unwrap();
    disk.calls.lock().unwrap().clear();
    let mut machine = Machine::of(home.path());
    // The segment that both use was begun by the relaxed one.
    insert(&relaxed, 999, b"relaxed").unwrap();
    let durable = open(Durability::Durable);
    for key in 0..40 {
        insert(&durable, key, &value(key, 0, 10_000)).unwrap();
    }
    for key in 0..20u64 {
        relaxed.update_use(&key.to_le_bytes()).unwrap();
    }
    let mut applied = 0;
    let mut key = 1_000;
    let mut compared = 0;
    while relaxed.counts().evicted == 0 || key % 50 != 0 {
        insert(&relaxed, key, &value(key, 0, 10_000)).unwrap();
        key += 1;
        let calls = disk.calls.lock().unwrap().clone();
        calls[applied..].iter().for_each(|call| machine.apply(call));
        applied = calls.len();
        if relaxed.counts().evicted == 0 && key % 50 != 0 {
            continue;
        }
        for loss in [Loss::Everything, Loss::Contents, Loss::Random(key)] {
            let there = super::home();
            machine.leave(loss, there.path());
            let after = Cache::open(there.path(), options.clone()).unwrap();
            for key in (0..40).filter(|&key| get(&durable, key).is_some()) {
                compared += 1;
                assert_eq!(
                    get(&after, key),
                    Some(value(key, 0, 10_000)),
                    "{key}, {loss:?}"
                );
            }
        }
    }
    assert_eq!((relaxed.counts().copied, durable.counts().copied), (20, 0));
    assert!(compared > 60);
}
