//! Tests that replace the disk, or look inside.

mod crashes;
mod faults;
mod full_crashes;
mod hooked_disk;
mod races;
mod recording_disk;
mod torture;

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::disk::Disk;
use crate::locked::Locked;
use crate::store::Store;
use crate::{About, Cache, CacheOptions};

/// A cache whose index is doubled while others write, however small it is.
fn doubling(path: &Path, options: &CacheOptions, disk: Arc<dyn Disk>) -> io::Result<Cache> {
    let mut store = Store::open(path, options.clone(), None, disk)?;
    store.large_index = 1;
    Ok(Cache::of(store))
}

/// A value that says which key and turn it belongs to, in each part of it.
fn value(key: u64, turn: u64, len: usize) -> Vec<u8> {
    let mut state = key.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ turn.wrapping_mul(0xD1B5) ^ 1;
    let mut value = Vec::with_capacity(len + 7);
    while value.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        value.extend(state.to_le_bytes());
    }
    value.truncate(len);
    value
}

/// In memory: ext4 takes long to make files after many were removed.
fn home() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

fn small() -> CacheOptions {
    CacheOptions::new().limit(64 << 20).segment_len(1 << 20)
}

/// The files that slots name.
fn named(locked: &Locked<'_>) -> io::Result<HashSet<u64>> {
    let mut named = HashSet::new();
    for number in 0..locked.index.header.blocks {
        let slots = locked.index.block(number)?;
        named.extend(slots.into_iter().map(|(_, slot)| slot.segment));
    }
    Ok(named)
}

fn insert(cache: &Cache, key: u64, value: &[u8]) -> std::io::Result<()> {
    cache.insert(&key.to_le_bytes(), value, About::default())
}

fn get(cache: &Cache, key: u64) -> Option<Vec<u8>> {
    let hit = cache.get(&key.to_le_bytes()).unwrap();
    hit.map(|hit| hit.to_vec().unwrap())
}
