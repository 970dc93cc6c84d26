//! Hot packs: the header, the table, and the checks on both. `docs/hot-pack-format.md` describes
//! the bytes.

use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::codec::Codec;
use crate::error::{Allowed, Corrupt, Error, Location, Result, Unsupported};
use crate::format::path_rules::{name_fault, path_fault};

/// The first bytes of every hot pack.
pub(crate) const MAGIC: [u8; 8] = *b"briskhot";

pub(crate) const VERSION: u32 = 1;

/// Bytes of a page, on every machine.
pub(crate) const PAGE: u64 = 4096;

/// Bytes that a frame decodes to, at most.
pub(crate) const MAX_FRAME: u64 = 1 << 20;

/// Set in [`Frame::stored`] of a frame that is stored as it is.
pub(crate) const RAW: u32 = 1 << 31;

/// The first bytes of a hot pack.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct HeaderWire {
    pub(crate) magic: [u8; 8],
    pub(crate) version: U32,
    /// The id that the codec has in a superblock.
    pub(crate) codec: U32,
    /// Stored bytes of the table, which follows the header.
    pub(crate) table_stored: U32,
    /// Bytes that it decodes to.
    pub(crate) table_len: U32,
    /// Stored bytes of all frames, which follow the table.
    pub(crate) data_stored: U64,
    /// Bytes that they decode to.
    pub(crate) data_len: U64,
    /// Pages in them.
    pub(crate) pages: U64,
    /// The start of BLAKE3 of the bytes before and of the stored table.
    pub(crate) checksum: [u8; 16],
}

/// The first bytes of the decoded table; the lists follow in the order of their counts.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct TableWire {
    /// 1 for a directory, 2 for an image.
    pub(crate) kind: U32,
    pub(crate) files: U32,
    pub(crate) directories: U32,
    pub(crate) ranges: U32,
    pub(crate) look_ups: U32,
    pub(crate) frames: U32,
    /// Bytes of the names, behind the lists.
    pub(crate) names: U32,
    /// Frames at the end with pages that the launch does not ask for, near those that it asks for.
    pub(crate) neighbours: U32,
    /// What the image is known by; zeros for a directory.
    pub(crate) identity: [u8; 32],
}

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct FileWire {
    /// Where the path is in the names, and its bytes.
    pub(crate) path_start: U32,
    pub(crate) path_len: U32,
    pub(crate) len: U64,
    /// BLAKE3 of the contents.
    pub(crate) digest: [u8; 32],
    /// Of a file in a directory; zero for an image.
    pub(crate) mtime: I64,
    pub(crate) ctime: I64,
    pub(crate) mtime_ns: U32,
    pub(crate) ctime_ns: U32,
    /// The inode number in a directory, or the inode reference in an image.
    pub(crate) inode: U64,
}

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct DirectoryWire {
    pub(crate) path_start: U32,
    pub(crate) path_len: U32,
    /// The inode reference in an image; zero for a directory.
    pub(crate) inode: U64,
}

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RangeWire {
    pub(crate) file: U32,
    pub(crate) count: U32,
    pub(crate) first: U64,
}

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct LookUpWire {
    pub(crate) directory: U32,
    pub(crate) name_start: U32,
    pub(crate) name_len: U16,
    /// 1 if the name was there, 0 if not.
    pub(crate) found: U16,
    /// Ranges of the windows before the one that it was asked for in.
    pub(crate) before: U32,
}

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct FrameWire {
    /// Ranges in it.
    pub(crate) ranges: U32,
    /// Stored bytes, and [`RAW`].
    pub(crate) stored: U32,
    /// XXH3, 64 bits, of the stored bytes.
    pub(crate) checksum: U64,
}

