//! Processes that share a cache, and are killed while they read, write, remove, grow and evict.
//!
//! Eight workers fork from the test, three of them as the first process of a PID namespace, so that their ids are equal.
//! Each has keys to which it alone writes, and all write to some more. A worker tells the test by a pipe what it is about
//! to insert and what it has inserted. Every process notes in a file, while it has the cache's lock, from which key it
//! takes a slot: by eviction, growth, removal or clearing. After each kill the test looks at every key:
//!
//! 1. What is found was inserted under that key, and nothing newer had been inserted before.
//! 2. What was inserted is found, or the file names the key as one whose slot was freed. Each worker compares the
//!    number of those with its counters of eviction.
//!
//! Half of the workers are killed at a random moment, and half just before a call to the disk that was drawn for them.

mod event_log;
mod numbers;
mod report;
mod watching_disk;
mod worker;

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::event_log::{EventLog, Events};
use self::numbers::Numbers;
use self::report::{Message, Reports, What};
use self::watching_disk::WatchingDisk;
use self::worker::{ALL, HANGS_AFTER, KEYS, Life, key, number_of, options, work};
use crate::Cache;
use crate::directory::Name;
use crate::format::digest::Digest;
use crate::lock::{Wait, with_lock};
use crate::locked::Locked;
use crate::promise::Promise;
use crate::store::Store;

const WORKERS: u64 = 8;
/// The workers from this one on are the first process of a PID namespace.
const FIRST_IN_NAMESPACE: u64 = 5;

/// What is known about a key that one worker alone writes.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    /// The number of the last insertion or removal that had returned.
    done: u64,
    /// The number of the last one that had begun.
    begun: u64,
    /// Whether an insertion had returned, or was seen to be done.
    put: bool,
    /// How many events there were when it was last seen.
    since: usize,
}

struct Running {
    life: Life,
    child: i32,
    pipe: File,
    /// The beginning of a message.
    rest: Vec<u8>,
    waits: bool,
    heard: Instant,
}

struct Torture<'a> {
    home: &'a Path,
    numbers: Numbers,
    running: Vec<Running>,
    /// How many workers have begun.
    lives: u64,
    known: Vec<Known>,
    events: Events,
    cache: Cache,
    /// Leads back from the namespaces of children.
    own_pids: File,
    sum: Sum,
}

/// What the summary says.
#[derive(Debug, Default)]
struct Sum {
    killed_at_calls: u64,
    killed_anywhere: u64,
    operations: u64,
    hits: u64,
    puts: u64,
    removals: u64,
    looks: u64,
    misses_named: u64,
    most_bytes: u64,
}

