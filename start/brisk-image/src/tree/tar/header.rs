//! One header block of a tar archive, in any of the formats that write one.

use crate::error::Result;

/// Bytes of a header, and what contents are padded to a multiple of.
pub(super) const BLOCK: usize = 512;

/// A header block whose checksum is right; its fields may still hold anything.
///
/// The fields stand where the `tar` crate has them. Their values are taken here: that crate reads
/// a negative number as a large one, drops the high bytes of a number that is too large, and takes
/// headers with a version other than `00` for ones without a prefix.
pub(super) struct TarHeader {
    raw: tar::Header,
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// Without a magic number: names of 100 bytes, no devices.
    V7,
    /// POSIX 1988, and PAX, which is this with extended headers.
    Ustar,
    /// The format of GNU tar before PAX.
    Gnu,
}

/// Where a number may stand in a header.
#[derive(Debug, Clone, Copy)]
pub(super) enum Field {
    Mode,
    Uid,
    Gid,
    Size,
    Mtime,
    DeviceMajor,
    DeviceMinor,
    /// Bytes of a GNU sparse file with its holes.
    RealSize,
}

impl Field {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Mode => "mode",
            Self::Uid => "user",
            Self::Gid => "group",
            Self::Size => "size",
            Self::Mtime => "modification time",
            Self::DeviceMajor => "major device number",
            Self::DeviceMinor => "minor device number",
            Self::RealSize => "size with holes",
        }
    }
}

/// A piece of an old GNU sparse file as it stands in a header: offset and length.
pub(super) type RawPiece<'a> = (&'a [u8], &'a [u8]);

impl TarHeader {
    /// The header in `block`, or none if its checksum is wrong.
    pub(super) fn parse(block: &[u8; BLOCK]) -> Option<Self> {
        let mut raw = tar::Header::new_old();
        raw.as_mut_bytes().copy_from_slice(block);
        let stored = number(&raw.as_old().cksum)?;
        // The sum is taken as if its own field were blank. Old programs added signed bytes.
        let field = raw.as_old().cksum;
        let sum = |value: fn(u8) -> i128| {
            let all: i128 = block.iter().copied().map(value).sum();
            let own: i128 = field.iter().copied().map(value).sum();
            all - own + 8 * i128::from(b' ')
        };
        if stored != sum(i128::from) && stored != sum(|b| i128::from(b.cast_signed())) {
            return None;
        }
        let format = match &block[257..265] {
            b"ustar  \0" => Format::Gnu,
            magic if magic.starts_with(b"ustar") => Format::Ustar,
            _ => Format::V7,
        };
        if format == Format::Ustar {
            // No reader looks at the version but the crate.
            raw.as_mut_bytes()[257..265].copy_from_slice(b"ustar\x0000");
        }
        Some(Self { raw, format })
    }

    pub(super) fn format(&self) -> Format {
        self.format
    }

    /// The byte that says what the entry is.
    pub(super) fn type_byte(&self) -> u8 {
        self.raw.as_old().linkflag[0]
    }

    pub(super) fn name(&self) -> Vec<u8> {
        let name = until_nul(&self.raw.as_old().name);
        match self.raw.as_ustar().map(|ustar| until_nul(&ustar.prefix)) {
            None | Some([]) => name.to_vec(),
            Some(prefix) => [prefix, b"/", name].concat(),
        }
    }

    pub(super) fn link_name(&self) -> &[u8] {
        until_nul(&self.raw.as_old().linkname)
    }

    /// The bytes of a field; empty if this format does not have it.
    pub(super) fn field(&self, field: Field) -> &[u8] {
        let old = self.raw.as_old();
        match field {
            Field::Mode => &old.mode,
            Field::Uid => &old.uid,
            Field::Gid => &old.gid,
            Field::Size => &old.size,
            Field::Mtime => &old.mtime,
            Field::DeviceMajor => match (self.raw.as_ustar(), self.raw.as_gnu()) {
                (Some(ustar), _) => &ustar.dev_major,
                (_, Some(gnu)) => &gnu.dev_major,
                _ => &[],
            },
            Field::DeviceMinor => match (self.raw.as_ustar(), self.raw.as_gnu()) {
                (Some(ustar), _) => &ustar.dev_minor,
                (_, Some(gnu)) => &gnu.dev_minor,
                _ => &[],
            },
            Field::RealSize => self.raw.as_gnu().map_or(&[], |gnu| &gnu.realsize),
        }
    }

    /// The pieces of an old GNU sparse file that stand in this header, and whether blocks of more
    /// follow it.
    pub(super) fn sparse_pieces(&self) -> (Vec<RawPiece<'_>>, bool) {
        match self.raw.as_gnu() {
            Some(gnu) => (raw_pieces(&gnu.sparse), gnu.isextended[0] != 0),
            None => (Vec::new(), false),
        }
    }
}

