//! xz streams: one LZMA2 block each, with a CRC32, by lzma-rust2.

use std::io;

use lzma_rust2::{Action, Status, XzStream};

use super::library::{Decode, DecodeError};
use super::memory_limit::MEMORY_LIMIT;

/// [`MEMORY_LIMIT`] in the unit of the library.
const MEMORY_LIMIT_KIB: u32 = (MEMORY_LIMIT / 1024) as u32;

pub(super) struct Decoder;

impl Decode for Decoder {
    fn decode(&mut self, input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
        let mut stream = XzStream::new_mem_limit(false, MEMORY_LIMIT_KIB);
        let (mut consumed, mut decoded) = (0, 0);
        loop {
            // Behind a branch filter, the library reads the end of a stream only if there is room for
            // more, so it is given some when `out` is full.
            let mut more = [0; 1];
            let is_full = decoded == out.len();
            let room = match is_full {
                true => &mut more[..],
                false => &mut out[decoded..],
            };
            let step = stream
                .process(&input[consumed..], room, Action::Finish)
                .map_err(|e| reason(&e, &stream))?;
            consumed += step.bytes_consumed;
            if is_full && step.bytes_produced > 0 {
                return Err(DecodeError::too_long(out.len()));
            }
            decoded += step.bytes_produced;
            match step.status {
                Status::StreamEnd if consumed == input.len() => return Ok(decoded),
                Status::StreamEnd => return Err(DecodeError::new("goes on behind its end")),
                Status::Ok if step.bytes_consumed > 0 || step.bytes_produced > 0 => {}
                Status::Ok => return Err(ends_early()),
            }
        }
    }
}

fn ends_early() -> DecodeError {
    DecodeError::new("ends before its end")
}

fn reason(e: &io::Error, stream: &XzStream) -> DecodeError {
    match e.kind() {
        io::ErrorKind::UnexpectedEof => ends_early(),
        io::ErrorKind::OutOfMemory => {
            DecodeError::new(format!("needs more than {MEMORY_LIMIT} bytes of memory"))
        }
        io::ErrorKind::Unsupported => {
            DecodeError::new("has a filter or an option that is not supported")
        }
        _ if stream.streams_started() == 0 => DecodeError::new("not an xz stream"),
        _ => DecodeError::new("not a valid xz stream"),
    }
}

#[cfg(all(test, feature = "xz"))]
mod tests {
    use liblzma::stream::{Check, Filters, LzmaOptions, Stream};

    use super::*;
    use crate::codec::Bcj;

    /// What an encoder of an image writes, with any filter and check.
    fn encode(input: &[u8], filter: Option<Bcj>, dict_size: u32, check: Check) -> Vec<u8> {
        let mut options = LzmaOptions::new_preset(6).unwrap();
        options.dict_size(dict_size);
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
        let mut stream = Stream::new_stream_encoder(&chain, check).unwrap();
        let mut out = vec![0; input.len() + 1000];
        let finish = liblzma::stream::Action::Finish;
        stream.process(input, &mut out, finish).unwrap();
        out.truncate(usize::try_from(stream.total_out()).unwrap());
        out
    }

    /// The code of this program: it has jumps that the filters change.
    fn code() -> Vec<u8> {
        let program = std::fs::read("/proc/self/exe").unwrap();
        program[1 << 20..][..100_000].to_vec()
    }

    #[test]
    fn every_filter_and_check_is_undone() {
        let code = code();
        let filters = Bcj::ALL.into_iter().map(Some).chain([None]);
        for filter in filters {
            for check in [Check::None, Check::Crc32, Check::Crc64, Check::Sha256] {
                for len in [1, 4, 99, 100_000] {
                    let stream = encode(&code[..len], filter, 1 << 20, check);
                    let mut out = vec![0; len];
                    let found = Decoder.decode(&stream, &mut out);
                    assert_eq!(found, Ok(len), "{filter:?}, {len} bytes");
                    assert!(out == code[..len], "{filter:?}, {len} bytes");
                    let e = Decoder.decode(&stream, &mut out[1..]).unwrap_err();
                    let expected = format!("decodes to more than {} bytes", len - 1);
                    assert_eq!(e.reason, expected, "{filter:?}");
                }
            }
        }
    }
}
