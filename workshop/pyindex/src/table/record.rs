use std::borrow::Cow;

/// What only the file that is chosen is asked for: its name, where it is, and its digests. Nothing in it is compared.
///
/// A record is two bytes of flags and what they say is there, in the order of the fields. Numbers are in groups of seven
/// bits (LEB128), and each text has its length before it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Record<'a> {
    /// The whole name, of files whose name does not follow from the project, the version and the tail.
    pub(crate) name: Option<Cow<'a, str>>,
    /// How the project is spelled otherwise: the number of the distinct text.
    pub(crate) stem: u32,
    /// What the URL begins with: the number of the distinct text.
    pub(crate) prefix: u32,
    pub(crate) path: Path<'a>,
    /// Whether the name ends the URL.
    pub(crate) name_ends_url: bool,
    pub(crate) size: Option<u64>,
    /// In microseconds since 1970.
    pub(crate) uploaded: Option<i64>,
    pub(crate) sha256: Option<[u8; 32]>,
    pub(crate) metadata_sha256: Option<[u8; 32]>,
    /// `algorithm=digest`, of files that have no SHA-256.
    pub(crate) other_digest: Option<Cow<'a, str>>,
    pub(crate) reason: Option<Cow<'a, str>>,
}

/// What the URL has between its prefix and the name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Path<'a> {
    /// `01/23/4567…/`: 64 hexadecimal digits, two directories of two.
    Tree([u8; 32]),
    /// `0123…/`: a directory of 64 hexadecimal digits.
    Flat([u8; 32]),
    Text(Cow<'a, str>),
}

impl Default for Path<'_> {
    fn default() -> Self {
        Self::Text(Cow::Borrowed(""))
    }
}

const NAMED: u16 = 1;
const SIZE: u16 = 2;
const UPLOADED: u16 = 4;
const SHA256: u16 = 8;
const METADATA_SHA256: u16 = 16;
const OTHER_DIGEST: u16 = 32;
const REASON: u16 = 64;
const TREE: u16 = 128;
const FLAT: u16 = 256;
const NAME_ENDS_URL: u16 = 512;

/// In the order of docs/pyindex.md.
#[cfg(test)]
pub(crate) const FLAGS: [u16; 10] = [
    NAMED,
    SIZE,
    UPLOADED,
    SHA256,
    METADATA_SHA256,
    OTHER_DIGEST,
    REASON,
    TREE,
    FLAT,
    NAME_ENDS_URL,
];

impl<'a> Record<'a> {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let mut flags = 0;
        for (flag, there) in [
            (NAMED, self.name.is_some()),
            (SIZE, self.size.is_some()),
            (UPLOADED, self.uploaded.is_some()),
            (SHA256, self.sha256.is_some()),
            (METADATA_SHA256, self.metadata_sha256.is_some()),
            (OTHER_DIGEST, self.other_digest.is_some()),
            (REASON, self.reason.is_some()),
            (TREE, matches!(self.path, Path::Tree(_))),
            (FLAT, matches!(self.path, Path::Flat(_))),
            (NAME_ENDS_URL, self.name_ends_url),
        ] {
            if there {
                flags |= flag;
            }
        }
        out.extend(flags.to_le_bytes());
        match &self.name {
            Some(name) => text(out, name),
            None => number(out, self.stem.into()),
        }
        number(out, self.prefix.into());
        match &self.path {
            Path::Tree(digest) | Path::Flat(digest) => out.extend(digest),
            Path::Text(path) => text(out, path),
        }
        if let Some(size) = self.size {
            number(out, size);
        }
        if let Some(uploaded) = self.uploaded {
            out.extend(uploaded.to_le_bytes());
        }
        for digest in [self.sha256, self.metadata_sha256].into_iter().flatten() {
            out.extend(digest);
        }
        for rest in [&self.other_digest, &self.reason].into_iter().flatten() {
            text(out, rest);
        }
    }

    /// None if the bytes are no record.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Self> {
        let mut rest = Reader(bytes);
        let flags = u16::from_le_bytes(rest.array()?);
        let has = |flag| flags & flag != 0;
        let mut record = Self::default();
        if has(NAMED) {
            record.name = Some(rest.text()?);
        } else {
            record.stem = u32::try_from(rest.number()?).ok()?;
        }
        record.prefix = u32::try_from(rest.number()?).ok()?;
        record.path = if has(TREE) {
            Path::Tree(rest.array()?)
        } else if has(FLAT) {
            Path::Flat(rest.array()?)
        } else {
            Path::Text(rest.text()?)
        };
        record.name_ends_url = has(NAME_ENDS_URL);
        if has(SIZE) {
            record.size = Some(rest.number()?);
        }
        if has(UPLOADED) {
            record.uploaded = Some(i64::from_le_bytes(rest.array()?));
        }
        if has(SHA256) {
            record.sha256 = Some(rest.array()?);
        }
        if has(METADATA_SHA256) {
            record.metadata_sha256 = Some(rest.array()?);
        }
        if has(OTHER_DIGEST) {
            record.other_digest = Some(rest.text()?);
        }
        if has(REASON) {
            record.reason = Some(rest.text()?);
        }
        Some(record)
    }
}

fn number(out: &mut Vec<u8>, mut value: u64) {
    loop {
        let group = (value & 0x7F).to_le_bytes()[0];
        value >>= 7;
        if value == 0 {
            out.push(group);
            return;
        }
        out.push(group | 0x80);
    }
}

fn text(out: &mut Vec<u8>, text: &str) {
    // A length in memory fits in 64 bits.
    number(out, text.len().try_into().unwrap_or(u64::MAX));
    out.extend(text.as_bytes());
}

/// What is left to read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn number(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let [group] = self.array()?;
            let bits = u64::from(group & 0x7F);
            if bits << shift >> shift != bits {
                return None;
            }
            value |= bits << shift;
            if group & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn text(&mut self) -> Option<Cow<'a, str>> {
        let len = usize::try_from(self.number()?).ok()?;
        std::str::from_utf8(self.take(len)?).ok().map(Cow::Borrowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_no_part_of_it_is_one() {
        let whole = Record {
            name: Some("a-1.whl".into()),
            stem: 0,
            prefix: 300,
            path: Path::Tree([7; 32]),
            name_ends_url: true,
            size: Some(u64::MAX),
            uploaded: Some(-1),
            sha256: Some([1; 32]),
            metadata_sha256: Some([2; 32]),
            other_digest: Some("md5=00".into()),
            reason: Some("b\u{e4}d".into()),
        };
        let least = Record {
            stem: 5,
            ..Record::default()
        };
        let flat = Record {
            path: Path::Flat([9; 32]),
            ..Record::default()
        };
        for record in [whole, least, flat] {
            let mut bytes = Vec::new();
            record.write(&mut bytes);
            assert_eq!(Record::read(&bytes), Some(record));
            for len in 0..bytes.len() {
                assert_eq!(Record::read(&bytes[..len]), None);
            }
        }
        // A number of more than 64 bits, and one that does not end.
        assert_eq!(
            Reader(&[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 2]).number(),
            None
        );
        assert_eq!(Reader(&[0xFF; 12]).number(), None);
    }
}
