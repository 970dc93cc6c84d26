//! LZO1X blocks, which carry neither length nor checksum.
//!
//! Blocks of the kernel's later `lzo-rle` variant are not part of SquashFS: none is written, and
//! none is decoded. A block of that variant starts with the byte 17, which no LZO1X compressor
//! starts with.

use std::io;

use lzokay_native::Dict;

use super::DecodeError;
use crate::error::{Error, Result};

pub(super) struct Encoder(Dict);

impl Encoder {
    pub(super) fn new() -> Self {
        Self(Dict::new())
    }

    /// The length of what is now at the start of `out`, or `None` if `out` is too small.
    pub(super) fn encode(&mut self, input: &[u8], out: &mut [u8]) -> Result<Option<usize>> {
        let encoded = lzokay_native::compress_with_dict(input, &mut self.0)
            .map_err(|e| Error::io("compress a block as lzo", io::Error::other(e)))?;
        let Some(out) = out.get_mut(..encoded.len()) else {
            return Ok(None);
        };
        out.copy_from_slice(&encoded);
        Ok(Some(encoded.len()))
    }
}

pub(super) fn decode(input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
    lzo::decompress_into(input, out).map_err(|e| match e {
        lzo::Error::OutputOverrun => DecodeError::too_long(out.len()),
        lzo::Error::InputOverrun => DecodeError::new("ends before its end marker"),
        lzo::Error::InputNotConsumed => DecodeError::new("goes on behind its end marker"),
        lzo::Error::LookbehindOverrun => DecodeError::new("repeats bytes from before its start"),
        lzo::Error::Malformed => DecodeError::new("has an instruction that is not valid"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block made by liblzo2.
    const HELLO: &[u8] = b"\x22hello, lzo world!\x11\0\0";

    #[test]
    fn decodes_what_liblzo2_made() {
        let mut out = [0; 17];
        assert_eq!(decode(HELLO, &mut out), Ok(17));
        assert_eq!(&out, b"hello, lzo world!");
    }

    #[test]
    fn says_what_is_wrong() {
        let reason = |input: &[u8], room| decode(input, &mut vec![0; room]).unwrap_err().reason;
        assert_eq!(reason(HELLO, 16), "decodes to more than 16 bytes");
        assert_eq!(reason(&HELLO[..18], 17), "ends before its end marker");
        let longer = [HELLO, &[0]].concat();
        assert_eq!(reason(&longer, 17), "goes on behind its end marker");
        // One literal, then a match of three bytes that starts seven bytes before it.
        let before = [18, b'a', 0x58, 0, 0x11, 0, 0];
        assert_eq!(reason(&before, 17), "repeats bytes from before its start");
        // An end marker of another length.
        let marker = [18, b'a', 0x12, 0, 0];
        assert_eq!(reason(&marker, 17), "has an instruction that is not valid");
    }

    /// The kernel takes a first byte of 17 as the mark of `lzo-rle`.
    #[test]
    fn never_starts_with_the_mark_of_another_variant() {
        let mut encoder = Encoder::new();
        let mut out = [0; 2000];
        for len in 4..600 {
            let input: Vec<u8> = (0..len).map(|i| u8::try_from(i % 7).unwrap()).collect();
            if encoder.encode(&input, &mut out).unwrap().is_some() {
                assert_ne!(out[0], 17, "{len}");
            }
        }
    }
}
