//! Reading hot packs: the table when a pack is opened, the frames in any order from any thread.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use brisk_io::{AlignedBuf, ByteSource, open_at_once};
use twox_hash::XxHash3_64;

use super::format::{self, Header, Table};
use crate::codec::{Codec, Decoder, Decoders};
use crate::error::{Allowed, Corrupt, Error, ErrorKind, Location, Result};
use crate::format::section::{MAGIC, SectionKind, align_up};
use crate::ordered;
use crate::profile::origin::{Origin, Stamp};
use crate::profile::{PAGE, PageRange};
use crate::read::check::MOST_FAULTS;
use crate::read::image::Image;
use crate::read::inode_reader::InodeRef;
use crate::read::limits::Limits;
use crate::read::sections::Section;
use crate::work::Work;

/// Bytes that a table may decode to, beside [`TABLE_PER_BYTE`].
const MOST_TABLE: u64 = 1 << 20;

/// Bytes that a table may decode to for each byte of the pack. Tables take a hundredth of a pack.
const TABLE_PER_BYTE: u64 = 16;

/// The pages that a launch asks for, in about that order, with its look-ups. A pack is a file
/// beside its tree or image, or a section behind the image.
///
/// Opening reads the table. A clone is another handle on the same pack and costs one reference
/// count.
///
/// All bytes of a pack are untrusted. A frame is served only if its checksum is right; whether the
/// pack belongs to a tree or an image is for the caller to ask: [`HotPack::is_of`] and
/// [`HotFile::is`] at launch, [`HotPack::verify`] when there is time.
#[derive(Clone)]
pub struct HotPack {
    inner: Arc<Inner>,
}

struct Inner {
    source: Box<dyn ByteSource>,
    path: Option<PathBuf>,
    header: Header,
    table: Table,
}

/// A file that a hot pack has pages of.
#[derive(Clone, Copy)]
pub struct HotFile<'a> {
    table: &'a Table,
    file: &'a format::File,
}

/// A name that the launch looks up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct HotLookUp<'a> {
    /// The directory, as a path in the tree; empty for its root.
    pub directory: &'a Path,
    /// The directory's inode, if the pack is of an image.
    pub inode: Option<InodeRef>,
    /// The name.
    pub name: &'a OsStr,
    /// Whether it is there.
    pub found: bool,
    /// How many of the pack's ranges are asked for before it, at least: those of the windows before its own.
    pub before: usize,
}

/// A frame of a hot pack: pages that are compressed together.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HotFrame {
    /// The ranges in it, by their numbers.
    pub ranges: Range<usize>,
    /// Where its stored bytes are in the file, or in the section, of the pack.
    pub stored: Range<u64>,
    /// Bytes that it decodes to.
    pub len: usize,
}

/// Reads frames of one hot pack, in buffers that it keeps. One thread decodes, and others may share what it has decoded.
pub struct FrameReader {
    pack: HotPack,
    /// None before the first frame that is compressed. It is never locked: decoding takes `&mut self`. The lock lets threads
    /// share a reader for what it has decoded.
    decoder: Mutex<Option<Decoder>>,
    stored: Vec<u8>,
    /// Starts at a page of memory, so that a page of a file mostly lies in one: the kernel pins what it copies
    /// page by page.
    decoded: AlignedBuf,
    /// The frame that `decoded` begins with, if that was decoded without an error.
    held: Option<format::Frame>,
}

/// What [`HotPack::verify`] compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct HotChecked {
    /// Frames with the bytes of the files.
    pub frames: u64,
    /// Size of these frames.
    pub bytes: u64,
    /// Frames that are damaged or have other bytes than the files. If the pack belongs to another image, this is 1, and no frame
    /// is compared.
    pub faults: u64,
}

/// The bytes of a section, as a source of its own.
struct SectionSource {
    image: Image,
    start: u64,
    len: u64,
}

impl ByteSource for SectionSource {
    fn size(&self) -> io::Result<u64> {
        Ok(self.len)
    }

    fn read_bytes_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let left = self.len.saturating_sub(offset);
        let n = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        // The section is inside the image's file, so the sum is, too.
        self.image
            .inner
            .stored
            .read_source_at(self.start.saturating_add(offset), &mut buf[..n])
    }
}

