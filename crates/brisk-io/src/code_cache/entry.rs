//! The bytes of an entry: `docs/code-cache-format.md` describes them.

use std::fmt;
use std::fs::File;
use std::io;
use std::mem::{offset_of, size_of};

use twox_hash::XxHash3_64;

use crate::ReadAt;

pub(super) const VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"briskcod";

/// A multiple of every page size, so that the content can be mapped on every machine.
pub(super) const ALIGNMENT: u64 = 64 << 10;

/// The content is checked in pieces of this many bytes.
pub(super) const CHUNK: usize = 64 << 10;

/// The most bytes of content. It limits the table of checksums to 8 MiB.
const MOST_CONTENT: u64 = 64 << 30;

/// Set if the content was on the disk before the entry had a name.
const SYNCED: u32 = 1;

const HEADER_LEN: usize = size_of::<Wire>();

/// The header. Numbers are little-endian.
#[repr(C)]
struct Wire {
    magic: [u8; 8],
    version: [u8; 4],
    flags: [u8; 4],
    key_len: [u8; 4],
    chunk_len: [u8; 4],
    content_start: [u8; 8],
    content_len: [u8; 8],
    table_checksum: [u8; 8],
    header_checksum: [u8; 8],
}

/// What is wrong with an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    at: u64,
    field: &'static str,
    found: String,
    allowed: String,
}

impl Damage {
    pub(super) fn new(
        at: u64,
        field: &'static str,
        found: impl fmt::Display,
        allowed: impl fmt::Display,
    ) -> Self {
        Self {
            at,
            field,
            found: found.to_string(),
            allowed: allowed.to_string(),
        }
    }

    fn checksum(at: u64, field: &'static str, found: u64, allowed: u64) -> Self {
        Self::new(
            at,
            field,
            format_args!("{found:016x}"),
            format_args!("{allowed:016x}"),
        )
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            at,
            field,
            found,
            allowed,
        } = self;
        write!(
            f,
            "damaged entry at byte {at}: {field} is {found}, allowed is {allowed}; generate the code again"
        )
    }
}

impl std::error::Error for Damage {}

/// Why an entry cannot be used.
#[derive(Debug)]
pub(super) enum Unusable {
    Damaged(Damage),
    Foreign,
    Io(io::Error),
}

impl From<Damage> for Unusable {
    fn from(damage: Damage) -> Self {
        Self::Damaged(damage)
    }
}

impl From<io::Error> for Unusable {
    fn from(e: io::Error) -> Self {
        Self::Io(e)
    }
}

/// A header whose fields agree with each other and with the length of the file.
///
/// 1. `content_start` is a multiple of [`ALIGNMENT`], and the header, the key and a checksum for each chunk
///    fit before it.
/// 2. `content_start + content_len` is the length of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Header {
    synced: bool,
    key_len: u32,
    content_start: u64,
    content_len: u64,
    table_checksum: u64,
}

impl Header {
    fn parse(bytes: &[u8; HEADER_LEN], file_len: u64) -> Result<Self, Damage> {
        macro_rules! field {
            ($number:ty, $name:ident) => {{
                const AT: usize = offset_of!(Wire, $name);
                let mut raw = [0; size_of::<$number>()];
                raw.copy_from_slice(&bytes[AT..AT + size_of::<$number>()]);
                (AT as u64, stringify!($name), <$number>::from_le_bytes(raw))
            }};
        }
        let expect = |(at, name, found): (u64, &'static str, u64), allowed: u64| {
            if found == allowed {
                return Ok(());
            }
            Err(Damage::new(at, name, found, allowed))
        };
        if !bytes.starts_with(&MAGIC) {
            let found = bytes[..8].escape_ascii();
            return Err(Damage::new(0, "magic", found, MAGIC.escape_ascii()));
        }
        let (at, name, allowed) = field!(u64, header_checksum);
        let found = XxHash3_64::oneshot(&bytes[..offset_of!(Wire, header_checksum)]);
        if found != allowed {
            return Err(Damage::checksum(at, name, found, allowed));
        }
        // From here on it may be an entry that another version of the program wrote.
        let (at, name, version) = field!(u32, version);
        expect((at, name, version.into()), VERSION.into())?;
        let (at, name, chunk_len) = field!(u32, chunk_len);
        expect((at, name, chunk_len.into()), CHUNK as u64)?;
        let (_, _, key_len) = field!(u32, key_len);
        let (at, name, content_len) = field!(u64, content_len);
        if content_len > MOST_CONTENT {
            let allowed = format_args!("at most {MOST_CONTENT}");
            return Err(Damage::new(at, name, content_len, allowed));
        }
        let (at, name, content_start) = field!(u64, content_start);
        expect((at, name, content_start), start_of(key_len, content_len))?;
        expect(
            (0, "the length of the file", file_len),
            content_start + content_len,
        )?;
        let (at, name, flags) = field!(u32, flags);
        if flags & !SYNCED != 0 {
            let allowed = format_args!("0 or {SYNCED}");
            return Err(Damage::new(at, name, flags, allowed));
        }
        let (_, _, table_checksum) = field!(u64, table_checksum);
        Ok(Self {
            synced: flags & SYNCED != 0,
            key_len,
            content_start,
            content_len,
            table_checksum,
        })
    }

