//! The entries of a tar archive, one after the other, in the formats v7, ustar, PAX and GNU.
//!
//! An entry is a header block, and its contents padded to a multiple of 512 bytes. In front of it
//! may stand others that only describe it: its long name (GNU, types `L` and `K`) or records (PAX,
//! type `x`; type `g` has records for all that follow). Two blocks of zeros end the archive.
//!
//! The `tar` crate's reader is not used: it tears PAX records apart at line ends, assembles no
//! sparse file that PAX describes, and sets no bound to the length of names and records.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use super::header::{self, BLOCK, Field, Format, TarHeader, more_sparse_pieces};
use super::input::TarInput;
use super::pax_records::PaxRecords;
use super::sparse::{ContentsMap, PaxMap, SparseMap, SparsePiece};
use crate::error::{Error, Result, Unsupported};
use crate::format::inode::encode_rdev;
use crate::read::inode_reader::Device;
use crate::read::xattr_reader::Xattr;

/// Bytes of a long name or of an extended header at most.
const MAX_EXTENSION: u64 = 1 << 20;

/// Bytes of a path at most: what Linux takes, without the NUL.
const MAX_PATH: usize = 4095;

/// Bytes of a name that are shown in a message.
const MAX_SHOWN: usize = 256;

/// A name in an archive, from the root of the tree: `a/b`, and empty for the root.
///
/// No component is empty, `.` or `..`, or holds NUL; all together are at most 4095 bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TarPath(Vec<u8>);

impl TarPath {
    /// The path that `name` means; what is wrong with it goes behind "entry ... ".
    fn new(name: &[u8]) -> Result<Self, String> {
        if name.is_empty() {
            return Err("has no name; leave it out of the archive".into());
        }
        if name.contains(&0) {
            return Err("has a NUL in its name; rename it".into());
        }
        let mut path = Vec::with_capacity(name.len());
        for component in name.split(|byte| *byte == b'/') {
            match component {
                b"" | b"." => {}
                b".." => {
                    return Err(
                        "leaves the tree by \"..\" in its name; archive it from the directory above"
                            .into(),
                    );
                }
                _ => {
                    if !path.is_empty() {
                        path.push(b'/');
                    }
                    path.extend_from_slice(component);
                }
            }
        }
        if path.len() > MAX_PATH {
            return Err(format!(
                "has a path of {} bytes, allowed is at most {MAX_PATH}; archive it from a directory nearer to it",
                path.len()
            ));
        }
        Ok(Self(path))
    }

    /// The names of the directories above, and the last name; none for the root.
    pub(super) fn split(&self) -> Option<(impl Iterator<Item = &[u8]>, &[u8])> {
        let mut parents = self.0.split(|byte| *byte == b'/');
        let name = parents.next_back().filter(|name| !name.is_empty())?;
        Some((parents, name))
    }

    pub(super) fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(&self.0)
    }
}

/// Where an entry is, for messages: its name, and the byte of its header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TarPosition {
    name: Vec<u8>,
    byte: u64,
}

impl fmt::Display for TarPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.name[..self.name.len().min(MAX_SHOWN)];
        let more = if shown.len() < self.name.len() {
            "..."
        } else {
            ""
        };
        write!(
            f,
            "entry {:?}{more} at byte {} of the archive",
            OsStr::from_bytes(shown),
            self.byte
        )
    }
}

impl TarPosition {
    /// The error that the entry `why` ("has no name").
    pub(super) fn refuse(&self, why: impl fmt::Display) -> Error {
        Error::input(format!("{self} {why}"))
    }

    fn unsupported(&self, why: impl fmt::Display) -> Error {
        Error::unsupported(Unsupported::Other(format!("{self} {why}")))
    }
}

/// An entry whose fields are checked, with its contents kept.
pub(super) struct TarEntry {
    pub(super) position: TarPosition,
    pub(super) path: TarPath,
    /// Whether the name started with `/`.
    pub(super) absolute: bool,
    pub(super) kind: TarKind,
    pub(super) permissions: u16,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Seconds since 1970.
    pub(super) mtime: i64,
    pub(super) xattrs: Vec<Xattr>,
}

