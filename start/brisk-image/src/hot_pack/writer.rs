//! Writing hot packs.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use brisk_io::ByteSource;
use serde::Serialize;
use twox_hash::XxHash3_64;
use zerocopy::IntoBytes;

use super::format::{
    self, DirectoryWire, FileWire, FrameWire, HeaderWire, LookUpWire, RAW, RangeWire, TableWire,
};
use crate::codec::{Codec, Compression, Encoder};
use crate::error::{Error, Result};
#[cfg(feature = "write")]
use crate::format::section;
use crate::ordered;
use crate::output::{Output, OutputFile, directory_of};
use crate::profile::origin::{Origin, OriginFile, Stamp};
use crate::profile::{Asked, PAGE, PageRange, Profile};
use crate::read::inode_reader::InodeRef;
use crate::work::{Work, set_work};

/// The level of zstd for the table: it is small, and read at every launch.
const TABLE_LEVEL: u8 = 19;

/// Bytes of the first frame, at most: the launch waits for all of it.
const FIRST_FRAME: u64 = 128 << 10;

/// Pages of the part of a file, aligned to its own size, that a hot pack for the network has all of if it has one: 128 KiB.
const NEIGHBOURHOOD: u64 = 32;

/// What a hot pack is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Prefer {
    /// Fast disks: lz4, at its highest level.
    #[default]
    Speed,
    /// Slow disks and small downloads: zstd 15.
    Size,
    /// Starts over a network: zstd 19, and behind the pages of the launch their neighbours, for launches with another input.
    Remote,
}

impl Prefer {
    fn compression(self) -> Compression {
        match self {
            Self::Speed => Compression::Lz4 { high: Some(12) },
            Self::Size => Compression::Zstd { level: 15 },
            // An eighth less than level 15 for pages of Chromium, and decoding stays ten times as fast as such lines.
            Self::Remote => Compression::Zstd { level: 19 },
        }
    }

    /// Bytes that a frame decodes to, at most.
    fn frame(self) -> usize {
        match self {
            // What lz4 finds is at most 64 KiB back.
            Self::Speed => 128 << 10,
            // In what is larger than 256 KiB, this level leaves out short matches, and that decodes fast.
            Self::Size | Self::Remote => 1 << 20,
        }
    }

    /// `speed`, `size` or `remote`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Speed => "speed",
            Self::Size => "size",
            Self::Remote => "remote",
        }
    }
}

impl FromStr for Prefer {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let all = [Self::Speed, Self::Size, Self::Remote];
        all.into_iter()
            .find(|prefer| prefer.name() == name)
            .ok_or_else(|| {
                Error::input(format!(
                    "preference is {name:?}, allowed is speed, size or remote"
                ))
            })
    }
}

/// Writes the pages that a [`Profile`] asks for as a [`HotPack`](crate::hot_pack::HotPack).
///
/// The same profile, files and options give the same bytes, at any number of threads.
#[derive(Debug, Clone)]
pub struct HotPackWriter {
    prefer: Prefer,
    work: Work,
    frame: Option<usize>,
    digests: bool,
}

/// The names that the launches of a profile looked up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct WrittenLookUps {
    /// Names in the pack that exist.
    pub found: u64,
    /// Names in the pack that do not exist.
    pub absent: u64,
    /// Names that are left out, because they were found and are absent now, or the reverse.
    pub changed: u64,
}

/// What a hot pack holds, and what it lacks of the profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct HotSummary {
    /// Files with pages in the pack.
    pub files: u64,
    /// Pages of the launch in the pack.
    pub pages: u64,
    /// Pages near those in the pack, for launches with another input.
    pub neighbours: u64,
    /// Size of all these pages.
    pub bytes: u64,
    /// Size of the pack.
    pub file_bytes: u64,
    /// Frames; a whole frame is decoded at once.
    pub frames: u64,
    /// Names that the launches looked up.
    pub look_ups: WrittenLookUps,
    /// Pages of the profile that are left out, because their file changed or is gone.
    pub stale_pages: u64,
    /// Files of these pages.
    pub stale_files: u64,
    /// Pages of the profile that belong to other roots.
    pub outside_pages: u64,
}

