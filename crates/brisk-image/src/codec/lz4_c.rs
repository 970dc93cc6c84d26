//! LZ4 blocks without a frame, which carry neither length nor checksum, by the library of LZ4's author.

use super::library::{Decode, DecodeError, Encode};
use crate::error::Result;

pub(super) struct Encoder {
    high: Option<i32>,
}

impl Encoder {
    /// `high` is the level of the high compression mode; without, the fast mode.
    pub(super) fn new(high: Option<u8>) -> Self {
        let high = high.map(i32::from);
        Self { high }
    }
}

impl Encode for Encoder {
    /// The binding keeps the state of each thread.
    fn encode(&mut self, input: &[u8], out: &mut [u8]) -> Result<Option<usize>> {
        // The only failure there is: no room.
        Ok(match self.high {
            Some(level) => lzzzz::lz4_hc::compress(input, out, level).ok(),
            None => lzzzz::lz4::compress(input, out, lzzzz::lz4::ACC_LEVEL_DEFAULT).ok(),
        })
    }
}

/// What the linked library says.
pub(super) fn version() -> String {
    format!("lz4 {}", lzzzz::version_string())
}

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