#[cfg(feature = "layers")]
impl TarEntry {
    /// Bytes of its names, attributes and segments.
    pub(super) fn metadata(&self) -> u64 {
        let other = match &self.kind {
            TarKind::File { segments, .. } => size_of_val(segments.as_slice()),
            TarKind::HardLink(target) => target.0.len(),
            TarKind::Symlink(target) => target.len(),
            _ => 0,
        };
        let xattrs = self.xattrs.iter();
        let xattrs = xattrs.map(|xattr| xattr.name().len() + xattr.value().len());
        (self.position.name.len() + self.path.0.len() + other + xattrs.sum::<usize>()) as u64
    }
}

pub(super) enum TarKind {
    Directory,
    File {
        len: u64,
        segments: Vec<Segment>,
    },
    /// Another name of what is at a path.
    HardLink(TarPath),
    Symlink(Box<[u8]>),
    BlockDevice(Device),
    CharDevice(Device),
    Fifo,
}

/// A piece of a file, and where it was kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment {
    pub(super) piece: SparsePiece,
    pub(super) at: u64,
}

/// Reads the entries of an archive.
pub(super) struct TarReader<I> {
    input: I,
    /// Bytes that were read or passed.
    position: u64,
    /// What holds for all entries that follow.
    global: PaxRecords,
    /// Whether an extended header was seen.
    is_pax: bool,
    /// Bytes behind the end of the archive that are not zeros.
    trailing: bool,
    /// Whether the archive may end without padding and blocks of zeros, as programs in Go allow. Its digest then says that it is whole.
    ends_anywhere: bool,
}

/// What stands in front of an entry and describes it.
#[derive(Default)]
struct Extensions {
    /// Where the first of them is.
    byte: Option<u64>,
    long_name: Option<Vec<u8>>,
    long_link: Option<Vec<u8>>,
    records: Option<PaxRecords>,
}

impl<I: TarInput> TarReader<I> {
    pub(super) fn new(input: I) -> Self {
        Self {
            input,
            position: 0,
            global: PaxRecords::default(),
            is_pax: false,
            trailing: false,
            ends_anywhere: false,
        }
    }

    /// Reads what a layer of a container image holds.
    #[cfg(feature = "layers")]
    pub(super) fn of_layer(input: I) -> Self {
        Self {
            ends_anywhere: true,
            ..Self::new(input)
        }
    }

    #[cfg(feature = "layers")]
    pub(super) fn input(&mut self) -> &mut I {
        &mut self.input
    }

    /// What the entries were read from, and where the archive ended if more follows that is not
    /// padding.
    pub(super) fn into_input(self) -> (I, Option<u64>) {
        (self.input, self.trailing.then_some(self.position))
    }

    /// The next entry, or none at the end of the archive.
    pub(super) fn next(&mut self) -> Result<Option<TarEntry>> {
        let mut extensions = Extensions::default();
        loop {
            let byte = self.position;
            let Some(header) = self.header()? else {
                return match extensions.byte {
                    None => Ok(None),
                    Some(byte) => Err(Error::input(format!(
                        "header at byte {byte} of the archive describes an entry that does not follow; make the archive again"
                    ))),
                };
            };
            self.is_pax |= matches!(header.type_byte(), b'x' | b'g');
            match header.type_byte() {
                b'L' | b'K' | b'x' => {
                    extensions.byte.get_or_insert(byte);
                    self.extension(byte, &header, &mut extensions)?;
                }
                b'g' => self.global_records(byte, &header)?,
                // The name of the archive.
                b'V' => {
                    let position = TarPosition {
                        name: header.name(),
                        byte,
                    };
                    let len = number(&position, &header, Field::Size)?;
                    self.pass(&position, len)?;
                    extensions = Extensions::default();
                }
                _ => return self.entry(byte, &header, extensions).map(Some),
            }
        }
    }