impl HotSummary {
    /// What is left out, as a sentence for a person; none if nothing is.
    pub fn left_out(&self) -> Option<String> {
        let count = |n: u64, one: &str, many: &str| match n {
            1 => format!("1 {one}"),
            n => format!("{n} {many}"),
        };
        let mut parts = Vec::new();
        if self.stale_pages > 0 {
            parts.push(format!(
                "{} of {}",
                count(self.stale_pages, "page", "pages"),
                count(
                    self.stale_files,
                    "file that changed or is gone",
                    "files that changed or are gone"
                )
            ));
        }
        if self.look_ups.changed > 0 {
            let look_ups = count(self.look_ups.changed, "look-up", "look-ups");
            parts.push(format!("{look_ups} with another answer"));
        }
        match parts.is_empty() {
            true => None,
            false => Some(format!(
                "left out of the hot pack: {}; record the profile again to have them",
                parts.join(", ")
            )),
        }
    }
}

impl Default for HotPackWriter {
    fn default() -> Self {
        Self {
            prefer: Prefer::default(),
            work: Work::default(),
            frame: None,
            digests: true,
        }
    }
}

impl HotPackWriter {
    /// For speed.
    pub fn new() -> Self {
        Self::default()
    }

    /// Which disks the pack is made for.
    #[must_use]
    pub fn prefer(mut self, prefer: Prefer) -> Self {
        self.prefer = prefer;
        self
    }

    set_work!();

    /// The most bytes that a frame decodes to: 4 KiB to 1 MiB, in whole pages. The default is 128
    /// KiB for speed and 1 MiB for size. The first frames have at most 128 KiB, and no frame has
    /// more bytes than all before it.
    #[must_use]
    pub fn frame_size(mut self, bytes: usize) -> Self {
        self.frame = Some(bytes);
        self
    }

    /// Whether to read all of each file, compare it with the digest in the profile, and put its
    /// digest into the pack. The default is yes. If not, a file of the same length counts as the
    /// same, and a digest that the profile lacks is zeros in the pack.
    #[must_use]
    pub fn digests(mut self, digests: bool) -> Self {
        self.digests = digests;
        self
    }

    /// Writes the pages of `origin` that `profile` asks for, as a hot pack in a new file at `path`.
    /// It replaces a file of that name when it is complete.
    ///
    /// It leaves out files that have changed since the profile was recorded, and counts them.
    ///
    /// # Errors
    ///
    /// `Input` if nothing is left or the profile has no such root, `Io` for what cannot be read or
    /// written, and `Cancelled`.
    pub fn write(
        &self,
        profile: &Profile,
        origin: &Origin,
        path: impl AsRef<Path>,
    ) -> Result<HotSummary> {
        let path = path.as_ref();
        let built = self.build(profile, origin, directory_of(path), &self.work)?;
        let mut out = OutputFile::create(path)?;
        built.copy_to(|bytes| out.append(bytes))?;
        // The last time to say no.
        self.work.ask()?;
        out.finish()?;
        Ok(built.summary)
    }

    /// The hot pack, with its frames in a temporary file in `spool`.
    pub(crate) fn build(
        &self,
        profile: &Profile,
        origin: &Origin,
        spool: &Path,
        work: &Work,
    ) -> Result<Built> {
        let frame = self.frame.unwrap_or(self.prefer.frame()) as u64;
        if !(PAGE..=format::MAX_FRAME).contains(&frame) || !frame.is_multiple_of(PAGE) {
            return Err(Error::input(format!(
                "frame size is {frame}, allowed is a multiple of 4096 from 4096 to 1048576"
            )));
        }
        let profile = &*origin.narrow(profile)?;
        let root = origin.root_of(profile)?;
        let mut contents = Contents::find(self, profile, origin, root, work)?;
        contents.lay_out(profile, origin, root, frame)?;
        if self.prefer == Prefer::Remote {
            contents.add_neighbours(frame.min(NEIGHBOURHOOD * PAGE))?;
        }
        if contents.summary.pages == 0 {
            let stale = contents.summary.stale_pages;
            let text = match stale {
                0 => "the profile asks for no page of it; record it from this tree".to_owned(),
                _ => format!(
                    "none of the {stale} pages that the profile asks for is of a file that is still \
                     the same; record it again"
                ),
            };
            return Err(origin.name(Error::input(text)));
        }
        self.encode(contents, origin, spool, work)
    }