/// Bytes of the pack that begins with `header`, in a source of `len` bytes. A hash tree may follow, at the next multiple of 4096,
/// and what is read through that tree ends where it starts.
fn without_tree(source: &dyn ByteSource, header: &[u8; Header::LEN], len: u64) -> io::Result<u64> {
    let end = Header::end_of_pack(header);
    let Some(tree) = align_up(end).filter(|tree| end < len && *tree <= len) else {
        return Ok(len);
    };
    let mut magic = [0; MAGIC.len()];
    let is_tree = tree == len
        || len - tree >= MAGIC.len() as u64
            && source
                .read_exact_bytes_at(tree, &mut magic)
                .map(|()| magic == MAGIC)?;
    Ok(if is_tree { end } else { len })
}

impl Image {
    /// The hot pack behind the image, if there is one.
    ///
    /// This reads the table of the pack and not its data, so it does not check the digest of the
    /// section. Each frame has a checksum of its own.
    ///
    /// # Errors
    ///
    /// As [`HotPack::open`].
    pub fn hot_pack(&self) -> Result<Option<HotPack>> {
        let open = || {
            let Some(Section { start, len, .. }) = self.hot_section()? else {
                return Ok(None);
            };
            let image = self.clone();
            let source = Box::new(SectionSource { image, start, len });
            HotPack::from_parts(source, None, &self.inner.stored.limits).map(Some)
        };
        open().map_err(|e| self.name(e))
    }

    /// Where the section with the hot pack starts, if there is one: the first byte of its header,
    /// from the start of the image.
    pub fn hot_pack_start(&self) -> Result<Option<u64>> {
        let section = self.hot_section().map_err(|e| self.name(e))?;
        let header = crate::format::section::HEADER as u64;
        Ok(section.map(|section| section.start.saturating_sub(header)))
    }

    /// The bytes of the hot pack itself, without the header of its section, if there is one. They count
    /// from the start of the image.
    ///
    /// # Errors
    ///
    /// As [`Image::hot_pack`].
    pub fn hot_pack_range(&self) -> Result<Option<Range<u64>>> {
        let section = self.hot_section().map_err(|e| self.name(e))?;
        Ok(section.map(|Section { start, len, .. }| start..start.saturating_add(len)))
    }

    fn hot_section(&self) -> Result<Option<Section>> {
        let mut sections = self.inner.stored.sections()?.into_iter();
        let found = sections.find(|section| section.kind == SectionKind::HOT_PACK);
        match found {
            Some(Section { version, start, .. }) if version != 1 => {
                let header = crate::format::section::HEADER as u64;
                let at = Location::Byte(start.saturating_sub(header).saturating_add(12));
                let allowed = Allowed::Only(1);
                Err(Error::field(at, "version of a section", version, allowed))
            }
            found => Ok(found),
        }
    }

    /// A digest of the superblock and of all tables, by which a hot pack knows the image that it
    /// was made of.
    ///
    /// It changes with names, times and modes, and with contents that change the stored length of a
    /// block. Two images whose blocks have the same stored lengths and whose files have the same
    /// times have one identity.
    ///
    /// # Errors
    ///
    /// `Io` if the image cannot be read.
    pub fn identity(&self) -> Result<[u8; 32]> {
        let superblock = &self.inner.stored.superblock;
        let mut hasher = blake3::Hasher::new();
        let mut buf = vec![0; 256 << 10];
        let tables = superblock.inode_table()..superblock.bytes_used();
        for Range { start, end } in [0..96, tables] {
            let mut at = start;
            while at < end {
                let left = usize::try_from(end - at).unwrap_or(usize::MAX);
                let n = left.min(buf.len());
                let part = &mut buf[..n];
                self.inner
                    .stored
                    .read_into(at, part, "the tables")
                    .map_err(|e| self.name(e))?;
                hasher.update(part);
                at += n as u64;
            }
        }
        Ok(*hasher.finalize().as_bytes())
    }
}

impl HotPack {
    /// Opens the hot pack in the file at `path`.
    ///
    /// # Errors
    ///
    /// `Io` if it cannot be read, `Corrupt` if it is damaged, `Unsupported` for another version,
    /// and `Limit` if its table needs more than [`Limits::memory`].
    pub fn open(path: impl AsRef<Path>, limits: &Limits) -> Result<Self> {
        let path = path.as_ref();
        let open = || {
            let file = open_at_once(path).map_err(|e| Error::io("open the hot pack", e))?;
            Self::from_parts(Box::new(file), Some(path.to_owned()), limits)
        };
        open().map_err(|e: Error| e.with_path(path))
    }