    /// The next header, or none at the end of the archive.
    fn header(&mut self) -> Result<Option<TarHeader>> {
        let byte = self.position;
        let mut block = [0; BLOCK];
        let n = self.read(&mut block)?;
        if self.ends_anywhere && n == 0 {
            return Ok(None);
        }
        if byte == 0 && n == 0 {
            return Err(Error::input("the archive is empty; give a tar archive"));
        }
        if n < BLOCK {
            if byte == 0 {
                return Err(not_tar(&block[..n]));
            }
            return Err(cut_off(self.position));
        }
        if block != [0; BLOCK] {
            return match TarHeader::parse(&block) {
                Some(header) => Ok(Some(header)),
                None if byte == 0 => Err(not_tar(&block)),
                None => Err(Error::input(format!(
                    "no tar header is at byte {byte} of the archive (its checksum is wrong); get another copy of the archive"
                ))),
            };
        }
        let n = self.read(&mut block)?;
        if n == BLOCK && block != [0; BLOCK] {
            return Err(Error::input(format!(
                "one block of zeros is at byte {byte} of the archive, allowed are two at its end; get another copy of the archive"
            )));
        }
        self.drain()?;
        Ok(None)
    }

    /// Reads what is left, so that what writes it can end in peace.
    fn drain(&mut self) -> Result<()> {
        let mut buf = vec![0; 64 << 10];
        loop {
            let n = self.input.read(&mut buf)?;
            self.trailing |= buf[..n].iter().any(|byte| *byte != 0);
            if n < buf.len() {
                return Ok(());
            }
        }
    }

    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        let n = self.input.read(buf)?;
        self.position += n as u64;
        Ok(n)
    }

    fn read_exact(&mut self, buf: &mut [u8]) -> Result<()> {
        match self.read(buf)? {
            n if n == buf.len() => Ok(()),
            _ => Err(cut_off(self.position)),
        }
    }

    /// Goes past `len` bytes and their padding.
    fn pass(&mut self, position: &TarPosition, len: u64) -> Result<()> {
        let padded = padded(position, len)?;
        match self.input.skip(padded)? {
            true => self.position += padded,
            false => return Err(position.refuse(cut_short(len))),
        }
        Ok(())
    }

    /// Reads the contents of a header that describes others.
    fn small(&mut self, what: &str, byte: u64, header: &TarHeader) -> Result<Vec<u8>> {
        let position = TarPosition {
            name: header.name(),
            byte,
        };
        let len: u64 = number(&position, header, Field::Size)?;
        if len > MAX_EXTENSION {
            return Err(Error::input(format!(
                "{what} at byte {byte} of the archive is {len} bytes long, allowed is at most {MAX_EXTENSION}"
            )));
        }
        // At most a mebibyte and a block.
        let mut bytes = vec![0; (len as usize).next_multiple_of(BLOCK)];
        self.read_exact(&mut bytes)?;
        bytes.truncate(len as usize);
        Ok(bytes)
    }

    fn extension(
        &mut self,
        byte: u64,
        header: &TarHeader,
        extensions: &mut Extensions,
    ) -> Result<()> {
        let twice = |what| {
            Error::input(format!(
                "{what} at byte {byte} of the archive is the second for one entry; make the archive again"
            ))
        };
        match header.type_byte() {
            b'x' => {
                let bytes = self.small("extended header", byte, header)?;
                if extensions.records.is_some() {
                    return Err(twice("extended header"));
                }
                let mut records = self.global.clone();
                records.add(&bytes).map_err(|why| bad_records(byte, &why))?;
                extensions.records = Some(records);
            }
            long => {
                let (what, slot) = match long {
                    b'L' => ("long name", &mut extensions.long_name),
                    _ => ("long link name", &mut extensions.long_link),
                };
                let mut name = self.small(what, byte, header)?;
                while name.last() == Some(&0) {
                    name.pop();
                }
                if slot.replace(name).is_some() {
                    return Err(twice(what));
                }
            }
        }
        Ok(())
    }

    fn global_records(&mut self, byte: u64, header: &TarHeader) -> Result<()> {
        let bytes = self.small("global extended header", byte, header)?;
        self.global
            .add(&bytes)
            .map_err(|why| bad_records(byte, &why))?;
        match self.global.not_global() {
            Some(key) => Err(Error::input(format!(
                "extended header at byte {byte} of the archive says {key} for all entries, allowed is that for one; make the archive again"
            ))),
            None => Ok(()),
        }
    }

    fn entry(&mut self, byte: u64, header: &TarHeader, extensions: Extensions) -> Result<TarEntry> {
        let mut records = extensions.records.unwrap_or_else(|| self.global.clone());
        let name = records.sparse.name.take().or(records.path.take());
        let name = name.or(extensions.long_name);
        let name = name.unwrap_or_else(|| header.name());
        let position = TarPosition { name, byte };
        let path = TarPath::new(&position.name).map_err(|why| position.refuse(why))?;
        let link = records.link_path.take().or(extensions.long_link);
        let link = link.unwrap_or_else(|| header.link_name().to_vec());
        let size = or_else(records.size, || number(&position, header, Field::Size))?;
        let mtime = or_else(records.mtime, || {
            let time: i128 = number(&position, header, Field::Mtime)?;
            Ok(i64::try_from(time).unwrap_or(if time < 0 { i64::MIN } else { i64::MAX }))
        })?;
        let id = |known, field| or_else(known, || number(&position, header, field));
        // The type of the file may stand in the higher bits.
        let permissions = (id(None, Field::Mode)? & 0o7777) as u16;
        let uid = id(records.uid, Field::Uid)?;
        let gid = id(records.gid, Field::Gid)?;
        let xattrs = records.take_xattrs();
        let ends_with_slash = position.name.ends_with(b"/");
        let is_sparse = records.sparse != Default::default();
        let kind = match header.type_byte() {
            b'0' | 0 | b'7' if !ends_with_slash => {
                if records.schily_size.is_some_and(|len| len != size) {
                    return Err(position.unsupported(STAR_SPARSE));
                }
                self.file(&position, &records, size)?
            }
            _ if is_sparse => {
                return Err(
                    position.refuse("is sparse but no regular file; make the archive again")
                );
            }
            b'S' if header.format() == Format::Gnu => {
                self.gnu_sparse_file(&position, header, size)?
            }
            b'S' => return Err(position.unsupported(STAR_SPARSE)),
            // The contents of a dump directory are the names of what was in it.
            b'D' => {
                self.pass(&position, size)?;
                TarKind::Directory
            }
            kind => {
                // Old writers give a hard link the size of its target, and a directory the room that it may take. GNU tar,
                // bsdtar and Python agree that no contents follow, but bsdtar not where PAX may mean them.
                let is_ignored = match kind {
                    b'1' => !self.is_pax,
                    b'5' => records.size.is_none(),
                    _ => false,
                };
                let size = if is_ignored { 0 } else { size };
                without_contents(&position, header, &records, link, size)?
            }
        };
        Ok(TarEntry {
            absolute: position.name.starts_with(b"/"),
            position,
            path,
            kind,
            permissions,
            uid,
            gid,
            mtime,
            xattrs,
        })
    }

    /// A regular file of which `size` bytes are in the archive.
    fn file(&mut self, position: &TarPosition, records: &PaxRecords, size: u64) -> Result<TarKind> {
        let map = records.sparse.map().map_err(|why| position.refuse(why))?;
        let Some((map, len)) = map else {
            // Without holes it is one piece.
            let piece = SparsePiece {
                offset: 0,
                len: size,
            };
            let pieces = if size > 0 { vec![piece] } else { Vec::new() };
            return self.contents(position, size, pieces, size);
        };
        let (map, stored) = match map {
            PaxMap::Known(map) => (map, size),
            PaxMap::InContents => {
                let mut reader = ContentsMap::default();
                let mut stored = size;
                let map = loop {
                    stored = stored.checked_sub(BLOCK as u64).ok_or_else(|| {
                        position.refuse(format_args!(
                            "has a map of holes that goes past its {size} bytes in the archive; make the archive again"
                        ))
                    })?;
                    let mut block = [0; BLOCK];
                    self.read_exact(&mut block)?;
                    if let Some(map) = reader.read(&block).map_err(|why| position.refuse(why))? {
                        break map;
                    }
                };
                (map, stored)
            }
        };
        self.sparse_file(position, len, map, stored)
    }

    fn gnu_sparse_file(
        &mut self,
        position: &TarPosition,
        header: &TarHeader,
        size: u64,
    ) -> Result<TarKind> {
        let len = number(position, header, Field::RealSize)?;
        let mut map = SparseMap::default();
        let mut push = |(offset, len): (&[u8], &[u8])| {
            let value = |bytes| header::number(bytes).and_then(|value| u64::try_from(value).ok());
            let piece = value(offset).zip(value(len)).ok_or_else(|| {
                position.refuse(format_args!(
                    "has a piece of \"{}\" bytes at its byte \"{}\", allowed are octal numbers; get another copy of the archive",
                    len.escape_ascii(),
                    offset.escape_ascii()
                ))
            })?;
            map.push(piece.0, piece.1)
                .map_err(|why| position.refuse(why))
        };
        let (pieces, mut more) = header.sparse_pieces();
        pieces.into_iter().try_for_each(&mut push)?;
        while more {
            let mut block = [0; BLOCK];
            self.read_exact(&mut block)?;
            more = more_sparse_pieces(&block, &mut push)?;
        }
        self.sparse_file(position, len, map, size)
    }

    fn sparse_file(
        &mut self,
        position: &TarPosition,
        len: u64,
        map: SparseMap,
        stored: u64,
    ) -> Result<TarKind> {
        let pieces = map
            .finish(len, stored)
            .map_err(|why| position.refuse(why))?;
        self.contents(position, len, pieces, stored)
    }

    /// Keeps the next `stored` bytes, which are `pieces` of a file of `len` bytes.
    fn contents(
        &mut self,
        position: &TarPosition,
        len: u64,
        pieces: Vec<SparsePiece>,
        stored: u64,
    ) -> Result<TarKind> {
        let padding = padded(position, stored)? - stored;
        let kept = self.input.keep(stored)?;
        let mut at = kept.ok_or_else(|| position.refuse(cut_short(stored)))?;
        if !self.input.skip(padding)? && !self.ends_anywhere {
            return Err(position.refuse(cut_short(stored)));
        }
        self.position += stored + padding;
        let segments = pieces.into_iter().map(|piece| {
            let segment = Segment { piece, at };
            at += piece.len;
            segment
        });
        Ok(TarKind::File {
            len,
            segments: segments.collect(),
        })
    }
}

