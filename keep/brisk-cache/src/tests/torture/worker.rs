use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::event_log::EventLog;
use super::numbers::Numbers;
use super::report::{Message, Reports, What};
use super::watching_disk::WatchingDisk;
use crate::promise::Promise;
use crate::store::Store;
use crate::{About, Cache, CacheOptions, Durability};

/// Keys of each worker, to which no other one writes, and keys to which all write.
pub(super) const KEYS: u64 = 250;
/// The owner of the keys to which all write.
pub(super) const ALL: u64 = 255;

/// A worker that says nothing for so long hangs.
pub(super) const HANGS_AFTER: Duration = Duration::from_secs(60);

/// Small, so that it is always full.
pub(super) fn options() -> CacheOptions {
    CacheOptions::new()
        .limit(16 << 20)
        .segment_len(1 << 20)
        .write_wait(HANGS_AFTER)
}

pub(super) fn key(owner: u64, number: u64) -> u64 {
    owner << 32 | number
}

/// A value that says which key it belongs to, and which number, in each part of it.
pub(super) fn contents(key: u64, number: u64) -> Vec<u8> {
    let len = match number % 50 {
        // A file of its own.
        0 => 300_000,
        // Checked in chunks.
        1 | 2 => 30_000,
        _ => number % 2_000,
    };
    let mut numbers = Numbers(key.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ number ^ 1 << 62);
    let mut value = number.to_le_bytes().to_vec();
    value.extend((0..len / 8).flat_map(|_| numbers.next().to_le_bytes()));
    value
}

/// The number of a value. None if it is not one that was inserted under the key.
pub(super) fn number_of(key: u64, found: &[u8]) -> Option<u64> {
    let number = u64::from_le_bytes(*found.first_chunk()?);
    (found == contents(key, number)).then_some(number)
}

/// One life of a worker.
#[derive(Debug, Clone, Copy)]
pub(super) struct Life {
    pub(super) owner: u64,
    /// How many lives there were before. Numbers of values never repeat.
    pub(super) number: u64,
    pub(super) seed: u64,
    /// The call of the disk at which it waits to be killed.
    pub(super) wait_at: u64,
}

struct Worker<'a> {
    life: Life,
    disk: Arc<WatchingDisk>,
    cache: Cache,
    directory: &'a Path,
    reports: &'a Reports,
    numbers: Numbers,
    next: u64,
    /// The newest number that was found under each key that one worker alone writes.
    newest: HashMap<u64, u64>,
    hits: u64,
    buf: Vec<u8>,
}

/// Works until it is killed. Returns only if something is wrong.
pub(super) fn work(life: Life, home: &Path, reports: &Reports) {
    let log = EventLog::open(&home.join("events"));
    let disk = WatchingDisk::new(log, Some(reports.try_clone()), life.wait_at);
    let disk = Arc::new(disk);
    let directory = home.join("cache");
    let told = |e: io::Error| e.to_string();
    let result = open(&life, &directory, &disk)
        .map_err(told)
        .and_then(|cache| {
            let mut worker = Worker {
                life,
                cache,
                directory: &directory,
                disk,
                reports,
                numbers: Numbers(life.seed),
                next: (life.number + 1) << 24,
                newest: HashMap::new(),
                hits: 0,
                buf: Vec::new(),
            };
            loop {
                worker.some_turns()?;
            }
        });
    let result: Result<(), String> = result;
    let text = format!("worker {}: {}\n", life.owner, result.unwrap_err());
    let mut options = OpenOptions::new();
    let mut wrong = options
        .append(true)
        .create(true)
        .open(home.join("wrong"))
        .unwrap();
    wrong.write_all(text.as_bytes()).unwrap();
    reports.send(Message::new(What::Wrong, 0, 0));
}

/// Workers differ: some borrow, and some are durable.
fn open(life: &Life, directory: &Path, disk: &Arc<WatchingDisk>) -> io::Result<Cache> {
    let durability = match life.owner % 4 {
        0 | 1 => Durability::Durable,
        _ => Durability::Relaxed,
    };
    let options = options().durability(durability);
    // SAFETY: only brisk writes to the directory.
    #[allow(unsafe_code)]
    let promise = (life.owner % 2 == 1).then(|| unsafe { Promise::new() });
    let mut store = Store::open(directory, options, promise, disk.clone())?;
    if life.owner.is_multiple_of(3) {
        // It doubles the index while others write.
        store.large_index = 1;
    }
    Ok(Cache::of(store))
}

