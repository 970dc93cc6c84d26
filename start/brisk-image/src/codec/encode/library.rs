//! What a library does that compresses a block.

use crate::error::Result;

/// A library that compresses blocks.
pub(super) trait Encode {
    /// Puts the compressed `input` at the start of `out`, and returns its length, or `None` if `out` is
    /// too small.
    fn encode(&mut self, input: &[u8], out: &mut [u8]) -> Result<Option<usize>>;
}
