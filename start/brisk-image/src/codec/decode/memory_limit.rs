//! How much memory a block may cost.

/// What one decoding may allocate. The largest dictionary of any block, 1 MiB, fits twice.
pub(super) const MEMORY_LIMIT: u64 = 2 << 20;