    fn encode(
        &self,
        mut contents: Contents,
        origin: &Origin,
        spool: &Path,
        work: &Work,
    ) -> Result<Built> {
        let compression = self.prefer.compression();
        let named =
            |e: io::Error| Error::io("write the frames to a temporary file", e).with_path(spool);
        let mut data = tempfile::tempfile_in(spool).map_err(named)?;
        let mut frames = Vec::new();
        let mut data_stored = 0u64;
        let (files, ranges) = (&contents.files, &contents.ranges);
        let jobs = contents
            .frames
            .windows(2)
            .map(|pair| &ranges[pair[0]..pair[1]]);
        ordered::for_each(
            work.thread_count(),
            work.thread_count().saturating_mul(4),
            jobs,
            || (None, Vec::new()),
            |(encoder, decoded), ranges| {
                let encoder = match encoder {
                    Some(encoder) => encoder,
                    None => encoder.insert(Encoder::new(&compression, format::MAX_FRAME as u32)?),
                };
                read_ranges(origin, files, ranges, decoded)?;
                let mut stored = Vec::new();
                let is_raw = !encoder.encode(decoded, &mut stored)?;
                if is_raw {
                    stored.extend_from_slice(decoded);
                }
                work.tell(decoded.len() as u64)?;
                Ok((ranges.len(), stored, is_raw))
            },
            |result: Result<(usize, Vec<u8>, bool)>| {
                let (ranges, stored, is_raw) = result?;
                data.write_all(&stored).map_err(named)?;
                data_stored += stored.len() as u64;
                let flag = if is_raw { RAW } else { 0 };
                frames.push(FrameWire {
                    ranges: number(ranges)?.into(),
                    stored: (number(stored.len())? | flag).into(),
                    checksum: XxHash3_64::oneshot(&stored).into(),
                });
                Ok(())
            },
        )?;
        let identity = match origin.as_image() {
            Some(image) => Some(image.identity()?),
            None => None,
        };
        let table = contents.table(identity, &frames)?;
        let mut stored = Vec::new();
        let zstd = Compression::Zstd { level: TABLE_LEVEL };
        if !Encoder::new(&zstd, format::MAX_FRAME as u32)?.encode(&table, &mut stored)? {
            stored.extend_from_slice(&table);
        }
        let codec = compression.codec().unwrap_or(Codec::Zstd);
        let mut header = HeaderWire {
            magic: format::MAGIC,
            version: format::VERSION.into(),
            codec: u32::from(codec.to_wire()).into(),
            table_stored: number(stored.len())?.into(),
            table_len: number(table.len())?.into(),
            data_stored: data_stored.into(),
            data_len: contents.bytes.into(),
            pages: contents.pages.into(),
            checksum: [0; 16],
        };
        header.checksum = format::checksum(&header, &stored);
        let mut front = header.as_bytes().to_vec();
        front.extend_from_slice(&stored);
        contents.summary.frames = frames.len() as u64;
        contents.summary.file_bytes = front.len() as u64 + data_stored;
        let summary = contents.summary;
        data.seek(SeekFrom::Start(0)).map_err(named)?;
        Ok(Built {
            front,
            data,
            data_stored,
            summary,
        })
    }
}

/// A hot pack that is complete, and not yet written anywhere.
pub(crate) struct Built {
    /// Header and table.
    front: Vec<u8>,
    data: File,
    data_stored: u64,
    pub(crate) summary: HotSummary,
}

