//! The record of a launch: what brisk has learned of it, in one file.
//!
//! | byte | what |
//! |---|---|
//! | 0 | `briskrec` |
//! | 8 | the version, 1 |
//! | 12 | what it was learned of: 0 image, 1 directory, 2 program |
//! | 13 | the state: 0 learning, 1 learned, 2 left alone because it reads little, 3 because the disk is fast |
//! | 16 | [`Known::looks`] |
//! | 20 | [`Known::again`] |
//! | 24 | [`Known::since`], in seconds |
//! | 32 | bytes that the last start asked for ahead, or all bits set |
//! | 40 | bytes that it read by itself |
//! | 48 | bytes of the name |
//! | 52 | bytes of the sample |
//! | 56 | how many documents |
//! | 64 | the name, the sample, the documents (8 bytes each), and the profile up to the end |
//!
//! Numbers are little-endian. A file that breaks this is no record: nothing is known then.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::rules::{Known, LeftAlone, State};
use crate::replay::{Sample, StartReads};

const MAGIC: [u8; 8] = *b"briskrec";
const VERSION: u32 = 1;

/// No start from the disk is known.
const NONE: u64 = u64::MAX;

/// The longest name, the longest sample, and the most documents.
const LONGEST_NAME: u32 = 4096;
const LONGEST_SAMPLE: u32 = 1 << 18;
const MOST_DOCUMENTS: u32 = 1 << 13;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Wire {
    magic: [u8; 8],
    version: U32,
    of: u8,
    state: u8,
    reserved: [u8; 2],
    looks: U32,
    again: U32,
    since: U64,
    ahead: U64,
    own: U64,
    name: U32,
    sample: U32,
    documents: U32,
    reserved_too: U32,
}

/// What a pack or a profile was learned of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LearnedOf {
    /// An image: there is a pack.
    Image,
    /// A program that was started from a directory.
    Directory,
    /// A program, wherever its files lie.
    Program,
}

/// Everything but the profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub of: LearnedOf,
    pub known: Known,
    pub last_start: Option<StartReads>,
    /// The image, the directory or the program, for people.
    pub name: PathBuf,
    /// By which a start finds out whether all is in memory. Of images there is none.
    pub sample: Option<Sample>,
    /// Digests of documents that one launch has read.
    pub documents: Vec<u64>,
}

impl Record {
    /// Reads a record, up to its profile.
    ///
    /// # Errors
    ///
    /// `InvalidData` if it is none, and what the reader says.
    pub fn read(mut from: impl Read) -> io::Result<Self> {
        let mut bytes = [0; size_of::<Wire>()];
        from.read_exact(&mut bytes)?;
        let wire: Wire = zerocopy::transmute!(bytes);
        let (name, sample, documents) = (wire.name.get(), wire.sample.get(), wire.documents.get());
        let wrong = || io::Error::from(io::ErrorKind::InvalidData);
        if wire.magic != MAGIC
            || wire.version.get() != VERSION
            || name > LONGEST_NAME
            || sample > LONGEST_SAMPLE
            || documents > MOST_DOCUMENTS
        {
            return Err(wrong());
        }
        let of = match wire.of {
            0 => LearnedOf::Image,
            1 => LearnedOf::Directory,
            2 => LearnedOf::Program,
            _ => return Err(wrong()),
        };
        let state = match wire.state {
            0 => State::Learning,
            1 => State::Learned,
            2 => State::LeftAlone(LeftAlone::Small),
            3 => State::LeftAlone(LeftAlone::Short),
            _ => return Err(wrong()),
        };
        let mut part = |len: u32| {
            let mut part = vec![0; len as usize];
            from.read_exact(&mut part).map(|()| part)
        };
        let name = PathBuf::from(OsString::from_vec(part(name)?));
        let sample = part(sample)?;
        let sample = match sample.is_empty() {
            true => None,
            false => Some(Sample::parse(&sample).ok_or_else(wrong)?),
        };
        let documents = part(documents * 8)?;
        let (documents, _) = documents.as_chunks::<8>();
        Ok(Self {
            of,
            known: Known {
                state,
                looks: wire.looks.get(),
                again: wire.again.get(),
                since: Duration::from_secs(wire.since.get()),
            },
            last_start: (wire.ahead.get() != NONE).then(|| StartReads {
                ahead: wire.ahead.get(),
                own: wire.own.get(),
            }),
            name,
            sample,
            documents: documents
                .iter()
                .map(|one| u64::from_le_bytes(*one))
                .collect(),
        })
    }

