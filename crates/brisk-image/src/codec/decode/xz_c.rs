//! xz streams: one LZMA2 block each, with a CRC32, by liblzma.

use liblzma::stream::{Action, Error as Xz, Status, Stream};

use super::MEMORY_LIMIT;
use super::library::{Decode, DecodeError};

pub(super) struct Decoder;

impl Decode for Decoder {
    fn decode(&mut self, input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
        decode(input, out)
    }
}

fn decode(input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
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

#[cfg(test)]
mod tests {
    use liblzma::stream::{Check, Filters, LzmaOptions};

    use super::*;

    fn encode(input: &[u8], dict_size: u32) -> Vec<u8> {
        let mut options = LzmaOptions::new_preset(6).unwrap();
        options.dict_size(dict_size);
        let mut chain = Filters::new();
        chain.lzma2(&options);
        let mut stream = Stream::new_stream_encoder(&chain, Check::Crc32).unwrap();
        let mut out = vec![0; input.len()];
        stream.process(input, &mut out, Action::Finish).unwrap();
        out.truncate(usize::try_from(stream.total_out()).unwrap());
        out
    }

    #[test]
    fn says_what_is_wrong() {
        let reason = |input: &[u8], room| decode(input, &mut vec![0; room]).unwrap_err().reason;
        let stream = encode(&[7; 5000], 8192);
        assert_eq!(reason(&stream, 4999), "decodes to more than 4999 bytes");
        let longer = [&stream[..], &[0; 4]].concat();
        assert_eq!(reason(&longer, 5000), "goes on behind its end");
        let twice = [&stream[..], &stream[..]].concat();
        assert_eq!(reason(&twice, 10_000), "goes on behind its end");
        let cut = &stream[..stream.len() - 1];
        assert_eq!(reason(cut, 5000), "ends before its end");
        assert_eq!(reason(&[], 5000), "ends before its end");
        assert_eq!(reason(&[0; 64], 5000), "not an xz stream");
        let mut damaged = stream.clone();
        damaged[14] ^= 1; // in the block header, which has a checksum of its own
        assert_eq!(reason(&damaged, 5000), "not a valid xz stream");
    }

    /// A block of a few bytes that asks for a dictionary of 2 MiB.
    #[test]
    fn a_large_dictionary_is_refused_before_it_is_allocated() {
        let stream = |dict_size| encode(&[9; 200], dict_size);
        assert_eq!(decode(&stream(1 << 20), &mut [0; 200]), Ok(200));
        let e = decode(&stream(2 << 20), &mut [0; 200]).unwrap_err();
        assert_eq!(e.reason, "needs more than 2097152 bytes of memory");
    }
}
