use twox_hash::XxHash3_64;

/// The check of `bytes` with a seed that is random and not zero.
#[inline]
pub(crate) fn seeded(seed: u64, bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(seed, bytes)
}

/// The check of bytes that begin with a number that is random and not zero.
///
/// For a record of 1 KB this takes 40 ns, and a seed takes 10 more.
#[inline]
pub(crate) fn of(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}
