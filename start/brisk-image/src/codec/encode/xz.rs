//! xz streams: one LZMA2 block each, with a CRC32, by liblzma.

use liblzma::stream::{Action, Check, Filters, LzmaOptions, PRESET_EXTREME, Status, Stream};

use super::library::Encode;
use crate::codec::{Bcj, BcjSet};
use crate::error::{Error, Result};

/// The least dictionary of liblzma.
const LEAST_DICT: u32 = 4096;

pub(super) struct Encoder {
    preset: u32,
    dict_size: u32,
    filters: BcjSet,
    /// What a filter makes, while `out` holds the best so far.
    other: Vec<u8>,
}

impl Encoder {
    pub(super) fn new(preset: u8, extreme: bool, dict_size: u32, filters: BcjSet) -> Self {
        Self {
            preset: u32::from(preset) | if extreme { PRESET_EXTREME } else { 0 },
            dict_size,
            filters,
            other: Vec::new(),
        }
    }

    fn encode_with(
        &self,
        filter: Option<Bcj>,
        input: &[u8],
        out: &mut [u8],
    ) -> Result<Option<usize>> {
        let fail = |e: liblzma::stream::Error| Error::io("compress a block as xz", e.into());
        let mut options = LzmaOptions::new_preset(self.preset).map_err(fail)?;
        options.dict_size(self.dict_size.min(dict_for(input.len())));
        // The defaults of 3 literal context bits, no literal position bits and 2 position bits
        // suit text and x86. Where instructions are aligned, so are their bytes.
        match filter {
            None | Some(Bcj::X86) => {}
            Some(Bcj::ArmThumb | Bcj::RiscV) => {
                options.literal_position_bits(1);
            }
            Some(Bcj::PowerPc | Bcj::Arm | Bcj::Sparc | Bcj::Arm64) => {
                options.literal_context_bits(2).literal_position_bits(2);
            }
            Some(Bcj::Ia64) => {
                options
                    .literal_context_bits(0)
                    .literal_position_bits(4)
                    .position_bits(4);
            }
        }
        let mut chain = Filters::new();
        match filter {
            None => &mut chain,
            Some(Bcj::X86) => chain.x86(),
            Some(Bcj::PowerPc) => chain.powerpc(),
            Some(Bcj::Ia64) => chain.ia64(),
            Some(Bcj::Arm) => chain.arm(),
            Some(Bcj::ArmThumb) => chain.arm_thumb(),
            Some(Bcj::Sparc) => chain.sparc(),
            Some(Bcj::Arm64) => chain.arm64(),
            Some(Bcj::RiscV) => chain.riscv(),
        }
        .lzma2(&options);
        let mut stream = Stream::new_stream_encoder(&chain, Check::Crc32).map_err(fail)?;
        // With all input and no more output to give, one call does all there is to do.
        match stream.process(input, out, Action::Finish).map_err(fail)? {
            Status::StreamEnd => Ok(usize::try_from(stream.total_out()).ok()),
            Status::Ok | Status::GetCheck | Status::MemNeeded => Ok(None),
        }
    }
}

impl Encode for Encoder {
    /// If streams are equally long, the one without a filter wins, then the first in the order of
    /// [`Bcj::ALL`].
    fn encode(&mut self, input: &[u8], out: &mut [u8]) -> Result<Option<usize>> {
        let mut best = self.encode_with(None, input, out)?;
        if self.filters.is_empty() {
            return Ok(best);
        }
        let mut other = std::mem::take(&mut self.other);
        if other.len() < out.len() {
            other.resize(out.len(), 0);
        }
        for filter in self.filters.iter() {
            // Only what is shorter than the best counts, so there is no room for more.
            let room = best.map_or(out.len(), |best| best - 1);
            if let Some(len) = self.encode_with(Some(filter), input, &mut other[..room])? {
                out[..len].copy_from_slice(&other[..len]);
                best = Some(len);
            }
        }
        self.other = other;
        Ok(best)
    }
}

/// The least dictionary that holds `len` bytes. A larger one finds nothing more, and takes memory
/// that is cleared for each block.
fn dict_for(len: usize) -> u32 {
    let len = u32::try_from(len).unwrap_or(u32::MAX).max(LEAST_DICT);
    len.checked_next_power_of_two().unwrap_or(u32::MAX)
}

/// The version in the header that the library was compiled with.
#[cfg(feature = "write")]
pub(super) fn version() -> String {
    format!("liblzma {}", env!("BRISK_LIBLZMA_VERSION"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Codec, Decoder, Decoders};

    fn encode(input: &[u8], dict_size: u32, filters: &[Bcj]) -> Vec<u8> {
        let filters = filters.iter().copied().collect();
        let mut out = vec![0; input.len()];
        let mut encoder = Encoder::new(6, false, dict_size, filters);
        let len = encoder.encode(input, &mut out).unwrap().unwrap();
        out.truncate(len);
        out
    }

    /// Calls of one function from everywhere, as x86 has them.
    fn code() -> Vec<u8> {
        let mut code = Vec::new();
        for at in 0..4000u32 {
            let step = at * 7;
            code.extend(step.to_le_bytes()[..2].iter().map(|byte| byte & 0x7f));
            code.push(0xe8);
            let end = u32::try_from(code.len()).unwrap() + 4;
            code.extend(1_000_000u32.wrapping_sub(end).to_le_bytes());
        }
        code
    }

    /// Of section 3.1 of the xz format: after 12 bytes of stream header, the length of the block
    /// header, its flags, and the filters, of which LZMA2 is the last; its one property is the
    /// dictionary size.
    #[test]
    fn streams_are_what_the_kernel_reads() {
        let mib = vec![0; 1 << 20];
        for (input, dict_size, property) in [
            (&mib[..100], 131_072, 0),  // 4 KiB
            (&mib[..8192], 8192, 2),    // 8 KiB
            (&mib[..8193], 1 << 20, 4), // 16 KiB
            (&mib[..], 12_288, 3),      // 12 KiB
            (&mib[..], 131_072, 10),    // 128 KiB
            (&mib[..], 1 << 20, 16),    // 1 MiB
        ] {
            let stream = encode(input, dict_size, &[]);
            let header = [0xfd, b'7', b'z', b'X', b'Z', 0, 0, 1]; // 1 is CRC32
            assert_eq!(stream[..8], header);
            let block_flags = 0; // one filter, no sizes
            assert_eq!(stream[13..17], [block_flags, 0x21, 1, property]);
        }
    }

    #[test]
    fn the_filter_that_helps_is_taken() {
        let code = code();
        let plain = encode(&code, 65_536, &[]);
        let x86 = encode(&code, 65_536, &[Bcj::X86]);
        assert!(x86.len() < plain.len(), "{} {}", x86.len(), plain.len());
        let all = encode(&code, 65_536, &Bcj::ALL);
        assert!(all.len() <= x86.len());
        for stream in [plain, x86, all] {
            let mut out = vec![0; code.len()];
            let mut decoder = Decoder::new(Codec::Xz, Decoders::Fastest).unwrap();
            assert_eq!(decoder.decode(&stream, &mut out), Ok(code.len()));
            assert_eq!(out, code);
        }
        // Where none does better, none is taken: of equal streams the plain one stays.
        let zeros = vec![0; 20_000];
        let tried = encode(&zeros, 65_536, &Bcj::ALL);
        assert_eq!(tried, encode(&zeros, 65_536, &[]));
    }
}
