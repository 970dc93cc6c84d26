//! Zstandard frames (RFC 8878), by libzstd.
//!
//! The kernel reads a frame through a window of the block size, or of 8 KiB if that is more. What
//! is written here fits: a frame knows its decoded length, and needs no more window than that.

use std::io;

use zstd::zstd_safe::{self, CCtx, zstd_sys::ZSTD_ErrorCode};

use super::library::Encode;
use crate::error::{Error, Result};

/// How the library reports, as a length, that the output does not fit.
const NO_ROOM: usize = (ZSTD_ErrorCode::ZSTD_error_dstSize_tooSmall as usize).wrapping_neg();

pub(super) struct Encoder {
    context: CCtx<'static>,
    level: i32,
}

impl Encoder {
    pub(super) fn new(level: u8) -> Result<Self> {
        let context = CCtx::try_create().ok_or_else(|| {
            Error::io(
                "make a zstd compressor",
                io::Error::from(io::ErrorKind::OutOfMemory),
            )
        })?;
        let level = i32::from(level);
        Ok(Self { context, level })
    }
}

/// What the linked library says.
#[cfg(feature = "write")]
pub(super) fn version() -> String {
    format!("zstd {}", zstd_safe::version_string())
}

impl Encode for Encoder {
    fn encode(&mut self, input: &[u8], out: &mut [u8]) -> Result<Option<usize>> {
        match self.context.compress(out, input, self.level) {
            Ok(len) => Ok(Some(len)),
            Err(NO_ROOM) => Ok(None),
            Err(code) => Err(Error::io(
                "compress a block as zstd",
                io::Error::other(zstd_safe::get_error_name(code)),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8878, 3.1.1.1: with the single segment flag the window is the content, else a byte says
    /// how large it is.
    #[test]
    fn frames_need_no_window_beyond_their_content() {
        for level in [1, 3, 15, 19, 22] {
            for len in [200u32, 4096, 8192, 131_072, 1 << 20] {
                let input: Vec<u8> = (0..len).map(|i| i.to_le_bytes()[1]).collect();
                let mut out = vec![0; input.len()];
                let mut encoder = Encoder::new(level).unwrap();
                encoder.encode(&input, &mut out).unwrap().unwrap();
                let (descriptor, window) = (out[4], out[5]);
                let window = match descriptor & 0x20 {
                    0 => (1u32 << (10 + (window >> 3))) / 8 * u32::from(8 + (window & 7)),
                    _ => len,
                };
                assert!(window <= len, "level {level}, {len} bytes: {window}");
                let checksum = descriptor & 0x04;
                assert_eq!(checksum, 0, "level {level}, {len} bytes");
            }
        }
    }
}