    fn encode(self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        macro_rules! put {
            ($name:ident, $value:expr) => {{
                let value = $value;
                bytes[offset_of!(Wire, $name)..][..value.len()].copy_from_slice(&value);
            }};
        }
        put!(magic, MAGIC);
        put!(version, VERSION.to_le_bytes());
        put!(flags, if self.synced { SYNCED } else { 0 }.to_le_bytes());
        put!(key_len, self.key_len.to_le_bytes());
        put!(chunk_len, (CHUNK as u32).to_le_bytes());
        put!(content_start, self.content_start.to_le_bytes());
        put!(content_len, self.content_len.to_le_bytes());
        put!(table_checksum, self.table_checksum.to_le_bytes());
        let checksum = XxHash3_64::oneshot(&bytes[..offset_of!(Wire, header_checksum)]);
        put!(header_checksum, checksum.to_le_bytes());
        bytes
    }
}

/// Where content of this length begins after a key of that length. [`MOST_CONTENT`] limits the content.
fn start_of(key_len: u32, content_len: u64) -> u64 {
    let chunks = content_len.div_ceil(CHUNK as u64);
    (HEADER_LEN as u64 + u64::from(key_len) + chunks * 8).next_multiple_of(ALIGNMENT)
}

/// The position of an entry's content, and its checksums.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) synced: bool,
    pub(super) content_start: u64,
    pub(super) content_len: u64,
    checksums: Vec<u64>,
}