/// A header that passed every check that needs no other part of the pack.
///
/// 1. The codec is lz4 or zstd.
/// 2. `table_stored` is in `1..=table_len`, and `table_len` is at least that of an empty table and
///    at most what the caller allows.
/// 3. Header, table and data are exactly as long as the pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) codec: Codec,
    pub(crate) table_stored: usize,
    pub(crate) table_len: usize,
    /// Where the data start.
    pub(crate) data_start: u64,
    pub(crate) data_stored: u64,
    pub(crate) data_len: u64,
    pub(crate) pages: u64,
    checksum: [u8; 16],
}

/// A part of the names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NameRef {
    start: usize,
    end: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct File {
    pub(crate) path: NameRef,
    pub(crate) len: u64,
    pub(crate) digest: [u8; 32],
    pub(crate) mtime: (i64, u32),
    pub(crate) ctime: (i64, u32),
    pub(crate) inode: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Directory {
    pub(crate) path: NameRef,
    pub(crate) inode: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) file: usize,
    pub(crate) first: u64,
    pub(crate) count: u64,
    /// Bytes of it that the file has.
    pub(crate) len: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LookUp {
    pub(crate) directory: usize,
    pub(crate) name: NameRef,
    pub(crate) found: bool,
    pub(crate) before: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Its first range, and the one behind its last.
    pub(crate) first_range: usize,
    pub(crate) end_range: usize,
    /// Where its stored bytes are, from the start of the pack.
    pub(crate) start: u64,
    pub(crate) stored: usize,
    pub(crate) is_raw: bool,
    /// Bytes that it decodes to.
    pub(crate) len: usize,
    pub(crate) checksum: u64,
}

/// The table of a hot pack.
///
/// 1. Paths and names passed the checks of a profile; only that of a directory is empty.
/// 2. What a list refers to is there; each [`NameRef`] is in `names`.
/// 3. A range has at least one page, all of them in its file.
/// 4. Each range is in one frame; each frame has at least one, decodes to 1 to [`MAX_FRAME`] bytes,
///    is not stored in more bytes than it decodes to, and is inside the data.
/// 5. The sums of pages, stored and decoded bytes are those of the header.
/// 6. `launch_frames` is at most the number of frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Table {
    /// What the image is known by; none for a directory.
    pub(crate) identity: Option<[u8; 32]>,
    pub(crate) files: Vec<File>,
    pub(crate) directories: Vec<Directory>,
    pub(crate) ranges: Vec<Range>,
    pub(crate) look_ups: Vec<LookUp>,
    pub(crate) frames: Vec<Frame>,
    /// How many frames have pages that the launch asks for. Those behind have their neighbours.
    pub(crate) launch_frames: usize,
    names: Vec<u8>,
}

/// The start of BLAKE3 of a header without its checksum, and of the stored table.
pub(crate) fn checksum(header: &HeaderWire, stored_table: &[u8]) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    let header = HeaderWire {
        checksum: [0; 16],
        ..*header
    };
    hasher.update(header.as_bytes());
    hasher.update(stored_table);
    let mut start = [0; 16];
    hasher.finalize_xof().fill(&mut start);
    start
}

fn corrupt(at: Location, what: Corrupt) -> Error {
    Error::corrupt(at, what).about("hot pack")
}

fn field(at: Location, name: &'static str, found: impl Into<u64>, allowed: Allowed) -> Error {
    Error::field(at, name, found, allowed).about("hot pack")
}

