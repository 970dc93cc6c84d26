//! LZ4 blocks without a frame, which carry neither length nor checksum, by the library of LZ4's author.

use super::library::Encode;
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
#[cfg(feature = "write")]
pub(super) fn version() -> String {
    format!("lz4 {}", lzzzz::version_string())
}