impl Entry {
    /// The bytes before the content, in a file with this key.
    pub(super) fn head_of(key: &[u8], content: &[u8], synced: bool) -> io::Result<Vec<u8>> {
        // Lengths of slices fit an i64, and keys are limited.
        let (key_len, content_len) = (key.len() as u32, content.len() as u64);
        if content_len > MOST_CONTENT {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("code of {content_len} bytes, allowed are {MOST_CONTENT}"),
            ));
        }
        let mut table = key.to_vec();
        for chunk in content.chunks(CHUNK) {
            table.extend(XxHash3_64::oneshot(chunk).to_le_bytes());
        }
        let header = Header {
            synced,
            key_len,
            content_start: start_of(key_len, content_len),
            content_len,
            table_checksum: XxHash3_64::oneshot(&table),
        };
        let mut head = header.encode().to_vec();
        head.append(&mut table);
        head.resize(header.content_start as usize, 0);
        Ok(head)
    }

    /// Reads everything before the content of `file`, if it is the entry of this key.
    pub(super) fn read(file: &File, key: &[u8]) -> Result<Self, Unusable> {
        let file_len = ReadAt::size(file)?;
        let mut header = [0; HEADER_LEN];
        if file_len < HEADER_LEN as u64 {
            let allowed = format_args!("at least {HEADER_LEN}");
            return Err(Damage::new(0, "the length of the file", file_len, allowed).into());
        }
        file.read_exact_at(0, &mut header)?;
        let header = Header::parse(&header, file_len)?;
        if header.key_len as usize != key.len() {
            return Err(Unusable::Foreign);
        }
        let chunks = header.content_len.div_ceil(CHUNK as u64) as usize;
        // By invariant 1 the file has this many, and by `MOST_CONTENT` they are few.
        let mut table = vec![0; key.len() + chunks * 8];
        file.read_exact_at(HEADER_LEN as u64, &mut table)?;
        let found = XxHash3_64::oneshot(&table);
        if found != header.table_checksum {
            let at = offset_of!(Wire, table_checksum) as u64;
            return Err(
                Damage::checksum(at, "table_checksum", found, header.table_checksum).into(),
            );
        }
        let (found, checksums) = table.split_at(key.len());
        if found != key {
            return Err(Unusable::Foreign);
        }
        let (checksums, _) = checksums.as_chunks::<8>();
        Ok(Self {
            synced: header.synced,
            content_start: header.content_start,
            content_len: header.content_len,
            checksums: checksums.iter().copied().map(u64::from_le_bytes).collect(),
        })
    }

    pub(super) fn chunks(&self) -> usize {
        self.checksums.len()
    }

    /// Compares a chunk with its checksum from when it was written.
    pub(super) fn check(&self, number: usize, chunk: &[u8]) -> Result<(), Damage> {
        let found = XxHash3_64::oneshot(chunk);
        let allowed = self.checksums[number];
        if found == allowed {
            return Ok(());
        }
        let at = self.content_start + number as u64 * CHUNK as u64;
        Err(Damage::checksum(
            at,
            "the checksum of a chunk",
            found,
            allowed,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../docs/code-cache-format.md");

    #[test]
    fn the_page_has_the_offsets_of_the_code() {
        let mut rows = String::new();
        macro_rules! row {
            ($($field:ident: $len:expr),* $(,)?) => {
                $(
                    rows += &format!(
                        "| {} | {} | {} |\n", offset_of!(Wire, $field), $len, stringify!($field)
                    );
                )*
            };
        }
        row! {
            magic: 8, version: 4, flags: 4, key_len: 4, chunk_len: 4, content_start: 8, content_len: 8,
            table_checksum: 8, header_checksum: 8,
        }
        assert!(PAGE.contains(&format!("|---|---|---|\n{rows}\n")), "{rows}");
        for constant in [
            format!("`magic` is `{}`", MAGIC.escape_ascii()),
            format!("`version` is {VERSION}"),
            format!("{HEADER_LEN} bytes"),
            format!("`chunk_len` is {CHUNK}"),
            format!("multiple of {ALIGNMENT} behind the checksums"),
            format!("at most {} GiB", MOST_CONTENT >> 30),
            format!("| {SYNCED} | the content was on the disk"),
        ] {
            assert!(PAGE.contains(&constant), "{constant}");
        }
    }

    #[test]
    fn a_header_must_agree_with_itself_and_with_the_file() {
        let right = Header {
            synced: true,
            key_len: 100,
            content_start: ALIGNMENT,
            content_len: 1000,
            table_checksum: 5,
        };
        let len = ALIGNMENT + 1000;
        assert_eq!(Header::parse(&right.encode(), len), Ok(right));

        let message =
            |header: &[u8; HEADER_LEN], len| Header::parse(header, len).unwrap_err().to_string();
        let again = "; generate the code again";
        assert_eq!(
            message(&right.encode(), len - 1),
            "damaged entry at byte 0: the length of the file is 66535, allowed is 66536; generate the code again"
        );
        for (wrong, expected) in [
            (
                Header {
                    content_start: 2 * ALIGNMENT,
                    ..right
                },
                "damaged entry at byte 24: content_start is 131072, allowed is 65536",
            ),
            (
                Header {
                    key_len: 65_536,
                    ..right
                },
                "damaged entry at byte 24: content_start is 65536, allowed is 131072",
            ),
            (
                Header {
                    content_len: u64::MAX,
                    ..right
                },
                "damaged entry at byte 32: content_len is 18446744073709551615, allowed is at most 68719476736",
            ),
        ] {
            assert_eq!(message(&wrong.encode(), len), format!("{expected}{again}"));
        }

        // Fields that a writer cannot get wrong.
        let with = |at: usize, byte: u8| {
            let mut header = right.encode();
            header[at] = byte;
            let sum = XxHash3_64::oneshot(&header[..HEADER_LEN - 8]);
            header[HEADER_LEN - 8..].copy_from_slice(&sum.to_le_bytes());
            message(&header, len)
        };
        assert_eq!(
            with(0, b'B'),
            format!("damaged entry at byte 0: magic is Briskcod, allowed is briskcod{again}")
        );
        assert_eq!(
            with(8, 2),
            format!("damaged entry at byte 8: version is 2, allowed is 1{again}")
        );
        assert_eq!(
            with(22, 2),
            format!("damaged entry at byte 20: chunk_len is 131072, allowed is 65536{again}")
        );
        let mut header = right.encode();
        header[17] ^= 1;
        assert!(message(&header, len).starts_with("damaged entry at byte 48: header_checksum is "),);
    }
}