/// A length in memory: not even 128 bits of memory pass 64.
fn wide(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

/// An index or a length; what no machine can have stays larger than any.
fn narrow(n: u32) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

impl Header {
    /// Bytes of a header.
    pub(crate) const LEN: usize = size_of::<HeaderWire>();

    /// Checks the first bytes of a hot pack of `pack_len` bytes, whose table may decode to
    /// `most_table` bytes.
    pub(crate) fn parse(bytes: &[u8; Self::LEN], pack_len: u64, most_table: u64) -> Result<Self> {
        let wire: HeaderWire = zerocopy::transmute!(*bytes);
        if wire.magic != MAGIC {
            let reason = format!(
                "magic is \"{}\", allowed is \"briskhot\"",
                wire.magic.escape_ascii()
            );
            return Err(corrupt(Location::Byte(0), Corrupt::Text { reason }));
        }
        let version = wire.version.get();
        if version != VERSION {
            return Err(Error::unsupported(Unsupported::Other(format!(
                "hot pack version {version} is not supported, only {VERSION} is; \
                 make it again with this brisk"
            ))));
        }
        let id = wire.codec.get();
        let codec = u16::try_from(id).ok().and_then(Codec::from_wire);
        let codec = codec.filter(|codec| matches!(codec, Codec::Lz4 | Codec::Zstd));
        let Some(codec) = codec else {
            let allowed = Allowed::Text("5 (lz4) or 6 (zstd)");
            return Err(field(Location::Byte(12), "codec", id, allowed));
        };
        let (stored, len) = (wire.table_stored.get(), wire.table_len.get());
        if stored == 0 || stored > len {
            let allowed = Allowed::Range(1, len.into());
            return Err(field(
                Location::Byte(16),
                "stored bytes of the table",
                stored,
                allowed,
            ));
        }
        let least = wide(size_of::<TableWire>());
        if u64::from(len) < least {
            let allowed = Allowed::Range(least, u32::MAX.into());
            return Err(field(
                Location::Byte(20),
                "bytes of the table",
                len,
                allowed,
            ));
        }
        if u64::from(len) > most_table {
            return Err(Error::limit(
                "the table of a hot pack",
                len.into(),
                most_table,
            ));
        }
        let data_start = wide(Self::LEN).saturating_add(stored.into());
        let data_stored = wire.data_stored.get();
        let most = pack_len.saturating_sub(data_start);
        if data_stored != most || data_start > pack_len {
            let at = Location::Byte(24);
            return Err(field(
                at,
                "stored bytes of the data",
                data_stored,
                Allowed::Only(most),
            ));
        }
        Ok(Self {
            codec,
            table_stored: narrow(stored),
            table_len: narrow(len),
            data_start,
            data_stored,
            data_len: wire.data_len.get(),
            pages: wire.pages.get(),
            checksum: wire.checksum,
        })
    }

    /// Where the pack ends, as its header says, which is not checked.
    pub(crate) fn end_of_pack(bytes: &[u8; Self::LEN]) -> u64 {
        let wire: HeaderWire = zerocopy::transmute!(*bytes);
        let table_end = wide(Self::LEN).saturating_add(wire.table_stored.get().into());
        table_end.saturating_add(wire.data_stored.get())
    }

    /// Checks that header and stored table are as they were written.
    pub(crate) fn check_table(&self, bytes: &[u8; Self::LEN], stored: &[u8]) -> Result<()> {
        let wire: HeaderWire = zerocopy::transmute!(*bytes);
        if checksum(&wire, stored) == self.checksum {
            return Ok(());
        }
        let reason = "the checksum of header and table is of other bytes".to_owned();
        Err(corrupt(Location::Byte(48), Corrupt::Text { reason }))
    }

    /// The error that the stored table does not decode.
    pub(crate) fn undecodable(&self, reason: String) -> Error {
        let (what, codec) = ("the table", "zstd");
        let what = Corrupt::Decode {
            what,
            codec,
            reason,
        };
        corrupt(Location::Byte(wide(Self::LEN)), what)
    }
}

/// Takes lists from the front of a table.
struct Lists<'a> {
    rest: &'a [u8],
}

impl<'a> Lists<'a> {
    fn take<T: FromBytes + KnownLayout + Immutable + Unaligned>(
        &mut self,
        what: &'static str,
        count: u32,
    ) -> Result<&'a [T]> {
        let (list, rest) =
            <[T]>::ref_from_prefix_with_elems(self.rest, narrow(count)).map_err(|_| {
                let size = wide(size_of::<T>());
                let need = u64::from(count).saturating_mul(size);
                let have = wide(self.rest.len());
                let at = Location::Item {
                    list: what,
                    index: 0,
                };
                corrupt(at, Corrupt::Truncated { what, need, have })
            })?;
        self.rest = rest;
        Ok(list)
    }
}

