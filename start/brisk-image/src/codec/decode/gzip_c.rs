//! gzip in name, zlib streams (RFC 1950) in fact, by libdeflate.

use libdeflater::{DecompressionError, Decompressor};

use super::library::{Decode, DecodeError};

pub(super) struct Decoder(Decompressor);

impl Decoder {
    pub(super) fn new() -> Self {
        Self(Decompressor::new())
    }
}

impl Decode for Decoder {
    /// Like the kernel and unsquashfs, this does not look at bytes behind the stream.
    fn decode(&mut self, input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
        self.0.zlib_decompress(input, out).map_err(|e| match e {
            DecompressionError::InsufficientSpace => DecodeError::too_long(out.len()),
            DecompressionError::BadData => DecodeError::new("not a valid zlib stream"),
        })
    }
}

#[cfg(test)]
mod tests {
    use libdeflater::{CompressionLvl, Compressor};

    use super::*;

    #[test]
    fn says_what_is_wrong() {
        let mut encoder = Compressor::new(CompressionLvl::new(9).unwrap());
        let mut stream = [0; 99];
        let len = encoder.zlib_compress(&[7; 100], &mut stream).unwrap();
        let mut decoder = Decoder::new();
        let e = decoder.decode(&stream[..len], &mut [0; 99]).unwrap_err();
        assert_eq!(e.reason, "decodes to more than 99 bytes");
        // The checksum is the last field.
        stream[len - 1] ^= 1;
        let e = decoder.decode(&stream[..len], &mut [0; 100]).unwrap_err();
        assert_eq!(e.reason, "not a valid zlib stream");
    }
}
