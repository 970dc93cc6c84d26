//! LZ4 blocks without a frame, which carry neither length nor checksum.

use super::DecodeError;

pub(super) struct Encoder {
    high: Option<i32>,
}

impl Encoder {
    /// `high` is the level of the high compression mode; without, the fast mode.
    pub(super) fn new(high: Option<u8>) -> Self {
        let high = high.map(i32::from);
        Self { high }
    }

    /// The length of what is now at the start of `out`, or `None` if `out` is too small.
    ///
    /// The state is the thread's own, kept by the binding.
    pub(super) fn encode(&mut self, input: &[u8], out: &mut [u8]) -> Option<usize> {
        // The only failure there is: no room.
        match self.high {
            Some(level) => lzzzz::lz4_hc::compress(input, out, level).ok(),
            None => lzzzz::lz4::compress(input, out, lzzzz::lz4::ACC_LEVEL_DEFAULT).ok(),
        }
    }
}

pub(super) fn decode(input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
    // The library does not tell its two failures apart.
    lzzzz::lz4::decompress(input, out).map_err(|_| {
        DecodeError::new(format!(
            "not a valid block, or decodes to more than {} bytes",
            out.len()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_a_block_made_by_hand() {
        // Two literals, a match of 4 + 4 bytes at distance 2, then five literals as the end.
        let block = [0x24, b'a', b'b', 2, 0, 0x50, b'c', b'd', b'e', b'f', b'g'];
        let mut out = [0; 15];
        assert_eq!(decode(&block, &mut out), Ok(15));
        assert_eq!(&out, b"ababababab\x63defg");
        let e = decode(&block, &mut out[..14]).unwrap_err();
        assert_eq!(
            e.reason,
            "not a valid block, or decodes to more than 14 bytes"
        );
    }
}