    /// Opens the hot pack in `source`.
    pub fn from_source(source: impl ByteSource + 'static, limits: &Limits) -> Result<Self> {
        Self::from_parts(Box::new(source), None, limits)
    }

    fn from_parts(
        source: Box<dyn ByteSource>,
        path: Option<PathBuf>,
        limits: &Limits,
    ) -> Result<Self> {
        let io = |e| Error::io("read the hot pack", e);
        let len = source.size().map_err(io)?;
        if len < Header::LEN as u64 {
            let (what, need) = ("the header", Header::LEN as u64);
            let what = Corrupt::Truncated {
                what,
                need,
                have: len,
            };
            return Err(Error::corrupt(Location::Byte(0), what).about("hot pack"));
        }
        let mut bytes = [0; Header::LEN];
        source.read_exact_bytes_at(0, &mut bytes).map_err(io)?;
        let len = without_tree(&*source, &bytes, len).map_err(io)?;
        // Stored, decoded and checked table are there at once; checked, an entry takes up to three
        // times as much as decoded, and so that limit is kept.
        let most = MOST_TABLE.saturating_add(len.saturating_mul(TABLE_PER_BYTE));
        let header = Header::parse(&bytes, len, most.min(limits.memory / 8))?;
        // Said now, as no frame could be read.
        Decoder::new(header.codec, Decoders::Fastest)?;
        let mut stored = vec![0; header.table_stored];
        source
            .read_exact_bytes_at(Header::LEN as u64, &mut stored)
            .map_err(io)?;
        header.check_table(&bytes, &stored)?;
        let table = match header.table_stored == header.table_len {
            true => Table::parse(&header, &stored)?,
            false => {
                let mut decoded = vec![0; header.table_len];
                let n = Decoder::new(Codec::Zstd, Decoders::Fastest)?
                    .decode(&stored, &mut decoded)
                    .map_err(|e| header.undecodable(e.reason))?;
                if n != decoded.len() {
                    let reason = format!("decodes to {n} bytes, allowed is {}", decoded.len());
                    return Err(header.undecodable(reason));
                }
                Table::parse(&header, &decoded)?
            }
        };
        let inner = Inner {
            source,
            path,
            header,
            table,
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    fn table(&self) -> &Table {
        &self.inner.table
    }

    /// How frames are compressed: lz4 or zstd.
    pub fn codec(&self) -> Codec {
        self.inner.header.codec
    }

    /// Pages in the pack.
    pub fn pages(&self) -> u64 {
        self.inner.header.pages
    }

    /// How many of the first frames have pages that the launch asks for. The frames behind have pages near those, for launches with
    /// another input.
    pub fn launch_frame_count(&self) -> usize {
        self.table().launch_frames
    }

    /// Pages that the launch asks for.
    pub fn launch_pages(&self) -> u64 {
        let ranges = (0..self.launch_range_count()).map_while(|number| self.range(number));
        ranges.map(|range| range.count).sum()
    }

    /// How many of the first ranges have these pages.
    pub fn launch_range_count(&self) -> usize {
        let last = self.launch_frame_count().checked_sub(1);
        let last = last.and_then(|last| self.frame(last));
        last.map_or(0, |frame| frame.ranges.end)
    }

    /// Bytes of all pages.
    pub fn data_len(&self) -> u64 {
        self.inner.header.data_len
    }

    /// Bytes of the pack, without a hash tree behind it.
    #[expect(clippy::len_without_is_empty, reason = "a pack has a header")]
    pub fn len(&self) -> u64 {
        let header = &self.inner.header;
        header.data_start.saturating_add(header.data_stored)
    }

    /// Stored bytes of the frames.
    pub fn data_stored(&self) -> u64 {
        self.inner.header.data_stored
    }

    /// The image's [identity](Image::identity), if the pack is of an image, and not of a directory.
    pub fn identity(&self) -> Option<[u8; 32]> {
        self.table().identity
    }

    /// Whether the pack was made of `image`. A pack of a directory never was.
    pub fn is_of(&self, image: &Image) -> Result<bool> {
        match self.identity() {
            Some(identity) => Ok(identity == image.identity()?),
            None => Ok(false),
        }
    }

    /// The files, in the order in which they are first asked for.
    pub fn files(&self) -> impl ExactSizeIterator<Item = HotFile<'_>> {
        let table = self.table();
        table.files.iter().map(move |file| HotFile { table, file })
    }

    /// The file with this number.
    pub fn file(&self, number: usize) -> Option<HotFile<'_>> {
        let table = self.table();
        let file = table.files.get(number)?;
        Some(HotFile { table, file })
    }

