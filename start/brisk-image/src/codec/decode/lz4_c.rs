//! LZ4 blocks without a frame, which carry neither length nor checksum, by the library of LZ4's author.

use super::library::{Decode, DecodeError};

pub(super) struct Decoder;

impl Decode for Decoder {
    fn decode(&mut self, input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
        // The library does not tell its two failures apart.
        lzzzz::lz4::decompress(input, out).map_err(|_| {
            DecodeError::new(format!(
                "not a valid block, or decodes to more than {} bytes",
                out.len()
            ))
        })
    }
}