impl Table {
    /// Checks the decoded table of a pack with this `header`.
    pub(crate) fn parse(header: &Header, bytes: &[u8]) -> Result<Self> {
        let mut lists = Lists { rest: bytes };
        let counts = lists.take::<TableWire>("table", 1)?;
        let Some(counts) = counts.first() else {
            return Err(header.undecodable("is empty".to_owned()));
        };
        let at = Location::Item {
            list: "table",
            index: 0,
        };
        let identity = match counts.kind.get() {
            1 => None,
            2 => Some(counts.identity),
            kind => {
                let allowed = Allowed::Text("1 (directory) or 2 (image)");
                return Err(field(at, "kind", kind, allowed));
            }
        };
        let files = lists.take::<FileWire>("files", counts.files.get())?;
        let directories = lists.take::<DirectoryWire>("directories", counts.directories.get())?;
        let ranges = lists.take::<RangeWire>("ranges", counts.ranges.get())?;
        let look_ups = lists.take::<LookUpWire>("look-ups", counts.look_ups.get())?;
        let frames = lists.take::<FrameWire>("frames", counts.frames.get())?;
        let names = lists.rest;
        if wide(names.len()) != u64::from(counts.names.get()) {
            let allowed = Allowed::Only(wide(names.len()));
            return Err(field(at, "bytes of names", counts.names.get(), allowed));
        }
        let neighbours = narrow(counts.neighbours.get());
        let Some(launch_frames) = frames.len().checked_sub(neighbours) else {
            let allowed = Allowed::AtMost(wide(frames.len()));
            return Err(field(
                at,
                "frames with neighbours",
                wide(neighbours),
                allowed,
            ));
        };
        let mut table = Self {
            identity,
            files: Vec::with_capacity(files.len()),
            directories: Vec::with_capacity(directories.len()),
            ranges: Vec::with_capacity(ranges.len()),
            look_ups: Vec::with_capacity(look_ups.len()),
            frames: Vec::with_capacity(frames.len()),
            launch_frames,
            names: names.to_owned(),
        };
        for (index, wire) in files.iter().enumerate() {
            table.add_file(
                Location::Item {
                    list: "files",
                    index,
                },
                wire,
            )?;
        }
        for (index, wire) in directories.iter().enumerate() {
            let at = Location::Item {
                list: "directories",
                index,
            };
            let path = table.path(at, wire.path_start.get(), wire.path_len.get())?;
            let inode = wire.inode.get();
            table.directories.push(Directory { path, inode });
        }
        let mut pages = 0u64;
        for (index, wire) in ranges.iter().enumerate() {
            let range = table.range(
                Location::Item {
                    list: "ranges",
                    index,
                },
                wire,
            )?;
            pages = pages.saturating_add(range.count);
            table.ranges.push(range);
        }
        for (index, wire) in look_ups.iter().enumerate() {
            let at = Location::Item {
                list: "look-ups",
                index,
            };
            let look_up = table.look_up(at, wire)?;
            table.look_ups.push(look_up);
        }
        table.add_frames(header, frames)?;
        if pages != header.pages {
            let allowed = Allowed::Only(pages);
            return Err(field(
                Location::Byte(40),
                "number of pages",
                header.pages,
                allowed,
            ));
        }
        Ok(table)
    }

    /// The bytes of a path or name.
    pub(crate) fn name(&self, name: NameRef) -> &[u8] {
        // Invariant 2.
        self.names.get(name.start..name.end).unwrap_or_default()
    }

    fn name_ref(&self, at: Location, start: u32, len: u32) -> Result<NameRef> {
        let (start, len) = (narrow(start), narrow(len));
        let left = self.names.len().saturating_sub(start);
        if len > left {
            let allowed = Allowed::AtMost(wide(left));
            return Err(field(at, "bytes of the name", wide(len), allowed));
        }
        let end = start.saturating_add(len);
        Ok(NameRef { start, end })
    }