    /// The bytes that come before the profile.
    pub fn to_bytes(&self) -> Vec<u8> {
        let name = self.name.as_os_str().as_bytes();
        // A name that is too long is left out.
        let name = match name.len() <= LONGEST_NAME as usize {
            true => name,
            false => &[],
        };
        let sample = self.sample.as_ref().map_or(Vec::new(), Sample::to_bytes);
        let sample = match sample.len() <= LONGEST_SAMPLE as usize {
            true => sample,
            false => Vec::new(),
        };
        let documents = self.documents.iter().take(MOST_DOCUMENTS as usize);
        let reads = self.last_start.unwrap_or(StartReads {
            ahead: NONE,
            own: 0,
        });
        // All are bounded above.
        let len = |len: usize| U32::new(u32::try_from(len).unwrap_or(0));
        let wire = Wire {
            magic: MAGIC,
            version: U32::new(VERSION),
            of: match self.of {
                LearnedOf::Image => 0,
                LearnedOf::Directory => 1,
                LearnedOf::Program => 2,
            },
            state: match self.known.state {
                State::Learning => 0,
                State::Learned => 1,
                State::LeftAlone(LeftAlone::Small) => 2,
                State::LeftAlone(LeftAlone::Short) => 3,
            },
            reserved: [0; 2],
            looks: U32::new(self.known.looks),
            again: U32::new(self.known.again),
            since: U64::new(self.known.since.as_secs()),
            ahead: U64::new(reads.ahead),
            own: U64::new(reads.own),
            name: len(name.len()),
            sample: len(sample.len()),
            documents: len(documents.len()),
            reserved_too: U32::new(0),
        };
        let mut bytes = wire.as_bytes().to_vec();
        bytes.extend(name);
        bytes.extend(sample);
        bytes.extend(documents.flat_map(|one| one.to_le_bytes()));
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            of: LearnedOf::Program,
            known: Known {
                state: State::LeftAlone(LeftAlone::Short),
                looks: 3,
                again: 7,
                since: Duration::from_secs(1_700_000_000),
            },
            last_start: Some(StartReads { ahead: 5, own: 6 }),
            name: "/usr/bin/app".into(),
            sample: Sample::parse(b"7\x000 /x\0- /y\0"),
            documents: vec![1, u64::MAX],
        }
    }

    #[test]
    fn a_record_is_what_was_written_and_stops_before_the_profile() {
        let written = [&record().to_bytes()[..], b"profile"].concat();
        let mut from = &written[..];
        let read = Record::read(&mut from).expect("a record");
        assert_eq!((read, from), (record(), &b"profile"[..]));
        let plain = Record {
            of: LearnedOf::Image,
            last_start: None,
            sample: None,
            documents: Vec::new(),
            ..record()
        };
        let read = Record::read(&plain.to_bytes()[..]).expect("a record");
        assert_eq!(read, plain);
    }

    #[test]
    fn what_is_damaged_or_of_another_version_is_no_record() {
        let good = record().to_bytes();
        for len in 0..good.len() {
            assert!(Record::read(&good[..len]).is_err(), "{len}");
        }
        for (at, byte) in [
            (0, b'x'),
            (8, 2),
            (12, 3),
            (13, 4),
            (51, 1),
            (55, 1),
            (59, 1),
        ] {
            let mut bad = good.clone();
            bad[at] = byte;
            assert!(Record::read(&bad[..]).is_err(), "{at}");
        }
        // Any other byte changes what is known, and nothing fails or takes more room than the file has.
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut other = good.clone();
                other[at] ^= 1 << bit;
                Record::read(&other[..]).ok();
            }
        }
    }
}