    /// The look-ups, in order.
    pub fn look_ups(&self) -> impl ExactSizeIterator<Item = HotLookUp<'_>> {
        let table = self.table();
        let of_image = table.identity.is_some();
        table.look_ups.iter().map(move |look_up| {
            // Invariant 2 of the table.
            let directory = &table.directories[look_up.directory];
            HotLookUp {
                directory: Path::new(OsStr::from_bytes(table.name(directory.path))),
                inode: of_image.then(|| reference(directory.inode)).flatten(),
                name: OsStr::from_bytes(table.name(look_up.name)),
                found: look_up.found,
                before: look_up.before,
            }
        })
    }

    /// The number of ranges.
    pub fn range_count(&self) -> usize {
        self.table().ranges.len()
    }

    /// The range with this number.
    pub fn range(&self, number: usize) -> Option<PageRange> {
        self.table().ranges.get(number).map(page_range)
    }

    /// The number of frames.
    pub fn frame_count(&self) -> usize {
        self.table().frames.len()
    }

    /// The frame with this number. Frames follow each other in about the order in which the launch
    /// asks.
    pub fn frame(&self, number: usize) -> Option<HotFrame> {
        let frame = self.table().frames.get(number)?;
        Some(HotFrame {
            ranges: frame.first_range..frame.end_range,
            stored: frame.start..frame.start.saturating_add(frame.stored as u64),
            len: frame.len,
        })
    }

    /// Reads the stored bytes of several frames at once into `out`, as a window for
    /// [`FrameReader::decode`]. What `out` held is gone. Its first byte is the first of the first
    /// frame.
    ///
    /// # Errors
    ///
    /// `Io` if they cannot be read, and `Input` if there are no such frames.
    pub fn read_stored(&self, frames: Range<usize>, out: &mut Vec<u8>) -> Result<()> {
        out.clear();
        if frames.is_empty() {
            return Ok(());
        }
        let (first, last) = (self.frame_at(frames.start)?, self.frame_at(frames.end - 1)?);
        // Invariant 4 of the table: one follows the other, and all are in the file.
        let end = last.start.saturating_add(last.stored as u64);
        let len = usize::try_from(end.saturating_sub(first.start))
            .map_err(|_| Error::limit("the stored frames", end, usize::MAX as u64))?;
        out.resize(len, 0);
        let source = &self.inner.source;
        source
            .read_exact_bytes_at(first.start, out)
            .map_err(|e| self.name(Error::io("read the hot pack", e)))
    }

    /// A reader of frames.
    pub fn frame_reader(&self) -> FrameReader {
        FrameReader {
            pack: self.clone(),
            decoder: Mutex::default(),
            stored: Vec::new(),
            decoded: AlignedBuf::zeroed(0, PAGE as usize),
            held: None,
        }
    }

    /// Compares an image with the identity, and then decodes every frame, and compares it with the files
    /// of `origin`.
    ///
    /// Each of the first 100 faults goes to `on_fault`, in order; damage does not end the check, but the identity of
    /// another image does.
    ///
    /// # Errors
    ///
    /// `Io` if pack or files cannot be read.
    pub fn verify(
        &self,
        origin: &Origin,
        work: &Work,
        mut on_fault: impl FnMut(Error),
    ) -> Result<HotChecked> {
        let mut checked = HotChecked::default();
        if let Some(image) = origin.as_image()
            && !self.is_of(image)?
        {
            let reason = "the identity is that of another image, allowed is that of this one, \
                          so that no launch uses the pack"
                .to_owned();
            let (list, index) = ("table", 0);
            let fault = Error::corrupt(Location::Item { list, index }, Corrupt::Text { reason });
            checked.faults += 1;
            on_fault(self.name(fault.about("hot pack")));
            return Ok(checked);
        }
        ordered::for_each(
            work.thread_count(),
            work.thread_count().saturating_mul(4),
            0..self.frame_count(),
            || (self.frame_reader(), Vec::new()),
            |(reader, contents), number| {
                let result = reader.compare(number, origin, contents);
                let len = self.table().frames[number].len as u64;
                (result, len, work.tell(len))
            },
            |(result, len, goes_on)| match result {
                Ok(()) => {
                    checked.frames += 1;
                    checked.bytes += len;
                    goes_on
                }
                Err(e) if e.kind() == ErrorKind::Corrupt => {
                    checked.faults += 1;
                    if checked.faults <= MOST_FAULTS {
                        on_fault(self.name(e));
                    }
                    goes_on
                }
                Err(e) => Err(e),
            },
        )?;
        Ok(checked)
    }

    fn name(&self, error: Error) -> Error {
        match &self.inner.path {
            Some(path) => error.with_path(path),
            None => error,
        }
    }
}

