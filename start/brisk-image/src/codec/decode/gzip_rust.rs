//! gzip in name, zlib streams (RFC 1950) in fact, by miniz_oxide.

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::{
    TINFL_FLAG_COMPUTE_ADLER32, TINFL_FLAG_PARSE_ZLIB_HEADER,
    TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF,
};
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};

use super::library::{Decode, DecodeError};

const FLAGS: u32 = TINFL_FLAG_PARSE_ZLIB_HEADER
    | TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF
    | TINFL_FLAG_COMPUTE_ADLER32;

pub(super) struct Decoder(Box<DecompressorOxide>);

impl Decoder {
    pub(super) fn new() -> Self {
        Self(Box::default())
    }
}

impl Decode for Decoder {
    /// Like the kernel and unsquashfs, this does not look at bytes behind the stream.
    fn decode(&mut self, input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
        self.0.init();
        match decompress(&mut self.0, input, out, 0, FLAGS) {
            (TINFLStatus::Done, _, len) => Ok(len),
            (TINFLStatus::HasMoreOutput, ..) => Err(DecodeError::too_long(out.len())),
            _ => Err(DecodeError::new("not a valid zlib stream")),
        }
    }
}