fn torture(seed: u64, kills: u64, home: &Path) {
    let started = Instant::now();
    eprintln!(
        "seed {seed}: {kills} kills of {WORKERS} processes in {}",
        home.display()
    );
    let log = EventLog::open(&home.join("events"));
    let disk = Arc::new(WatchingDisk::new(log, None, u64::MAX));
    // SAFETY: only brisk writes to the directory.
    #[allow(unsafe_code)]
    let promise = unsafe { Promise::new() };
    let store = Store::open(&home.join("cache"), options(), Some(promise), disk);
    let cache = Cache::of(store.unwrap());
    // Makes the index, whose seed stays the same.
    cache.remove(b"no key").unwrap();
    let mut torture = Torture {
        home,
        numbers: Numbers(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
        running: Vec::new(),
        lives: 0,
        known: vec![Known::default(); (WORKERS * KEYS) as usize],
        events: Events::open(&home.join("events")),
        cache,
        own_pids: File::open("/proc/self/ns/pid").unwrap(),
        sum: Sum::default(),
    };
    for owner in 0..WORKERS {
        torture.begin(owner);
    }
    for kill in 1..=kills {
        let victim = torture.wait_for_victim();
        let owner = torture.end(victim);
        torture.check_keys();
        torture.begin(owner);
        if kill % 10 == 0 {
            torture.check_space();
        }
        if kill % 100 == 0 {
            eprintln!("{kill} kills, {} s", started.elapsed().as_secs());
        }
    }
    while !torture.running.is_empty() {
        torture.end(0);
    }
    torture.check_keys();
    // The last one to open it.
    torture.check_space();
    let counts = torture.cache.counts();
    assert_eq!((counts.damaged, counts.foreign), (0, 0));
    let Sum {
        killed_at_calls,
        killed_anywhere,
        operations,
        hits,
        puts,
        removals,
        looks,
        misses_named,
        most_bytes,
    } = torture.sum;
    eprintln!(
        "seed {seed}: {killed_anywhere} kills at any moment and {killed_at_calls} before a call of the disk, in {} s; \
         {operations} operations, {hits} right hits, {puts} insertions and {removals} removals that had returned; {looks} \
         looks at keys after kills: none wrong, none lost, {misses_named} evicted or removed; {} slots freed; at most \
         {most_bytes} bytes of {}",
        started.elapsed().as_secs(),
        torture.events.freed,
        options().limit
    );
    // Without these, nothing was tested.
    assert!(hits > kills * 10 && puts > kills * 10 && removals > kills / 2);
    assert!(killed_at_calls * 4 > kills && killed_anywhere * 4 > kills);
    assert!(misses_named > kills && misses_named < looks);
    assert!(most_bytes > options().limit / 2);
}

impl Torture<'_> {
    fn begin(&mut self, owner: u64) {
        self.lives += 1;
        let seed = self.numbers.next() | 1;
        let wait_at = match seed >> 32 & 1 {
            0 => u64::MAX,
            _ => self.numbers.below(1_500),
        };
        let life = Life {
            owner,
            number: self.lives,
            seed,
            wait_at,
        };
        let (reader, writer) = io::pipe().unwrap();
        let in_namespace = owner >= FIRST_IN_NAMESPACE;
        if in_namespace {
            // SAFETY: it takes a number. It changes only in which namespace children of this thread begin.
            #[allow(unsafe_code)]
            let done = unsafe { libc::unshare(libc::CLONE_NEWPID) };
            assert_eq!(
                done,
                0,
                "a PID namespace needs root: {}",
                io::Error::last_os_error()
            );
        }
        // SAFETY: the child allocates, which the C library allows it, and ends by `_exit`.
        #[allow(unsafe_code)]
        let child = unsafe { libc::fork() };
        if child == 0 {
            drop(reader);
            live(life, self.home, OwnedFd::from(writer));
        }
        assert!(child > 0, "{}", io::Error::last_os_error());
        if in_namespace {
            // SAFETY: the descriptor is open as long as `self` lives.
            #[allow(unsafe_code)]
            let done = unsafe { libc::setns(self.own_pids.as_raw_fd(), libc::CLONE_NEWPID) };
            assert_eq!(done, 0, "{}", io::Error::last_os_error());
        }
        let pipe = File::from(OwnedFd::from(reader));
        rustix::fs::fcntl_setfl(pipe.as_fd(), rustix::fs::OFlags::NONBLOCK).unwrap();
        self.running.push(Running {
            life,
            child,
            pipe,
            rest: Vec::new(),
            waits: false,
            heard: Instant::now(),
        });
    }

    /// Reads keys for a random time, or until a worker waits to be killed. Returns whose turn it is.
    fn wait_for_victim(&mut self) -> usize {
        let until = Instant::now() + Duration::from_micros(200 + self.numbers.below(12_000));
        loop {
            self.hear_all();
            if let Some(waiting) = self.running.iter().position(|running| running.waits) {
                return waiting;
            }
            for _ in 0..20 {
                let key = key(ALL, self.numbers.below(KEYS));
                if let Some(hit) = self.cache.get(&key.to_le_bytes()).unwrap() {
                    assert!(
                        number_of(key, hit.bytes().unwrap()).is_some(),
                        "key {key:x}"
                    );
                    self.sum.hits += 1;
                }
            }
            let anywhere: Vec<usize> = (0..self.running.len())
                .filter(|&n| self.running[n].life.wait_at == u64::MAX)
                .collect();
            if Instant::now() >= until && !anywhere.is_empty() {
                return anywhere[self.numbers.below(anywhere.len() as u64) as usize];
            }
            // All others are on their way to the calls at which they wait.
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// Kills a worker, and returns whose keys it had.
    fn end(&mut self, victim: usize) -> u64 {
        // SAFETY: it takes two numbers.
        #[allow(unsafe_code)]
        let killed = unsafe { libc::kill(self.running[victim].child, libc::SIGKILL) };
        assert_eq!(killed, 0);
        let mut status = 0;
        // SAFETY: it writes a number to where one is.
        #[allow(unsafe_code)]
        let ended = unsafe { libc::waitpid(self.running[victim].child, &mut status, 0) };
        self.hear(victim);
        let ended_running = self.running.swap_remove(victim);
        assert_eq!((ended, status), (ended_running.child, libc::SIGKILL));
        match ended_running.waits {
            true => self.sum.killed_at_calls += 1,
            false => self.sum.killed_anywhere += 1,
        }
        ended_running.life.owner
    }

    fn hear_all(&mut self) {
        for n in 0..self.running.len() {
            self.hear(n);
        }
    }

    /// Takes what a worker has said.
    fn hear(&mut self, n: usize) {
        let mut bytes = [0; 64 << 10];
        loop {
            let running = &mut self.running[n];
            let got = match (&running.pipe).read(&mut bytes) {
                Ok(0) => return,
                Ok(got) => got,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => panic!("{e}"),
            };
            running.heard = Instant::now();
            running.rest.extend_from_slice(&bytes[..got]);
            let (messages, rest) = running.rest.as_chunks::<{ Message::LEN }>();
            let messages: Vec<Message> = messages.iter().map(Message::parse).collect();
            running.rest = rest.to_vec();
            for message in messages {
                self.take(n, message);
            }
        }
        let running = &self.running[n];
        if !running.waits && running.heard.elapsed() > HANGS_AFTER {
            let of = |name: &str| {
                let path = format!("/proc/{}/{name}", running.child);
                fs::read_to_string(path).unwrap_or_default()
            };
            let (at, state, stack) = (of("wchan"), of("status"), of("stack"));
            panic!(
                "worker {} hangs in {at}\n{state}\n{stack}",
                running.life.owner
            );
        }
    }

    fn take(&mut self, n: usize, message: Message) {
        let Message { what, key, number } = message;
        match what {
            What::Worked => {
                self.sum.hits += key;
                self.sum.operations += number;
                return;
            }
            What::Waits => {
                self.running[n].waits = true;
                return;
            }
            What::Wrong => {
                let text = fs::read_to_string(self.home.join("wrong")).unwrap();
                panic!("{text}");
            }
            What::PutDone => self.sum.puts += 1,
            What::RemovalDone => self.sum.removals += 1,
            What::PutBegun | What::RemovalBegun => {}
        }
        let Some(known) = place_of(key).and_then(|at| self.known.get_mut(at)) else {
            return;
        };
        match what {
            What::PutBegun | What::RemovalBegun => known.begun = number,
            _ => known.done = number,
        }
        known.put |= what == What::PutDone;
    }

    /// Waits until nobody is in the middle of a write. Kills who waits for that with the lock.
    fn with_lock<R>(&mut self, work: impl Fn(&mut Self, &mut Locked<'_>) -> R) -> R {
        let until = Instant::now() + HANGS_AFTER;
        let cache = Cache::of(
            Store::open(
                &self.home.join("cache"),
                options(),
                None,
                Arc::new(crate::disk::RealDisk),
            )
            .unwrap(),
        );
        loop {
            let done = with_lock(&cache.store, Wait::No, |locked| Ok(work(self, locked)));
            match done {
                Ok(done) => return done,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => panic!("{e}"),
            }
            self.hear_all();
            while let Some(waiting) = self.running.iter().position(|running| running.waits) {
                let owner = self.end(waiting);
                self.begin(owner);
            }
            assert!(
                Instant::now() < until,
                "somebody has the lock and does not end"
            );
            std::thread::sleep(Duration::from_micros(30));
        }
    }

    /// Looks at all keys that one worker alone writes.
    fn check_keys(&mut self) {
        // With the lock, whoever has noted that it frees a slot has done it, or is dead.
        let before = self.with_lock(|this, _| this.events.read());
        self.hear_all();
        let known_before = self.known.clone();
        let seed = seed_of(&self.cache);
        for (at, known) in known_before.iter().enumerate() {
            let key = key(at as u64 / KEYS, at as u64 % KEYS);
            let hit = self.cache.get(&key.to_le_bytes()).unwrap();
            self.sum.looks += 1;
            let Some(hit) = hit else {
                let after = self.events.read();
                let digest = Digest::of(seed, &key.to_le_bytes());
                let named = self.events.name_a_miss(digest, known.since, before, after);
                assert!(
                    named || !known.put,
                    "key {key:x} is lost, and nobody has freed its slot: {known:?}"
                );
                self.sum.misses_named += u64::from(named);
                continue;
            };
            let number = number_of(key, hit.bytes().unwrap());
            let number = number.unwrap_or_else(|| panic!("key {key:x} has wrong bytes"));
            assert_eq!(hit.fingerprint(), number);
            self.hear_all();
            let begun = self.known[at].begun;
            assert!(
                (known.done..=begun).contains(&number),
                "key {key:x} has {number:x}: {known:?}"
            );
            let known = &mut self.known[at];
            (known.put, known.since) = (true, before);
        }
    }

    /// Whether all files together are within the limit, are counted, and are found.
    fn check_space(&mut self) {
        let bytes = self.with_lock(|_, locked| {
            let mut named = HashSet::new();
            for number in 0..locked.index.header.blocks {
                let slots = locked.index.block(number).unwrap();
                named.extend(slots.into_iter().map(|(_, slot)| slot.segment));
            }
            let mut bytes = 0;
            for listed in locked.store.directory.list().unwrap() {
                match listed.name {
                    Name::Unfinished(number) => panic!("{number:x} was left unfinished"),
                    Name::Value(number) => {
                        assert!(named.contains(&number), "nobody finds value {number:x}");
                    }
                    Name::Segment(_) | Name::Index | Name::Small => {}
                }
                bytes += listed.len;
            }
            assert!(
                bytes <= locked.state.bytes && bytes <= options().limit,
                "{bytes} bytes are there, {} are counted",
                locked.state.bytes
            );
            bytes
        });
        self.sum.most_bytes = self.sum.most_bytes.max(bytes);
        // Of files without names, this process has no more than it may. Its lookups open segments again and again.
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let there = self.home.to_str().unwrap();
        let held: u64 = maps
            .lines()
            .filter(|line| line.contains(there) && line.ends_with("(deleted)"))
            .map(|line| {
                let (from, to) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
                let number = |text| u64::from_str_radix(text, 16).unwrap();
                number(to) - number(from)
            })
            .sum();
        assert!(held <= options().limit, "{held} bytes are held");
    }
}

impl Drop for Torture<'_> {
    fn drop(&mut self) {
        for running in &self.running {
            // SAFETY: it takes two numbers, of which one is a child that nobody has waited for.
            #[allow(unsafe_code)]
            unsafe {
                libc::kill(running.child, libc::SIGKILL);
            }
        }
    }
}

/// The place of a key among those that one worker alone writes.
fn place_of(key: u64) -> Option<usize> {
    let (owner, number) = (key >> 32, key & 0xffff_ffff);
    (owner < WORKERS).then_some((owner * KEYS + number) as usize)
}

fn seed_of(cache: &Cache) -> u64 {
    let process = cache.store.process().unwrap();
    let view = process.view();
    view.index.as_ref().unwrap().header.seed
}

/// What the child does.
fn live(life: Life, home: &Path, pipe: OwnedFd) -> ! {
    let reports = Reports(File::from(pipe));
    // SAFETY: it takes numbers. The child ends with the thread of the test.
    #[allow(unsafe_code)]
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL)
    };
    let worked = std::panic::catch_unwind(|| work(life, home, &reports));
    let status = if worked.is_ok() { 3 } else { 4 };
    // SAFETY: it takes a number and does not return.
    #[allow(unsafe_code)]
    unsafe {
        libc::_exit(status)
    }
}

#[test]
fn thirty_kills_cost_no_right_byte_and_leave_nothing_behind() {
    let home = super::home();
    torture(1, 30, home.path());
}

/// `make torture-cache`. `SEED` and `KILLS` say which run, and `TORTURE_DIR` where.
#[test]
#[ignore = "takes minutes"]
fn a_thousand_kills_cost_no_right_byte_and_leave_nothing_behind() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().unwrap());
    let seed = number("SEED").unwrap_or_else(|| crate::random::number().unwrap() >> 32);
    let kills = number("KILLS").unwrap_or(1_000);
    let home = match std::env::var_os("TORTURE_DIR") {
        Some(there) => tempfile::tempdir_in(there).unwrap(),
        None => super::home(),
    };
    torture(seed, kills, home.path());
}