impl std::fmt::Debug for HotPack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HotPack")
            .field("path", &self.inner.path)
            .field("header", &self.inner.header)
            .finish_non_exhaustive()
    }
}

fn page_range(range: &format::Range) -> PageRange {
    PageRange {
        // The number came from one of 32 bits.
        file: u32::try_from(range.file).unwrap_or(u32::MAX),
        first: range.first,
        count: range.count,
    }
}

fn reference(word: u64) -> Option<InodeRef> {
    InodeRef::parse(word, Location::Byte(0)).ok()
}

impl<'a> HotFile<'a> {
    /// The path in the tree.
    pub fn path(&self) -> &'a Path {
        Path::new(OsStr::from_bytes(self.table.name(self.file.path)))
    }

    /// Bytes of the file.
    pub fn len(&self) -> u64 {
        self.file.len
    }

    /// True for a file of no bytes, which no pack has.
    pub fn is_empty(&self) -> bool {
        self.file.len == 0
    }

    /// BLAKE3 of the whole file.
    pub fn digest(&self) -> [u8; 32] {
        self.file.digest
    }

    /// The file's inode, if the pack is of an image.
    pub fn inode(&self) -> Option<InodeRef> {
        match self.table.identity {
            Some(_) => reference(self.file.inode),
            None => None,
        }
    }

    /// Whether this is the file with `metadata`: same length, times and inode number. Never for a
    /// pack of an image.
    pub fn is(&self, metadata: &Metadata) -> bool {
        metadata.len() == self.len() && self.stamp() == Some(Stamp::of(metadata))
    }
}

impl HotFile<'_> {
    fn stamp(&self) -> Option<Stamp> {
        let format::File {
            mtime,
            ctime,
            inode,
            ..
        } = *self.file;
        match self.table.identity {
            Some(_) => self.inode().map(Stamp::Image),
            None => Some(Stamp::Tree {
                mtime,
                ctime,
                ino: inode,
            }),
        }
    }
}

impl FrameReader {
    /// Reads and decodes the frame with this number. It returns the frame's ranges in order, each with its bytes. Only the last
    /// page of a file may be short.
    ///
    /// # Errors
    ///
    /// `Corrupt` if its bytes are damaged: ignore it; `Io` if they cannot be read, and `Input` if
    /// there is no such frame.
    pub fn read(&mut self, number: usize) -> Result<impl Iterator<Item = (PageRange, &[u8])>> {
        let frame = self.pack.frame_at(number)?;
        let mut stored = std::mem::take(&mut self.stored);
        if stored.len() < frame.stored {
            stored.resize(frame.stored, 0);
        }
        let bytes = &mut stored[..frame.stored];
        let source = &self.pack.inner.source;
        let read = source
            .read_exact_bytes_at(frame.start, bytes)
            .map_err(|e| self.pack.name(Error::io("read the hot pack", e)));
        let decoded = read.and_then(|()| self.hold(frame, bytes));
        self.stored = stored;
        decoded?;
        Ok(self.pieces(frame))
    }

    /// The same of the frame that was decoded last. None before the first one, and after an error.
    pub fn held(&self) -> Option<impl Iterator<Item = (PageRange, &[u8])>> {
        Some(self.pieces(self.held?))
    }

