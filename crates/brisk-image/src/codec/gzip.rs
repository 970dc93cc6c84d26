//! gzip in name, zlib streams (RFC 1950) in fact, by libdeflate.

use libdeflater::{CompressionLvl, Compressor, DecompressionError, Decompressor};

use super::DecodeError;
use crate::error::{Error, Result};

pub(super) struct Encoder(Compressor);

impl Encoder {
    pub(super) fn new(level: u8) -> Result<Self> {
        let level = CompressionLvl::new(i32::from(level))
            .map_err(|_| Error::input(format!("gzip level is {level}, allowed is 1 to 12")))?;
        Ok(Self(Compressor::new(level)))
    }

    /// The length of what is now at the start of `out`, or `None` if `out` is too small.
    pub(super) fn encode(&mut self, input: &[u8], out: &mut [u8]) -> Option<usize> {
        // The only failure there is: no room.
        self.0.zlib_compress(input, out).ok()
    }
}

pub(super) struct Decoder(Decompressor);

impl Decoder {
    pub(super) fn new() -> Self {
        Self(Decompressor::new())
    }

    /// Like the kernel and unsquashfs, this does not look at bytes behind the stream.
    pub(super) fn decode(&mut self, input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
        self.0.zlib_decompress(input, out).map_err(|e| match e {
            DecompressionError::InsufficientSpace => DecodeError::too_long(out.len()),
            DecompressionError::BadData => DecodeError::new("not a valid zlib stream"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "stored" and "fixed" by hand, so that the decoder is not only tested on its sibling.
    #[test]
    fn decodes_streams_of_any_window() {
        let deflated = [0x4b, 0x4c, 0x4a, 0x06, 0x00]; // "abc" with fixed codes
        let adler = [0x02, 0x4d, 0x01, 0x27];
        for window in 0..=7u8 {
            let cmf = window << 4 | 8;
            let flg = (31 - u16::from(cmf) * 256 % 31) % 31;
            let mut stream = vec![cmf, u8::try_from(flg).unwrap()];
            stream.extend(deflated);
            stream.extend(adler);
            let mut out = [0; 3];
            assert_eq!(Decoder::new().decode(&stream, &mut out), Ok(3), "{window}");
            assert_eq!(&out, b"abc");
        }
    }

    #[test]
    fn says_what_is_wrong() {
        let mut encoder = Encoder::new(9).unwrap();
        let mut stream = [0; 99];
        let len = encoder.encode(&[7; 100], &mut stream).unwrap();
        let mut decoder = Decoder::new();
        let e = decoder.decode(&stream[..len], &mut [0; 99]).unwrap_err();
        assert_eq!(e.reason, "decodes to more than 99 bytes");
        // The checksum is the last field.
        stream[len - 1] ^= 1;
        let e = decoder.decode(&stream[..len], &mut [0; 100]).unwrap_err();
        assert_eq!(e.reason, "not a valid zlib stream");
    }
}