impl Worker<'_> {
    fn some_turns(&mut self) -> Result<(), String> {
        let before = self.hits;
        for _ in 0..256 {
            let (freed, counts) = (self.disk.freed(), self.cache.counts());
            let asked = self.turn().map_err(|e| e.to_string())?;
            let (freed, now) = (self.disk.freed() - freed, self.cache.counts());
            let counted = now.evicted + now.displaced - counts.evicted - counts.displaced;
            if !asked && freed != counted {
                return Err(format!(
                    "{freed} slots were freed and {counted} are counted"
                ));
            }
            if now.damaged > 0 {
                return Err("a record that nobody damaged is damaged".into());
            }
        }
        self.reports
            .send(Message::new(What::Worked, self.hits - before, 256));
        let held = self.cache.stat().map_err(|e| e.to_string())?.held_bytes;
        if held > 0 {
            return Err(format!("{held} bytes are held of files that have no names"));
        }
        if self.numbers.below(4) == 0 {
            self.cache = open(&self.life, self.directory, &self.disk).map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn any_key(&mut self) -> u64 {
        let owner = match self.numbers.below(9) {
            8 => ALL,
            owner => owner,
        };
        key(owner, self.numbers.below(KEYS))
    }

    fn own_key(&mut self) -> u64 {
        key(self.life.owner, self.numbers.below(KEYS))
    }

    /// Does one thing. Returns whether that was to remove.
    fn turn(&mut self) -> Result<bool, io::Error> {
        let wrong = |text: String| io::Error::other(text);
        match self.numbers.below(2_000) {
            0..800 => {
                let key = self.any_key();
                self.read(key)?;
            }
            800..840 => {
                let (key, number) = (key(ALL, self.numbers.below(KEYS)), self.number());
                let about = About::default();
                let fetch = || io::Result::Ok(contents(key, number));
                let hit = self
                    .cache
                    .get_or_insert_with(&key.to_le_bytes(), about, fetch)?;
                if number_of(key, &hit.to_vec()?).is_none() {
                    return Err(wrong(format!(
                        "what was fetched for key {key:x} is not right"
                    )));
                }
            }
            840..900 => {
                let key = self.any_key();
                self.cache.update_use(&key.to_le_bytes())?;
            }
            900..960 => {
                let (key, number) = (self.own_key(), self.number());
                let message = |what| Message::new(what, key, number);
                self.reports.send(message(What::RemovalBegun));
                self.cache.remove(&key.to_le_bytes())?;
                self.reports.send(message(What::RemovalDone));
                return Ok(true);
            }
            // Rarely, so that the cache is full most of the time.
            960 if self.numbers.below(12) == 0 => {
                self.cache.clear()?;
                return Ok(true);
            }
            960..965 => {
                let entries: Vec<_> = self.cache.iter()?.take(50).collect();
                for entry in entries {
                    let entry = entry?;
                    let key = entry.key[..].try_into().map(u64::from_le_bytes);
                    let key = key.map_err(|_| wrong(format!("{:?} is nobody's key", entry.key)))?;
                    self.read(key)?;
                }
            }
            turn => {
                let key = match turn % 4 {
                    0 => key(ALL, self.numbers.below(KEYS)),
                    _ => self.own_key(),
                };
                let number = self.number();
                let message = |what| Message::new(what, key, number);
                self.reports.send(message(What::PutBegun));
                let value = contents(key, number);
                let bucket = (key % 7) as u16;
                let about = About {
                    fingerprint: number,
                    bucket,
                };
                match self.put(key, &value, about) {
                    Ok(()) => {
                        self.reports.send(message(What::PutDone));
                        if key >> 32 != ALL {
                            self.newest.insert(key, number);
                        }
                    }
                    // Seven others fill the cache as fast.
                    Err(e) if e.kind() == io::ErrorKind::StorageFull => {}
                    Err(e) => return Err(e),
                }
            }
        }
        Ok(false)
    }

    /// Inserts a value, at once or piece by piece.
    fn put(&mut self, key: u64, value: &[u8], about: About) -> io::Result<()> {
        let key = key.to_le_bytes();
        let expected = match self.numbers.below(8) {
            0 => None,
            1 => Some(value.len() as u64),
            2 => Some(2 * value.len() as u64),
            _ => return self.cache.insert(&key, value, about),
        };
        let mut pending = self.cache.pending(expected)?;
        for part in value.chunks(40_000) {
            pending.write(part)?;
        }
        pending.finish(&key, about)
    }

    fn read(&mut self, key: u64) -> io::Result<()> {
        let name = key.to_le_bytes();
        let number = if self.numbers.below(2) == 0 {
            let found = self.cache.get_into(&name, &mut self.buf)?;
            found.map(|found| number_of(key, found))
        } else {
            let hit = self.cache.get(&name)?;
            match hit {
                Some(hit) => Some(number_of(key, &hit.to_vec()?)),
                None => None,
            }
        };
        let Some(number) = number else {
            return Ok(());
        };
        let number = number.ok_or_else(|| {
            io::Error::other(format!("what was found under key {key:x} is not right"))
        })?;
        self.hits += 1;
        if key >> 32 == ALL {
            return Ok(());
        }
        let newest = self.newest.entry(key).or_insert(0);
        if number < *newest {
            return Err(io::Error::other(format!(
                "key {key:x} has {number:x} after {newest:x}"
            )));
        }
        *newest = number;
        Ok(())
    }
}
