//! Decoded blocks, kept up to a number of bytes.

use std::hash::Hash;
use std::sync::Arc;

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

use crate::error::Result;

/// Bytes that a cached block costs beside its contents: the key, the counts, two allocations, and the
/// cache's own books. Without it, an image of very small or empty blocks, which are never evicted,
/// would take many times the memory of the limit.
const BOOKS: u64 = 192;

/// The part of the cache that blocks which were asked for twice may keep from new ones. With the usual
/// 0.97 a small cache has less than one block left, so the next block evicts a new one at once.
const HOT: f64 = 0.5;

/// A block that is kept decoded.
pub(crate) trait Decoded {
    /// Bytes that it decoded to.
    fn decoded_len(&self) -> usize;
}

impl Decoded for Vec<u8> {
    fn decoded_len(&self) -> usize {
        self.len()
    }
}

/// Decoded blocks, found by where they are stored. Threads that ask for the same block at the same time
/// decode it once.
pub(crate) struct BlockCache<K, V> {
    blocks: Cache<K, Arc<V>, Bytes>,
}

#[derive(Clone)]
struct Bytes;

impl<K, V: Decoded> Weighter<K, Arc<V>> for Bytes {
    fn weight(&self, _: &K, block: &Arc<V>) -> u64 {
        BOOKS + block.decoded_len() as u64
    }
}

impl<K: Hash + Eq + Clone, V: Decoded> BlockCache<K, V> {
    /// Keeps at most `bytes`, in blocks of about `block_len`.
    pub(crate) fn new(bytes: u64, block_len: u64) -> Self {
        let blocks = usize::try_from(bytes / block_len)
            .unwrap_or(usize::MAX)
            .max(1);
        let options = OptionsBuilder::new()
            .estimated_items_capacity(blocks)
            .weight_capacity(bytes)
            .hot_allocation(HOT)
            .build();
        let blocks = match options {
            Ok(options) => {
                let (hashes, life) = (DefaultHashBuilder::default(), DefaultLifecycle::default());
                Cache::with_options(options, Bytes, hashes, life)
            }
            // It fails only if one of the two capacities is missing.
            Err(_) => Cache::with_weighter(blocks, bytes, Bytes),
        };
        Self { blocks }
    }

    /// The block at `key`, which `decode` makes if it is not kept.
    pub(crate) fn get(&self, key: K, decode: impl FnOnce() -> Result<V>) -> Result<Arc<V>> {
        self.blocks
            .get_or_insert_with(&key, || decode().map(Arc::new))
    }

    /// Keeps at most `bytes` from now on.
    pub(crate) fn set_capacity(&self, bytes: u64) {
        self.blocks.set_capacity(bytes);
    }
}