    fn path(&self, at: Location, start: u32, len: u32) -> Result<NameRef> {
        let path = self.name_ref(at, start, len)?;
        match path_fault(self.name(path)) {
            None => Ok(path),
            Some(why) => Err(self.bad_name(at, path, why)),
        }
    }

    fn bad_name(&self, at: Location, name: NameRef, why: &'static str) -> Error {
        let name = self.name(name).to_owned();
        corrupt(at, Corrupt::Name { name, why })
    }

    fn add_file(&mut self, at: Location, wire: &FileWire) -> Result<()> {
        let path = self.path(at, wire.path_start.get(), wire.path_len.get())?;
        if path.start == path.end {
            return Err(self.bad_name(at, path, "is empty, allowed is a path in the tree"));
        }
        self.files.push(File {
            path,
            len: wire.len.get(),
            digest: wire.digest,
            mtime: (wire.mtime.get(), wire.mtime_ns.get()),
            ctime: (wire.ctime.get(), wire.ctime_ns.get()),
            inode: wire.inode.get(),
        });
        Ok(())
    }

    fn range(&self, at: Location, wire: &RangeWire) -> Result<Range> {
        let file = narrow(wire.file.get());
        let Some(File { len: file_len, .. }) = self.files.get(file) else {
            return Err(number_fault(at, "file", wire.file.get(), self.files.len()));
        };
        let (first, count) = (wire.first.get(), u64::from(wire.count.get()));
        let most = file_len.div_ceil(PAGE).saturating_sub(first);
        if count == 0 || count > most {
            let allowed = match most {
                0 => Allowed::Text("none, as the file has no page there"),
                most => Allowed::Range(1, most),
            };
            return Err(field(at, "number of pages", count, allowed));
        }
        let end = first
            .saturating_add(count)
            .saturating_mul(PAGE)
            .min(*file_len);
        let len = end.saturating_sub(first.saturating_mul(PAGE));
        if len > MAX_FRAME {
            let allowed = Allowed::Text("what a frame of 1048576 bytes can hold");
            return Err(field(at, "number of pages", count, allowed));
        }
        // At most `MAX_FRAME`.
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        Ok(Range {
            file,
            first,
            count,
            len,
        })
    }

    fn look_up(&self, at: Location, wire: &LookUpWire) -> Result<LookUp> {
        let directory = narrow(wire.directory.get());
        if directory >= self.directories.len() {
            let found = wire.directory.get();
            return Err(number_fault(at, "directory", found, self.directories.len()));
        }
        let name = self.name_ref(at, wire.name_start.get(), wire.name_len.get().into())?;
        if let Some(why) = name_fault(self.name(name)) {
            return Err(self.bad_name(at, name, why));
        }
        let found = wire.found.get();
        if found > 1 {
            return Err(field(at, "answer", found, Allowed::Range(0, 1)));
        }
        let before = narrow(wire.before.get());
        if before > self.ranges.len() {
            let allowed = Allowed::AtMost(wide(self.ranges.len()));
            return Err(field(
                at,
                "number of ranges before it",
                wide(before),
                allowed,
            ));
        }
        Ok(LookUp {
            directory,
            name,
            found: found == 1,
            before,
        })
    }

