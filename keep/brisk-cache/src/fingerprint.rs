//! The number of a layout, from its description.

/// The fingerprint of a layout that has this description (FNV-1a, 64 bits). Nothing compares the description with the layout:
/// where the layout is that of a type, derive [`Layout`](crate::Layout).
pub const fn fingerprint(description: &str) -> u64 {
    fold(OFFSET, description.as_bytes())
}

/// What FNV-1a begins with.
pub(crate) const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

pub(crate) const fn fold(mut hash: u64, bytes: &[u8]) -> u64 {
    let mut at = 0;
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0100_0000_01b3);
        at += 1;
    }
    hash
}
