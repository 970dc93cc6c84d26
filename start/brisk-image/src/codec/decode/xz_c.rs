//! xz streams: one LZMA2 block each, with a CRC32, by liblzma.

use liblzma::stream::{Action, Error as Xz, Status, Stream};

use super::library::{Decode, DecodeError};
use super::memory_limit::MEMORY_LIMIT;

pub(super) struct Decoder;

impl Decode for Decoder {
    fn decode(&mut self, input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
        let reason = |e| {
            DecodeError::new(match e {
                Xz::Format => "not an xz stream".to_owned(),
                Xz::MemLimit => format!("needs more than {MEMORY_LIMIT} bytes of memory"),
                Xz::Options => "has a filter or an option that is not supported".to_owned(),
                Xz::Mem => "there is not enough memory".to_owned(),
                _ => "not a valid xz stream".to_owned(),
            })
        };
        let mut stream = Stream::new_stream_decoder(MEMORY_LIMIT, 0).map_err(reason)?;
        let status = stream.process(input, out, Action::Finish).map_err(reason)?;
        let consumed = usize::try_from(stream.total_in()).ok();
        let decoded = usize::try_from(stream.total_out()).unwrap_or(usize::MAX);
        match status {
            Status::StreamEnd if consumed == Some(input.len()) => Ok(decoded),
            Status::StreamEnd => Err(DecodeError::new("goes on behind its end")),
            _ if consumed == Some(input.len()) => Err(DecodeError::new("ends before its end")),
            _ => Err(DecodeError::too_long(out.len())),
        }
    }
}