    fn add_frames(&mut self, header: &Header, frames: &[FrameWire]) -> Result<()> {
        let mut first_range = 0usize;
        let (mut data_stored, mut data_len) = (0u64, 0u64);
        for (index, wire) in frames.iter().enumerate() {
            let at = Location::Item {
                list: "frames",
                index,
            };
            let end_range = first_range.saturating_add(narrow(wire.ranges.get()));
            let ranges = self.ranges.get(first_range..end_range);
            let Some(ranges) = ranges.filter(|ranges| !ranges.is_empty()) else {
                let left = wide(self.ranges.len().saturating_sub(first_range));
                let allowed = match left {
                    0 => Allowed::Text("none, as no more are left"),
                    left => Allowed::Range(1, left),
                };
                return Err(field(at, "number of ranges", wire.ranges.get(), allowed));
            };
            let len = ranges.iter().map(|range| wide(range.len));
            let len = len.fold(0u64, u64::saturating_add);
            if len > MAX_FRAME {
                return Err(field(at, "decoded bytes", len, Allowed::AtMost(MAX_FRAME)));
            }
            let is_raw = wire.stored.get() & RAW != 0;
            let stored = u64::from(wire.stored.get() & !RAW);
            let (least, most) = match is_raw {
                true => (len, len),
                false => (1, len.saturating_sub(1)),
            };
            if !(least..=most).contains(&stored) {
                return Err(field(
                    at,
                    "stored bytes",
                    stored,
                    Allowed::Range(least, most),
                ));
            }
            self.frames.push(Frame {
                first_range,
                end_range,
                start: header.data_start.saturating_add(data_stored),
                stored: usize::try_from(stored).unwrap_or(usize::MAX),
                is_raw,
                len: usize::try_from(len).unwrap_or(usize::MAX),
                checksum: wire.checksum.get(),
            });
            first_range = end_range;
            data_stored = data_stored.saturating_add(stored);
            data_len = data_len.saturating_add(len);
        }
        if first_range != self.ranges.len() {
            let at = Location::Item {
                list: "ranges",
                index: first_range,
            };
            let left = wide(self.ranges.len().saturating_sub(first_range));
            return Err(field(
                at,
                "number of ranges in no frame",
                left,
                Allowed::Only(0),
            ));
        }
        for (at, name, found, sum) in [
            (
                24,
                "stored bytes of the data",
                header.data_stored,
                data_stored,
            ),
            (32, "bytes of the data", header.data_len, data_len),
        ] {
            if found != sum {
                return Err(field(Location::Byte(at), name, found, Allowed::Only(sum)));
            }
        }
        Ok(())
    }
}