/// The value of a field of `header`.
fn number<N: TryFrom<i128>>(position: &TarPosition, header: &TarHeader, field: Field) -> Result<N> {
    let bytes = header.field(field);
    let value = header::number(bytes).ok_or_else(|| {
        position.refuse(format_args!(
            "has \"{}\" as its {}, allowed is an octal number; get another copy of the archive",
            bytes.escape_ascii(),
            field.name()
        ))
    })?;
    N::try_from(value).map_err(|_| {
        position.refuse(format_args!(
            "has {value} as its {}, allowed is 0 to 2^{}-1",
            field.name(),
            8 * size_of::<N>()
        ))
    })
}

/// What an entry is that is nothing but its header.
fn without_contents(
    position: &TarPosition,
    header: &TarHeader,
    records: &PaxRecords,
    link: Vec<u8>,
    size: u64,
) -> Result<TarKind> {
    let device = || {
        let major = or_else(records.device_major, || {
            number(position, header, Field::DeviceMajor)
        })?;
        let minor = or_else(records.device_minor, || {
            number(position, header, Field::DeviceMinor)
        })?;
        match encode_rdev(major, minor) {
            Some(_) => Ok(Device { major, minor }),
            None => Err(position.refuse(format_args!(
                "is device {major}:{minor}, allowed is at most 4095:1048575"
            ))),
        }
    };
    let kind = match header.type_byte() {
        // A file whose name ends in a slash is a directory: v7 has no other way to say it.
        b'0' | 0 | b'5' | b'7' => TarKind::Directory,
        b'1' => {
            let target = TarPath::new(&link).map_err(|why| {
                position.refuse(format_args!(
                    "is a hard link to {:?}, which {why}",
                    OsStr::from_bytes(&link[..link.len().min(MAX_SHOWN)])
                ))
            })?;
            TarKind::HardLink(target)
        }
        b'2' => TarKind::Symlink(checked_target(position, link)?),
        b'3' => TarKind::CharDevice(device()?),
        b'4' => TarKind::BlockDevice(device()?),
        b'6' => TarKind::Fifo,
        byte => return Err(unknown_type(position, byte)),
    };
    // Programs differ in whether they look for the contents, and so in what they take for the next
    // header.
    if size != 0 {
        return Err(position.refuse(format_args!(
            "is no regular file but has {size} bytes of contents, allowed is 0; make the archive again"
        )));
    }
    Ok(kind)
}

