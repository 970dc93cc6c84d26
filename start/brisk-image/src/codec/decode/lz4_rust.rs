//! LZ4 blocks without a frame, which carry neither length nor checksum, by lz4_flex.

use lz4_flex::block::{DecompressError, decompress_into};

use super::library::{Decode, DecodeError};

pub(super) struct Decoder;

impl Decode for Decoder {
    fn decode(&mut self, input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
        decompress_into(input, out).map_err(|e| match e {
            DecompressError::OutputTooSmall { .. } => DecodeError::too_long(out.len()),
            DecompressError::OffsetOutOfBounds | DecompressError::OffsetZero => {
                DecodeError::new("not a valid block: repeats bytes from before its start")
            }
            _ => DecodeError::new("not a valid block"),
        })
    }
}