/// Gives `each` the pieces in a block that follows the header of an old GNU sparse file, and
/// returns whether one more such block follows.
pub(super) fn more_sparse_pieces(
    block: &[u8; BLOCK],
    mut each: impl FnMut(RawPiece<'_>) -> Result<()>,
) -> Result<bool> {
    let mut more = tar::GnuExtSparseHeader::new();
    more.as_mut_bytes().copy_from_slice(block);
    raw_pieces(&more.sparse)
        .into_iter()
        .try_for_each(&mut each)?;
    Ok(more.isextended[0] != 0)
}

/// The pieces up to the first that is blank.
fn raw_pieces(pieces: &[tar::GnuSparseHeader]) -> Vec<RawPiece<'_>> {
    pieces
        .iter()
        .take_while(|piece| piece.numbytes[0] != 0)
        .map(|piece| (piece.offset.as_slice(), piece.numbytes.as_slice()))
        .collect()
}

/// The number in a field of at most 12 bytes: octal digits, or GNU's base 256, which may be
/// negative. A blank field is 0.
pub(super) fn number(field: &[u8]) -> Option<i128> {
    match field {
        [first @ (0x80 | 0xff), rest @ ..] => {
            let sign = if *first == 0xff { -1 } else { 0 };
            // At most 11 bytes of 8 bits.
            Some(
                rest.iter()
                    .fold(sign, |number, &byte| number << 8 | i128::from(byte)),
            )
        }
        _ => {
            let digits = field.trim_ascii_start();
            let end = digits
                .iter()
                .position(|byte| !matches!(byte, b'0'..=b'7'))
                .unwrap_or(digits.len());
            let (digits, rest) = digits.split_at(end);
            // What follows the NUL after a number is not looked at, as no tar does; a field that
            // starts with NUL is blank only if nothing else is in it.
            let ends = match rest {
                [] => true,
                [0, ..] if digits.is_empty() => rest.iter().all(|byte| *byte == 0),
                [first, ..] => matches!(first, 0 | b' '),
            };
            // At most 12 digits of 3 bits.
            ends.then(|| {
                digits
                    .iter()
                    .fold(0, |number, &digit| number << 3 | i128::from(digit - b'0'))
            })
        }
    }
}

fn until_nul(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        for (field, value) in [
            (b"0000644\0".as_slice(), Some(0o644)),
            (b"   644 \0", Some(0o644)),
            (b"00000644", Some(0o644)),
            (b"644\0junk", Some(0o644)),
            (b"\0\0\0\0", Some(0)),
            (b"    ", Some(0)),
            (b"", Some(0)),
            (b"777777777777", Some(0o777_777_777_777)),
            (b"\x80\0\0\x01\0\0\0\0", Some(1 << 32)),
            (b"\xff\xff\xff\xff\xff\xff\xff\xfe", Some(-2)),
            (
                b"\x80\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
                Some((1 << 88) - 1),
            ),
            (b"648\0", None),
            (b"-1\0", None),
            (b"\x00001\0", None),
            (b"+AAAA\0", None),
            (b"0x10\0", None),
        ] {
            assert_eq!(number(field), value, "{}", field.escape_ascii());
        }
    }

    #[test]
    fn a_prefix_counts_whatever_the_version() {
        for version in [b"00", b"\0\0", b"  "] {
            let mut raw = tar::Header::new_ustar();
            raw.as_mut_bytes()[..4].copy_from_slice(b"name");
            raw.as_mut_bytes()[263..265].copy_from_slice(version);
            raw.as_mut_bytes()[345..348].copy_from_slice(b"dir");
            raw.set_cksum();
            let header = TarHeader::parse(raw.as_bytes()).unwrap();
            assert_eq!(header.format(), Format::Ustar);
            assert_eq!(header.name(), b"dir/name");
        }
    }

    #[test]
    fn sums_of_signed_bytes_are_sums() {
        let mut raw = tar::Header::new_gnu();
        raw.as_mut_bytes()[0] = 0xe9;
        raw.set_cksum();
        assert!(TarHeader::parse(raw.as_bytes()).is_some());
        let unsigned = number(&raw.as_old().cksum).unwrap();
        let signed = format!("{:06o}\0 ", unsigned - 256);
        raw.as_mut_bytes()[148..156].copy_from_slice(signed.as_bytes());
        assert!(TarHeader::parse(raw.as_bytes()).is_some());
        raw.as_mut_bytes()[0] = 0xe8;
        assert!(TarHeader::parse(raw.as_bytes()).is_none());
    }
}
