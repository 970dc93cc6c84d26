//! Sizes that the format gives codecs.

/// The decoded size of a metadata block.
#[cfg(any(feature = "write", feature = "profile"))]
pub(crate) const METADATA_BLOCK: u32 = 8192;

/// Whether the kernel takes `size` as the size of a dictionary: 2^n or 2^n + 2^(n-1).
pub(crate) fn is_dict_size(size: u32) -> bool {
    let odd = size.checked_shr(size.trailing_zeros()).unwrap_or(0);
    matches!(odd, 1 | 3)
}
