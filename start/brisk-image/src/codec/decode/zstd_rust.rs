//! Zstandard frames (RFC 8878), by mzstd.

use mzstd::{DecodeError as Zstd, DecodeLimits, DecoderConfig, Decompressor, FrameMode};

use super::library::{Decode, DecodeError};

/// The largest window of a frame, as a power of two: the largest block of an image, 1 MiB. The kernel
/// reads no frame with a larger window than the block size.
const WINDOW_LOG: u8 = 20;

pub(super) struct Decoder(Decompressor);

impl Decoder {
    pub(super) fn new() -> Self {
        // It fails only for a window that the library does not know, and then its own default holds.
        let limits = DecodeLimits::default().with_max_window_log(WINDOW_LOG);
        let config = DecoderConfig::default()
            .with_frame_mode(FrameMode::Single)
            .with_limits(limits.unwrap_or_default());
        Self(Decompressor::new(config))
    }
}

impl Decode for Decoder {
    fn decode(&mut self, input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
        self.0.decompress_to_slice(input, out).map_err(|e| match e {
            Zstd::OutputTooSmall { .. } => DecodeError::too_long(out.len()),
            Zstd::TrailingData { .. } => DecodeError::new("goes on behind its first frame"),
            Zstd::WindowLimitExceeded { window_size, limit } => DecodeError::new(format!(
                "needs a window of {window_size} bytes, allowed is at most {limit}"
            )),
            e => DecodeError::new(e.to_string()),
        })
    }
}

#[cfg(all(test, feature = "zstd"))]
mod tests {
    use zstd::zstd_safe::{CCtx, CParameter};

    use super::*;

    fn encode(input: &[u8], checksum: bool) -> Vec<u8> {
        let mut context = CCtx::create();
        let parameter = CParameter::ChecksumFlag(checksum);
        context.set_parameter(parameter).unwrap();
        let mut out = vec![0; input.len() + 1000];
        let len = context.compress2(&mut out[..], input).unwrap();
        out.truncate(len);
        out
    }

    /// RFC 8878, 3.1.1: a frame without the length of its content says its window, of 2^(10 + n) bytes, in
    /// the upper five bits of the byte behind the descriptor.
    #[test]
    fn a_large_window_is_refused_before_it_is_allocated() {
        let reason = "needs a window of 2097152 bytes, allowed is at most 1048576";
        for (n, expected) in [(10, Ok(2)), (11, Err(DecodeError::new(reason)))] {
            // One block, the last, of two bytes that are stored raw.
            let frame = [
                0x28,
                0xb5,
                0x2f,
                0xfd,
                0,
                n << 3,
                2 << 3 | 1,
                0,
                0,
                b'o',
                b'k',
            ];
            let found = Decoder::new().decode(&frame, &mut [0; 2]);
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_checksum_is_checked() {
        let mut frame = encode(&[7; 1000], true);
        let mut out = [0; 1000];
        assert_eq!(Decoder::new().decode(&frame, &mut out), Ok(1000));
        *frame.last_mut().unwrap() ^= 1;
        Decoder::new().decode(&frame, &mut out).unwrap_err();
    }
}