/// The target of a symbolic link, if it can be one.
fn checked_target(position: &TarPosition, target: Vec<u8>) -> Result<Box<[u8]>> {
    if target.is_empty() || target.len() > MAX_PATH || target.contains(&0) {
        return Err(position.refuse(format_args!(
            "is a symbolic link to a path of {} bytes, allowed are 1 to {MAX_PATH} without NUL",
            target.len()
        )));
    }
    Ok(target.into())
}

const STAR_SPARSE: &str = "is sparse in star's way, which is not supported; archive it without holes, or with GNU tar or bsdtar";

fn or_else<T>(value: Option<T>, other: impl FnOnce() -> Result<T>) -> Result<T> {
    value.map_or_else(other, Ok)
}

/// `len` and the padding behind it.
fn padded(position: &TarPosition, len: u64) -> Result<u64> {
    // Offsets of files are signed on Linux.
    len.checked_next_multiple_of(BLOCK as u64)
        .filter(|padded| i64::try_from(*padded).is_ok())
        .ok_or_else(|| {
            position.refuse(format_args!(
                "has {len} bytes of contents, allowed is at most {}",
                i64::MAX
            ))
        })
}

fn cut_short(len: u64) -> String {
    format!("has {len} bytes of contents, but the archive ends within them; get another copy of it")
}