    /// As [`FrameReader::read`], of `stored` bytes that the caller has read: those at
    /// [`HotFrame::stored`].
    pub fn decode<'a>(
        &'a mut self,
        number: usize,
        stored: &[u8],
    ) -> Result<impl Iterator<Item = (PageRange, &'a [u8])> + use<'a>> {
        let frame = self.pack.frame_at(number)?;
        self.hold(frame, stored)?;
        Ok(self.pieces(frame))
    }

    /// Decodes a frame. After an error, the reader holds none.
    fn hold(&mut self, frame: format::Frame, stored: &[u8]) -> Result<()> {
        self.held = None;
        self.decode_to_buffer(&frame, stored)?;
        self.held = Some(frame);
        Ok(())
    }

    fn decode_to_buffer(&mut self, frame: &format::Frame, stored: &[u8]) -> Result<()> {
        let corrupt = |reason: String| {
            let (what, codec) = ("a frame", self.pack.codec().name());
            let what = Corrupt::Decode {
                what,
                codec,
                reason,
            };
            self.pack
                .name(Error::corrupt(Location::Byte(frame.start), what).about("hot pack"))
        };
        if stored.len() != frame.stored || XxHash3_64::oneshot(stored) != frame.checksum {
            return Err(corrupt("its checksum is of other bytes".to_owned()));
        }
        if self.decoded.len() < frame.len {
            // Not once for each frame that is a little longer.
            self.decoded = AlignedBuf::zeroed(frame.len.next_power_of_two(), PAGE as usize);
        }
        let decoded = &mut self.decoded[..frame.len];
        if frame.is_raw {
            // Invariant 4 of the table.
            decoded.copy_from_slice(stored);
            return Ok(());
        }
        let decoder = self.decoder.get_mut();
        let decoder = match decoder.unwrap_or_else(PoisonError::into_inner) {
            Some(decoder) => decoder,
            none => none.insert(Decoder::new(self.pack.codec(), Decoders::Fastest)?),
        };
        match decoder.decode(stored, decoded) {
            Ok(n) if n == frame.len => Ok(()),
            Ok(n) => Err(corrupt(format!(
                "decodes to {n} bytes, allowed is {}",
                frame.len
            ))),
            Err(e) => Err(corrupt(e.reason)),
        }
    }

    fn pieces(&self, frame: format::Frame) -> impl Iterator<Item = (PageRange, &[u8])> {
        let ranges = &self.pack.table().ranges[frame.first_range..frame.end_range];
        let mut rest = &self.decoded[..frame.len];
        ranges.iter().map(move |range| {
            // Invariant 4 of the table: the ranges are as long as the frame.
            let (bytes, behind) = rest.split_at(range.len);
            rest = behind;
            (page_range(range), bytes)
        })
    }

    /// Checks that the frame has the bytes that the files of `origin` have.
    fn compare(&mut self, number: usize, origin: &Origin, contents: &mut Vec<u8>) -> Result<()> {
        let pack = self.pack.clone();
        let frame = pack.frame_at(number)?;
        for (range, bytes) in self.read(number)? {
            let path = pack
                .file(range.file as usize)
                .map_or(Path::new(""), |file| file.path());
            let other = |reason: &str| {
                let reason = format!("{}: {reason}", path.display());
                Error::corrupt(Location::Byte(frame.start), Corrupt::Text { reason })
                    .about("hot pack")
            };
            let Some(file) = origin.open(path)? else {
                return Err(other("the file is not there"));
            };
            let at = range.first * format::PAGE;
            if file.len() < at + bytes.len() as u64 {
                return Err(other("the file is shorter"));
            }
            contents.resize(bytes.len(), 0);
            file.read_exact_at(at, contents)?;
            // As a whole first, which is a call of memcmp.
            if contents != bytes
                && let Some(first) = contents.iter().zip(bytes).position(|(a, b)| a != b)
            {
                let first = at + first as u64;
                return Err(other(&format!("the file has other bytes from {first} on")));
            }
            // Of a directory, files may be new and have the same bytes.
            let known = pack.file(range.file as usize);
            let is_file = |known: HotFile<'_>| {
                known.len() == file.len() && known.stamp() == Some(file.stamp())
            };
            if origin.as_image().is_some() && !known.is_some_and(is_file) {
                return Err(other("the pack has its pages for another file, or length"));
            }
        }
        Ok(())
    }
}

impl HotPack {
    fn frame_at(&self, number: usize) -> Result<format::Frame> {
        let frames = &self.table().frames;
        frames.get(number).copied().ok_or_else(|| {
            let text = format!("frame is {number}, allowed is less than {}", frames.len());
            Error::input(text)
        })
    }
}
