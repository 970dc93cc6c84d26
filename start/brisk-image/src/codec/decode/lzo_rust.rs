//! LZO1X blocks, which carry neither length nor checksum.
//!
//! Blocks of the kernel's later `lzo-rle` variant are not part of SquashFS and are not decoded. A block
//! of that variant starts with the byte 17, and no LZO1X compressor starts a block with it.

use super::library::{Decode, DecodeError};

pub(super) struct Decoder;

impl Decode for Decoder {
    fn decode(&mut self, input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
        lzo::decompress_into(input, out).map_err(|e| match e {
            lzo::Error::OutputOverrun => DecodeError::too_long(out.len()),
            lzo::Error::InputOverrun => DecodeError::new("ends before its end marker"),
            lzo::Error::InputNotConsumed => DecodeError::new("goes on behind its end marker"),
            lzo::Error::LookbehindOverrun => {
                DecodeError::new("repeats bytes from before its start")
            }
            lzo::Error::Malformed => DecodeError::new("has an instruction that is not valid"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block made by liblzo2.
    const HELLO: &[u8] = b"\x22hello, lzo world!\x11\0\0";

    #[test]
    fn decodes_what_liblzo2_made() {
        let mut out = [0; 17];
        assert_eq!(Decoder.decode(HELLO, &mut out), Ok(17));
        assert_eq!(&out, b"hello, lzo world!");
    }

    #[test]
    fn says_what_is_wrong() {
        let reason = |input: &[u8], room| {
            Decoder
                .decode(input, &mut vec![0; room])
                .unwrap_err()
                .reason
        };
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
}