fn cut_off(end: u64) -> Error {
    Error::input(format!(
        "the archive is cut off: it ends at byte {end} without the blocks of zeros that end an archive; get another copy of it"
    ))
}

fn bad_records(byte: u64, why: &str) -> Error {
    Error::input(format!(
        "extended header at byte {byte} of the archive {why}"
    ))
}

fn unknown_type(position: &TarPosition, byte: u8) -> Error {
    let known = match byte {
        b'M' => {
            return position.unsupported(
                "continues a file of another volume, which is not supported; unpack the volumes with `tar -xM` and pack the directory",
            );
        }
        b'A' => " (access control list of Solaris)",
        b'E' => " (attributes of Solaris)",
        b'I' => " (inode of star)",
        b'N' => " (long names of GNU tar before 1.12)",
        b'X' => " (extended header of Solaris)",
        _ => "",
    };
    position.unsupported(format_args!(
        "is of type '{}'{known}, which is not supported; leave it out of the archive",
        byte.escape_ascii()
    ))
}

/// The error that the archive does not start with a tar header.
fn not_tar(start: &[u8]) -> Error {
    let magics: [(&[u8], &str, &str); 7] = [
        (b"\x1f\x8b", "gzip", "gzip -dc"),
        (b"\x28\xb5\x2f\xfd", "zstd", "zstd -dc"),
        (b"\xfd7zXZ\0", "xz", "xz -dc"),
        (b"BZh", "bzip2", "bzip2 -dc"),
        (b"\x04\x22\x4d\x18", "lz4", "lz4 -dc"),
        (b"LZIP", "lzip", "lzip -dc"),
        (b"\x1f\x9d", "compress", "gzip -dc"),
    ];
    match magics.iter().find(|(magic, ..)| start.starts_with(magic)) {
        Some((_, codec, command)) => Error::input(format!(
            "the archive is compressed with {codec}; pipe it through `{command}`"
        )),
        None => Error::input(
            "not a tar archive: no tar header is at its byte 0 (the checksum is wrong); give a tar archive that is not compressed",
        ),
    }
}
