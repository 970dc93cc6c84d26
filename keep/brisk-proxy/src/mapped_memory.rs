//! A bound on what the mappings of the cache add to the memory of this process.
//!
//! The system counts each page of a file that was touched through a mapping as memory of the process, and maps its
//! neighbours with it. Over a large cache that is as large as what was ever asked for.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use brisk_cache::Cache;

/// After so many answers, memory is looked at. Each answer maps 2 MiB at most, or a few times that if it is long.
const EVERY: u32 = 8;

/// The pages that are mapped from files may have so many bytes. The program's own code is in it, with some 5 MiB.
const MOST: u64 = 40 << 20;

/// Gives mapped pages back when there are too many.
pub struct MappedMemory {
    cache: Arc<Cache>,
    /// `/proc/self/statm`. None if there is no such file.
    statm: Option<File>,
    answers: AtomicU32,
}

impl MappedMemory {
    /// For the mappings of this cache.
    pub fn new(cache: Arc<Cache>) -> Self {
        Self {
            cache,
            statm: File::open("/proc/self/statm").ok(),
            answers: AtomicU32::new(0),
        }
    }

    /// Counts an answer, and sometimes looks.
    pub fn answered(&self) {
        let before = self.answers.fetch_add(1, Ordering::Relaxed);
        let is_time = before % EVERY == EVERY - 1;
        if is_time && self.mapped().is_ok_and(|bytes| bytes > MOST) {
            // It fails only for who has locked all memory, and wants it so.
            self.cache.release_pages().ok();
        }
    }

    /// The bytes of files that are in this process's page table.
    fn mapped(&self) -> io::Result<u64> {
        let file = self.statm.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let mut text = [0; 128];
        let len = file.read_at(&mut text, 0)?;
        let text = str::from_utf8(text.get(..len).unwrap_or_default());
        let shared = text.unwrap_or_default().split(' ').nth(2);
        let pages: Option<u64> = shared.and_then(|number| number.parse().ok());
        let pages = pages.ok_or(io::ErrorKind::InvalidData)?;
        Ok(pages.saturating_mul(rustix::param::page_size() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brisk_cache::{About, CacheOptions};

    #[test]
    fn many_answers_leave_few_pages_mapped() {
        let home = tempfile::tempdir().unwrap();
        let options = CacheOptions::new().limit(1 << 30);
        let cache = Arc::new(Cache::open(home.path(), options).unwrap());
        let value = vec![7; 10_000];
        for key in 0..8_000u32 {
            let key = key.to_le_bytes();
            cache.insert(&key, &value, About::default()).unwrap();
        }
        let read_all = |memory: Option<&MappedMemory>| {
            for key in 0..8_000u32 {
                let hit = cache.get(&key.to_le_bytes()).unwrap().unwrap();
                assert!(hit.bytes().unwrap() == value);
                memory.inspect(|memory| memory.answered());
            }
        };
        let memory = MappedMemory::new(Arc::clone(&cache));
        read_all(None);
        let before = memory.mapped().unwrap();
        assert!(before > 60 << 20, "{before}");
        read_all(Some(&memory));
        read_all(Some(&memory));
        let after = memory.mapped().unwrap();
        assert!(after < before - (8 << 20), "{before} {after}");
    }
}