impl Built {
    /// Gives all bytes to `sink`, in order.
    pub(crate) fn copy_to(&self, mut sink: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        sink(&self.front)?;
        let mut buf = vec![0; 1 << 20];
        let mut at = 0;
        while at < self.data_stored {
            let left = usize::try_from(self.data_stored - at).unwrap_or(usize::MAX);
            let n = left.min(buf.len());
            let part = &mut buf[..n];
            ByteSource::read_exact_bytes_at(&self.data, at, part)
                .map_err(|e| Error::io("read the frames from a temporary file", e))?;
            sink(part)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Appends the pack as a section behind an image.
    #[cfg(feature = "write")]
    pub(crate) fn append_section(&self, out: &mut dyn Output) -> Result<()> {
        out.pad_to(section::ALIGN)?;
        let at = out.len();
        // The digest is known when all of it was written.
        let mut header = section::Wire::new(section::SectionKind::HOT_PACK, &[]);
        out.append(header.as_bytes())?;
        let mut hasher = blake3::Hasher::new();
        self.copy_to(|bytes| {
            hasher.update(bytes);
            out.append(bytes)
        })?;
        header.len = (self.front.len() as u64 + self.data_stored).into();
        header.digest = *hasher.finalize().as_bytes();
        out.write_at(at, header.as_bytes())
    }
}

/// A file of the profile that is still what it was, so that the pack has pages of it.
struct CurrentFile {
    path: PathBuf,
    len: u64,
    digest: [u8; 32],
    stamp: Stamp,
}

/// Ranges in the order of their files and pages, and not in the order in which a launch asks for them.
/// A launch asks for neighbouring pages one by one, and storing takes a call for each range.
///
/// The first windows are small, because the launch waits for them. A launch asks for the pages of a
/// later window long after a fill can have stored them.
///
/// Invariant: a window of more than one range has no more than 32 pages, or an eighth of those before it.
#[derive(Default)]
struct Window {
    ranges: Vec<PageRange>,
    pages: u64,
}

impl Window {
    /// Pages of the first window, at most.
    const FIRST: u64 = 32;

    /// A window has at most this part of the pages before it.
    const PART: u64 = 8;

    fn add(&mut self, file: u32, range: &PageRange) {
        self.ranges.push(PageRange { file, ..*range });
        self.pages += range.count;
    }

    /// Whether a range of `count` pages may be added. `before`: the pages of the windows before.
    fn has_room(&self, count: u64, before: u64) -> bool {
        let most = Self::FIRST.max(before / Self::PART);
        self.ranges.is_empty() || self.pages + count <= most
    }

    /// Empties the window. The ranges have gaps between them.
    fn take(&mut self) -> Vec<PageRange> {
        self.pages = 0;
        let mut ranges = std::mem::take(&mut self.ranges);
        ranges.sort_unstable_by_key(|range| (range.file, range.first));
        ranges.dedup_by(|behind, range| {
            let continues = behind.file == range.file && behind.first == range.end();
            if continues {
                range.count += behind.count;
            }
            continues
        });
        ranges
    }
}

/// What a pack will have.
struct Contents {
    /// The files of the profile that are the same; after [`Contents::lay_out`] those with pages, in the
    /// order in which a launch first asks for them.
    files: Vec<CurrentFile>,
    /// By the number of the profile, that in `files`.
    kept: Vec<Option<usize>>,
    directories: Vec<(PathBuf, Option<InodeRef>)>,
    /// None of them crosses the end of a frame; `file` is a number in `files`.
    ranges: Vec<PageRange>,
    /// The first range of each frame, and the number of ranges.
    frames: Vec<usize>,
    /// How many frames at the end have neighbours, and no pages that the launch asks for.
    neighbour_frames: usize,
    /// Of all ranges.
    pages: u64,
    bytes: u64,
    look_ups: Vec<(usize, Box<[u8]>, bool, usize)>,
    summary: HotSummary,
}

impl Contents {
    /// Finds the files of `root` that are still the same.
    fn find(
        writer: &HotPackWriter,
        profile: &Profile,
        origin: &Origin,
        root: u32,
        work: &Work,
    ) -> Result<Self> {
        let mut contents = Self {
            files: Vec::new(),
            kept: Vec::with_capacity(profile.files().len()),
            directories: Vec::new(),
            ranges: Vec::new(),
            frames: vec![0],
            neighbour_frames: 0,
            pages: 0,
            bytes: 0,
            look_ups: Vec::new(),
            summary: HotSummary {
                files: 0,
                pages: 0,
                neighbours: 0,
                bytes: 0,
                file_bytes: 0,
                frames: 0,
                look_ups: WrittenLookUps::default(),
                stale_pages: 0,
                stale_files: 0,
                outside_pages: 0,
            },
        };
        let demand = profile.demand_by_file();
        let mut pages = demand.iter().map(|(pages, _)| *pages);
        ordered::for_each(
            work.thread_count(),
            work.thread_count().saturating_mul(8),
            profile.files().iter().zip(&demand),
            || (),
            |(), (file, (pages, _))| {
                if file.root != root || *pages == 0 {
                    return Ok(None);
                }
                let Some(found) = origin
                    .open(&file.path)?
                    .filter(|found| found.len() == file.len)
                else {
                    return Ok(None);
                };
                let digest = match writer.digests {
                    true => found.digest()?,
                    false => file.digest.unwrap_or_default(),
                };
                work.tell(file.len)?;
                let (path, len, stamp) = (file.path.clone(), file.len, found.stamp());
                let same = file.digest.is_none_or(|known| known == digest);
                Ok(same.then_some(CurrentFile {
                    path,
                    len,
                    digest,
                    stamp,
                }))
            },
            |found: Result<Option<CurrentFile>>| {
                let number = contents.kept.len();
                let pages = pages.next().unwrap_or(0);
                match found? {
                    Some(file) => {
                        contents.kept.push(Some(contents.files.len()));
                        contents.files.push(file);
                        return Ok(());
                    }
                    None if profile.files()[number].root != root => {
                        contents.summary.outside_pages =
                            contents.summary.outside_pages.saturating_add(pages);
                    }
                    None => {
                        contents.summary.stale_files += u64::from(pages > 0);
                        contents.summary.stale_pages =
                            contents.summary.stale_pages.saturating_add(pages);
                    }
                }
                contents.kept.push(None);
                Ok(())
            },
        )?;
        Ok(contents)
    }

    /// Puts ranges and look-ups in the order of the profile, window by window, and the ranges in frames.
    fn lay_out(&mut self, profile: &Profile, origin: &Origin, root: u32, frame: u64) -> Result<()> {
        let mut unordered: Vec<Option<CurrentFile>> = std::mem::take(&mut self.files)
            .into_iter()
            .map(Some)
            .collect();
        let mut numbers: Vec<Option<usize>> = vec![None; unordered.len()];
        let mut directories: HashMap<u32, Option<usize>> = HashMap::new();
        let mut in_frame = 0;
        let mut window = Window::default();
        for step in profile.steps() {
            match &step.asked {
                Asked::Pages(range) => {
                    let Some(kept) = self.kept[range.file as usize] else {
                        continue;
                    };
                    if let Some(file) = unordered[kept].take() {
                        numbers[kept] = Some(self.files.len());
                        self.files.push(file);
                    }
                    let Some(file) = numbers[kept] else { continue };
                    if !window.has_room(range.count, self.pages) {
                        self.add_ranges(window.take(), frame, &mut in_frame)?;
                    }
                    window.add(number(file)?, range);
                }
                Asked::LookUp(look_up) => {
                    let directory = &profile.directories()[look_up.directory as usize];
                    if directory.root != root {
                        continue;
                    }
                    let known = match directories.get(&look_up.directory) {
                        Some(known) => *known,
                        None => {
                            let found = origin.directory_at(&directory.path)?;
                            let number = found.map(|reference| {
                                self.directories.push((directory.path.clone(), reference));
                                self.directories.len() - 1
                            });
                            directories.insert(look_up.directory, number);
                            number
                        }
                    };
                    let is_there = origin.exists(&directory.path.join(&look_up.name))?;
                    let Some(known) = known.filter(|_| is_there == look_up.found) else {
                        self.summary.look_ups.changed += 1;
                        continue;
                    };
                    match look_up.found {
                        true => self.summary.look_ups.found += 1,
                        false => self.summary.look_ups.absent += 1,
                    }
                    let name = look_up.name.as_bytes().into();
                    self.look_ups
                        .push((known, name, look_up.found, self.ranges.len()));
                }
            }
        }
        self.add_ranges(window.take(), frame, &mut in_frame)?;
        if in_frame > 0 {
            self.frames.push(self.ranges.len());
        }
        self.summary.files = self.files.len() as u64;
        (self.summary.pages, self.summary.bytes) = (self.pages, self.bytes);
        Ok(())
    }

    /// Adds frames with the other pages of each part of a file that has pages of the launch. The part that the launch needs first is
    /// first. The frames are small, because programs ask for them one by one, and wait.
    fn add_neighbours(&mut self, frame: u64) -> Result<()> {
        let mut parts: HashMap<(u32, u64), u32> = HashMap::new();
        let mut order = Vec::new();
        for range in &self.ranges {
            for page in range.first..range.end() {
                let part = (range.file, page / NEIGHBOURHOOD);
                let known = parts.entry(part).or_insert_with(|| {
                    order.push(part);
                    0
                });
                *known |= 1 << (page % NEIGHBOURHOOD);
            }
        }
        let launch = self.frames.len();
        let mut in_frame = 0;
        for part @ (file, number) in order {
            let known = parts.get(&part).copied().unwrap_or(u32::MAX);
            let first = number * NEIGHBOURHOOD;
            let pages = self.files[file as usize].len.div_ceil(PAGE) - first;
            let mut ranges: Vec<PageRange> = Vec::new();
            for at in (0..pages.min(NEIGHBOURHOOD)).filter(|at| known & 1 << at == 0) {
                let first = first + at;
                match ranges.last_mut() {
                    Some(range) if range.end() == first => range.count += 1,
                    _ => ranges.push(PageRange {
                        file,
                        first,
                        count: 1,
                    }),
                }
            }
            self.add_ranges(ranges, frame, &mut in_frame)?;
        }
        if in_frame > 0 {
            self.frames.push(self.ranges.len());
        }
        self.neighbour_frames = self.frames.len() - launch;
        self.summary.neighbours = self.pages - self.summary.pages;
        self.summary.bytes = self.bytes;
        Ok(())
    }

    /// Adds `ranges`, each in as many parts as there are frames that it is in: of `frame` bytes at most,
    /// and of fewer at first. `in_frame` are the bytes in the last one.
    fn add_ranges(&mut self, ranges: Vec<PageRange>, frame: u64, in_frame: &mut u64) -> Result<()> {
        for PageRange { file, first, count } in ranges {
            let len = self.files[file as usize].len;
            let (mut first, mut left) = (first, count);
            while left > 0 {
                let before = self.bytes - *in_frame;
                let most = before.clamp(FIRST_FRAME.min(frame), frame);
                // The end of a file may have left a part of a page.
                let room = (most - *in_frame) / PAGE;
                if room == 0 {
                    self.frames.push(self.ranges.len());
                    *in_frame = 0;
                    continue;
                }
                let count = left.min(room);
                let part = PageRange { file, first, count };
                let bytes = part.bytes_of(len);
                self.ranges.push(part);
                self.pages += count;
                self.bytes += bytes;
                *in_frame += bytes;
                (first, left) = (first + count, left - count);
            }
        }
        Ok(())
    }

    /// The table, before it is compressed.
    fn table(&self, identity: Option<[u8; 32]>, frames: &[FrameWire]) -> Result<Vec<u8>> {
        let mut names = Names::default();
        let mut files = Vec::with_capacity(self.files.len());
        for CurrentFile {
            path,
            len,
            digest,
            stamp,
        } in &self.files
        {
            let (path_start, path_len) = names.add(path.as_os_str().as_bytes())?;
            let (mtime, ctime, inode) = match *stamp {
                Stamp::Tree { mtime, ctime, ino } => (mtime, ctime, ino),
                Stamp::Image(InodeRef(reference)) => ((0, 0), (0, 0), reference.encode()),
            };
            files.push(FileWire {
                path_start: path_start.into(),
                path_len: path_len.into(),
                len: (*len).into(),
                digest: *digest,
                mtime: mtime.0.into(),
                ctime: ctime.0.into(),
                mtime_ns: mtime.1.into(),
                ctime_ns: ctime.1.into(),
                inode: inode.into(),
            });
        }
        let mut directories = Vec::with_capacity(self.directories.len());
        for (path, reference) in &self.directories {
            let (path_start, path_len) = names.add(path.as_os_str().as_bytes())?;
            directories.push(DirectoryWire {
                path_start: path_start.into(),
                path_len: path_len.into(),
                inode: reference
                    .map_or(0, |InodeRef(reference)| reference.encode())
                    .into(),
            });
        }
        let mut ranges = Vec::with_capacity(self.ranges.len());
        for PageRange { file, first, count } in &self.ranges {
            // A frame has no more pages than fit in 32 bits.
            let count = u32::try_from(*count).map_err(|_| too_many("pages of a range", *count))?;
            ranges.push(RangeWire {
                file: (*file).into(),
                count: count.into(),
                first: (*first).into(),
            });
        }
        let mut look_ups = Vec::with_capacity(self.look_ups.len());
        for (directory, name, found, before) in &self.look_ups {
            let (name_start, name_len) = names.add(name)?;
            look_ups.push(LookUpWire {
                directory: number(*directory)?.into(),
                name_start: name_start.into(),
                // A profile has no name of more than 255 bytes.
                name_len: u16::try_from(name_len).unwrap_or(u16::MAX).into(),
                found: u16::from(*found).into(),
                before: number(*before)?.into(),
            });
        }
        let counts = TableWire {
            kind: if identity.is_some() { 2 } else { 1 }.into(),
            files: number(files.len())?.into(),
            directories: number(directories.len())?.into(),
            ranges: number(ranges.len())?.into(),
            look_ups: number(look_ups.len())?.into(),
            frames: number(frames.len())?.into(),
            names: number(names.bytes.len())?.into(),
            neighbours: number(self.neighbour_frames)?.into(),
            identity: identity.unwrap_or_default(),
        };
        let parts = [
            counts.as_bytes(),
            files.as_bytes(),
            directories.as_bytes(),
            ranges.as_bytes(),
            look_ups.as_bytes(),
            frames.as_bytes(),
            &names.bytes,
        ];
        Ok(parts.concat())
    }
}

/// The names of a table: those that are the same are there once.
#[derive(Default)]
struct Names<'a> {
    bytes: Vec<u8>,
    known: HashMap<&'a [u8], u32>,
}

impl<'a> Names<'a> {
    /// Where `name` starts, and its length.
    fn add(&mut self, name: &'a [u8]) -> Result<(u32, u32)> {
        let len = number(name.len())?;
        if let Some(start) = self.known.get(name) {
            return Ok((*start, len));
        }
        let start = number(self.bytes.len())?;
        self.bytes.extend_from_slice(name);
        self.known.insert(name, start);
        Ok((start, len))
    }
}

/// Replaces the contents of `out` by `ranges`, one behind the other.
fn read_ranges(
    origin: &Origin,
    files: &[CurrentFile],
    ranges: &[PageRange],
    out: &mut Vec<u8>,
) -> Result<()> {
    out.clear();
    let mut open: Option<(u32, OriginFile)> = None;
    for range in ranges {
        let known = &files[range.file as usize];
        let file = match &open {
            Some((number, file)) if *number == range.file => file,
            _ => {
                let changed = || {
                    let text =
                        "file changed while it was read; stop what writes it, or take a copy";
                    origin.name(Error::input(format!("{}: {text}", known.path.display())))
                };
                let file = origin.open(&known.path)?.ok_or_else(changed)?;
                if file.stamp() != known.stamp || file.len() != known.len {
                    return Err(changed());
                }
                &open.insert((range.file, file)).1
            }
        };
        let start = out.len();
        // At most the size of a frame.
        let len = usize::try_from(range.bytes_of(known.len)).unwrap_or(usize::MAX);
        out.resize(start + len, 0);
        file.read_exact_at(range.first * PAGE, &mut out[start..])?;
    }
    Ok(())
}

fn number(n: usize) -> Result<u32> {
    u32::try_from(n).map_err(|_| too_many("a list of a hot pack", n as u64))
}

fn too_many(what: &'static str, n: u64) -> Error {
    Error::limit(what, n, u32::MAX.into())
}
