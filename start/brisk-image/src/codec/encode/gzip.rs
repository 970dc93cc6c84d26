//! gzip in name, zlib streams (RFC 1950) in fact, by libdeflate.

use libdeflater::{CompressionLvl, Compressor};

use super::library::Encode;
use crate::error::{Error, Result};

pub(super) struct Encoder(Compressor);

impl Encoder {
    pub(super) fn new(level: u8) -> Result<Self> {
        let level = CompressionLvl::new(i32::from(level))
            .map_err(|_| Error::input(format!("gzip level is {level}, allowed is 1 to 12")))?;
        Ok(Self(Compressor::new(level)))
    }
}

impl Encode for Encoder {
    fn encode(&mut self, input: &[u8], out: &mut [u8]) -> Result<Option<usize>> {
        // The only failure there is: no room.
        Ok(self.0.zlib_compress(input, out).ok())
    }
}

/// The version of libdeflate, from the header that it was compiled with. The library itself does
/// not say it.
#[cfg(feature = "write")]
pub(super) fn version() -> String {
    format!("libdeflate {}", env!("BRISK_LIBDEFLATE_VERSION"))
}
