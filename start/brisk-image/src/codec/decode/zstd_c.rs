//! Zstandard frames (RFC 8878), by libzstd.

use zstd::zstd_safe::{self, DCtx, zstd_sys::ZSTD_ErrorCode};

use super::library::{Decode, DecodeError};

/// How the library reports, as a length, that the output does not fit.
const NO_ROOM: usize = (ZSTD_ErrorCode::ZSTD_error_dstSize_tooSmall as usize).wrapping_neg();

pub(super) struct Decoder(DCtx<'static>);

impl Decoder {
    pub(super) fn new() -> Self {
        Self(DCtx::create())
    }
}

impl Decode for Decoder {
    /// Decodes one frame. Its window is `out` itself, so no size in the frame makes this allocate.
    fn decode(&mut self, input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
        let name = |code| DecodeError::new(zstd_safe::get_error_name(code).to_ascii_lowercase());
        // The library decodes any number of frames, the kernel decodes the first.
        if zstd_safe::find_frame_compressed_size(input).map_err(name)? != input.len() {
            return Err(DecodeError::new("goes on behind its first frame"));
        }
        self.0.decompress(out, input).map_err(|code| match code {
            NO_ROOM => DecodeError::too_long(out.len()),
            code => name(code),
        })
    }
}

#[cfg(test)]
mod tests {
    use zstd::zstd_safe::CCtx;

    use super::*;

    fn frame(input: &[u8]) -> Vec<u8> {
        let mut out = vec![0; input.len()];
        let len = CCtx::create().compress(&mut out[..], input, 15).unwrap();
        out.truncate(len);
        out
    }

    #[test]
    fn says_what_the_library_says() {
        let frame = frame(&[7; 1000]);
        let mut decoder = Decoder::new();
        let mut reason = |input: &[u8]| decoder.decode(input, &mut [0; 1000]).unwrap_err().reason;
        assert_eq!(reason(&frame[..8]), "src size is incorrect");
        assert_eq!(reason(&[1; 20]), "unknown frame descriptor");
    }
}