fn number_fault(at: Location, what: &'static str, found: u32, count: usize) -> Error {
    let allowed = match count.checked_sub(1) {
        Some(last) => Allowed::AtMost(wide(last)),
        None => Allowed::Text("none, as the list of them is empty"),
    };
    field(at, what, found, allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lists of a table; what a test changes.
    #[derive(Clone)]
    struct Lists {
        counts: TableWire,
        files: Vec<FileWire>,
        directories: Vec<DirectoryWire>,
        ranges: Vec<RangeWire>,
        look_ups: Vec<LookUpWire>,
        frames: Vec<FrameWire>,
        header: Header,
    }

    fn valid() -> Lists {
        let file = |path_start: u32, len: u64| FileWire {
            path_start: path_start.into(),
            path_len: 3.into(),
            len: len.into(),
            digest: [7; 32],
            mtime: (-1).into(),
            ctime: 1.into(),
            mtime_ns: 5.into(),
            ctime_ns: 6.into(),
            inode: 9.into(),
        };
        let range = |file: u32, first: u64, count: u32| RangeWire {
            file: file.into(),
            first: first.into(),
            count: count.into(),
        };
        let frame = |ranges: u32, stored: u32| FrameWire {
            ranges: ranges.into(),
            stored: stored.into(),
            checksum: 1.into(),
        };
        let directory = DirectoryWire {
            path_start: 0.into(),
            path_len: 0.into(),
            inode: 0.into(),
        };
        let look_up = LookUpWire {
            directory: 0.into(),
            name_start: 2.into(),
            name_len: 1.into(),
            found: 1.into(),
            before: 2.into(),
        };
        let mut lists = Lists {
            counts: TableWire {
                kind: 1.into(),
                files: 0.into(),
                directories: 0.into(),
                ranges: 0.into(),
                look_ups: 0.into(),
                frames: 0.into(),
                names: 6.into(),
                neighbours: 0.into(),
                identity: [0; 32],
            },
            files: vec![file(0, 10_000), file(3, 1 << 30)],
            directories: vec![directory],
            // 4096 and 1808 bytes, then 8192.
            ranges: vec![range(0, 0, 1), range(0, 2, 1), range(1, 100, 2)],
            look_ups: vec![look_up],
            frames: vec![frame(2, 300), frame(1, 8192 | RAW)],
            header: Header {
                codec: Codec::Lz4,
                table_stored: 100,
                table_len: 1000,
                data_start: 164,
                data_stored: 8492,
                data_len: 14_096,
                pages: 4,
                checksum: [0; 16],
            },
        };
        lists.count();
        lists
    }

    impl Lists {
        fn count(&mut self) {
            let counts = &mut self.counts;
            for (count, len) in [
                (&mut counts.files, self.files.len()),
                (&mut counts.directories, self.directories.len()),
                (&mut counts.ranges, self.ranges.len()),
                (&mut counts.look_ups, self.look_ups.len()),
                (&mut counts.frames, self.frames.len()),
            ] {
                *count = u32::try_from(len).unwrap().into();
            }
        }

        fn parse(&self) -> Result<Table> {
            let bytes = [
                self.counts.as_bytes(),
                self.files.as_bytes(),
                self.directories.as_bytes(),
                self.ranges.as_bytes(),
                self.look_ups.as_bytes(),
                self.frames.as_bytes(),
                b"a/bc/d",
            ];
            Table::parse(&self.header, &bytes.concat())
        }
    }

    #[test]
    fn a_valid_table_is_read() {
        let table = valid().parse().unwrap();
        let names: Vec<_> = table
            .files
            .iter()
            .map(|file| table.name(file.path))
            .collect();
        assert_eq!(names, [b"a/b", b"c/d"]);
        assert_eq!(
            (table.files[0].mtime, table.files[0].ctime),
            ((-1, 5), (1, 6))
        );
        let lens: Vec<_> = table.ranges.iter().map(|range| range.len).collect();
        assert_eq!(lens, [4096, 1808, 8192]);
        let frames = table.frames.iter();
        let frames: Vec<_> = frames
            .map(|f| {
                (
                    f.first_range,
                    f.end_range,
                    f.start,
                    f.stored,
                    f.is_raw,
                    f.len,
                )
            })
            .collect();
        assert_eq!(
            frames,
            [(0, 2, 164, 300, false, 5904), (2, 3, 464, 8192, true, 8192)]
        );
        assert_eq!(table.name(table.look_ups[0].name), b"b");
    }

    #[test]
    fn each_check_says_field_location_found_and_allowed() {
        type Change = fn(&mut Lists);
        let table: &[(Change, &str)] = &[
            (
                |l| l.counts.kind = 3.into(),
                "table[0]: kind is 3, allowed is 1 (directory) or 2 (image)",
            ),
            (
                |l| l.counts.names = 5.into(),
                "table[0]: bytes of names is 5, allowed is 6",
            ),
            (
                |l| l.counts.files = u32::MAX.into(),
                "files[0]: files needs 343597383600 bytes, 278 are left",
            ),
            (
                |l| l.files[1].path_start = 6.into(),
                "files[1]: bytes of the name is 3, allowed is at most 0",
            ),
            (
                |l| l.files[1].path_start = u32::MAX.into(),
                "files[1]: bytes of the name is 3, allowed is at most 0",
            ),
            (
                |l| l.files[1].path_len = 4.into(),
                "files[1]: bytes of the name is 4, allowed is at most 3",
            ),
            (
                |l| l.files[1].path_len = 2.into(),
                "files[1]: name \"c/\" is not relative, or has an empty part",
            ),
            (
                |l| l.files[1].path_len = 0.into(),
                "files[1]: name \"\" is empty, allowed is a path in the tree",
            ),
            (
                |l| (l.directories[0].path_start, l.directories[0].path_len) = (1.into(), 2.into()),
                "directories[0]: name \"/b\" is not relative, or has an empty part",
            ),
            (
                |l| l.ranges[0].file = 2.into(),
                "ranges[0]: file is 2, allowed is at most 1",
            ),
            (
                |l| l.ranges[0].count = 0.into(),
                "ranges[0]: number of pages is 0, allowed is 1 to 3",
            ),
            (
                |l| l.ranges[1].count = 2.into(),
                "ranges[1]: number of pages is 2, allowed is 1 to 1",
            ),
            (
                |l| l.ranges[1].first = u64::MAX.into(),
                "ranges[1]: number of pages is 1, allowed is none, as the file has no page there",
            ),
            (
                |l| l.ranges[2].count = 257.into(),
                "ranges[2]: number of pages is 257, allowed is what a frame of 1048576 bytes can hold",
            ),
            (
                |l| l.ranges[2].count = 256.into(),
                "frames[1]: stored bytes is 8192, allowed is 1048576 to 1048576",
            ),
            (
                |l| l.look_ups[0].directory = 1.into(),
                "look-ups[0]: directory is 1, allowed is at most 0",
            ),
            (
                |l| l.look_ups[0].name_start = 1.into(),
                "look-ups[0]: name \"/\" has a slash",
            ),
            (
                |l| l.look_ups[0].name_len = 0.into(),
                "look-ups[0]: name \"\" is empty",
            ),
            (
                |l| l.look_ups[0].found = 2.into(),
                "look-ups[0]: answer is 2, allowed is 0 to 1",
            ),
            (
                |l| l.look_ups[0].before = 4.into(),
                "look-ups[0]: number of ranges before it is 4, allowed is at most 3",
            ),
            (
                |l| l.frames[0].ranges = 0.into(),
                "frames[0]: number of ranges is 0, allowed is 1 to 3",
            ),
            (
                |l| l.frames[0].ranges = u32::MAX.into(),
                "frames[0]: number of ranges is 4294967295, allowed is 1 to 3",
            ),
            (
                |l| l.frames[1].ranges = 2.into(),
                "frames[1]: number of ranges is 2, allowed is 1 to 1",
            ),
            (
                |l| l.frames[0].ranges = 3.into(),
                "frames[1]: number of ranges is 1, allowed is none, as no more are left",
            ),
            (
                |l| {
                    l.frames.truncate(1);
                    l.count();
                },
                "ranges[2]: number of ranges in no frame is 1, allowed is 0",
            ),
            (
                |l| l.frames[0].stored = 5904.into(),
                "frames[0]: stored bytes is 5904, allowed is 1 to 5903",
            ),
            (
                |l| l.frames[0].stored = 0.into(),
                "frames[0]: stored bytes is 0, allowed is 1 to 5903",
            ),
            (
                |l| l.frames[1].stored = (8191 | RAW).into(),
                "frames[1]: stored bytes is 8191, allowed is 8192 to 8192",
            ),
            (
                |l| l.frames[0].stored = 301.into(),
                "byte 24: stored bytes of the data is 8492, allowed is 8493",
            ),
            (
                |l| l.header.data_len = 1,
                "byte 32: bytes of the data is 1, allowed is 14096",
            ),
            (
                |l| l.header.pages = 5,
                "byte 40: number of pages is 5, allowed is 4",
            ),
            (
                |l| l.counts.neighbours = 3.into(),
                "table[0]: frames with neighbours is 3, allowed is at most 2",
            ),
        ];
        let mut wrong = Vec::new();
        for (change, message) in table {
            let mut lists = valid();
            change(&mut lists);
            let found = lists
                .parse()
                .map_or_else(|e| e.to_string(), |_| "no error".to_owned());
            if found != format!("corrupt hot pack at {message}") {
                wrong.push(format!("{found}\n{message}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    }

    #[test]
    fn a_frame_of_many_ranges_is_bounded() {
        let mut lists = valid();
        lists.ranges = vec![lists.ranges[2]; 1000];
        lists.frames.truncate(1);
        lists.frames[0].ranges = 1000.into();
        lists.count();
        assert_eq!(
            lists.parse().unwrap_err().to_string(),
            "corrupt hot pack at frames[0]: decoded bytes is 8192000, allowed is at most 1048576"
        );
    }
}
