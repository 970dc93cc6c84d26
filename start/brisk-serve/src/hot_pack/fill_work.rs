//! The work of a fill's threads.

use std::collections::HashMap;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use brisk_image::hot_pack::{HotFile, HotFrame, HotPack};
use brisk_image::profile::{PAGE, PageRange};
use brisk_image::{Image, InodeKind};
use brisk_io::page_size;
use brisk_launch::error::Error;
use brisk_launch::page_log::PageLog;

use super::batch_ring::{Batches, ReadRing};
use super::candidate::unreadable_pack;
use super::decoded_frames::DecodedFrames;
use super::fill_counts::FillCounters;
use super::fill_end::{Stored, Vain, goes_on_behind};
use super::fill_sources::FillSources;
use super::fill_target::FillTarget;
use super::image_blocks::{ImageBlocks, Part};
use super::look_ups::{look_up, look_up_all};
use super::pack_file::PackFile;
use super::page_states::{PageStates, RangeStates};
use crate::action::Action;
use crate::remote::{Absent, Class, ParkingImage};
use crate::whole_pages::whole_pages;

/// What the threads of a fill share.
pub(super) struct FillWork<'a> {
    pub(super) target: &'a dyn FillTarget,
    pub(super) image: &'a Image,
    /// The root of the mount.
    pub(super) root: BorrowedFd<'a>,
    pub(super) pack: &'a HotPack,
    pub(super) file: &'a PackFile,
    /// The blocks of the image that pages come from, if not from the frames of the pack.
    pub(super) blocks: Option<&'a ImageBlocks>,
    pub(super) frames: &'a DecodedFrames,
    pub(super) pages: &'a PageStates,
    pub(super) counters: &'a FillCounters,
    pub(super) log: Option<&'a PageLog>,
    pub(super) tell: fn(&Error),
    pub(super) started: Instant,
    pub(super) sources: &'a FillSources,
    /// Brings the pack, if that arrives.
    pub(super) pack_source: Option<&'a ParkingImage>,
    /// Whether this stores again what an earlier fill has stored.
    pub(super) again: bool,
    /// Whether the fill must end.
    pub(super) ended: &'a AtomicBool,
    pub(super) progress: Progress,
}

/// The progress of the threads.
pub(super) struct Progress {
    /// Whether each file of the pack is in the image as the pack says, and the kernel knows it.
    known: Vec<OnceLock<bool>>,
    /// The next frame.
    next: AtomicUsize,
    /// How many bytes may still be stored.
    left: AtomicU64,
    vain: Vain,
    /// Whether nothing more must be stored.
    over: AtomicBool,
}

impl Progress {
    /// For a pack with this many files. `budget`: how many bytes may be stored.
    pub(super) fn of(files: usize, budget: u64) -> Self {
        Self {
            known: (0..files).map(|_| OnceLock::new()).collect(),
            next: AtomicUsize::new(0),
            left: AtomicU64::new(budget),
            vain: Vain::default(),
            over: AtomicBool::new(false),
        }
    }
}

/// Says that nothing more can be stored.
struct Over;

impl FillWork<'_> {
    fn is_over(&self) -> bool {
        self.progress.over.load(Ordering::Relaxed)
            || self.ended.load(Ordering::Relaxed)
            || self.sources.is_pack_lost()
    }

    /// Waits for what is absent. False if it does not come.
    fn comes(&self, absent: &Absent, class: Class) -> bool {
        self.sources.wait_for(absent, class, &|| self.is_over())
    }

    fn give_up(&self) {
        self.progress.over.store(true, Ordering::Relaxed);
        self.counters.gave_up();
    }

    /// Looks up all names of the pack.
    pub(super) fn prime(&self) {
        look_up_all(self.root, self.pack, self.counters, || self.is_over());
    }

    /// Has fetched what the pack is about, as far as its own frames do not have it: the blocks with its pages, the rest of what it has
    /// pages of in part, and the rest of the files. A launch with another input mostly asks for pages near those of the launch that
    /// was recorded.
    pub(super) fn want_more(&self, arriving: &ParkingImage) {
        let has_neighbours = self.pack.launch_frame_count() < self.pack.frame_count();
        let class = match (self.blocks, has_neighbours) {
            (Some(_), _) => Some(Class::Pack),
            (None, false) => Some(Class::Neighbours),
            (None, true) => None,
        };
        if let Some(class) = class {
            let ranges = (0..self.pack.launch_range_count()).map_while(|n| self.pack.range(n));
            self.want(arriving, class, self.bytes_of(ranges));
        }
        let files = self.pack.files().map(|file| (Some(file), 0..u64::MAX));
        self.want(arriving, Class::Opened, files);
    }

    /// The bytes of ranges, each with its file.
    fn bytes_of(
        &self,
        ranges: impl Iterator<Item = PageRange>,
    ) -> impl Iterator<Item = (Option<HotFile<'_>>, Range<u64>)> {
        ranges.map(|range| {
            let file = self.pack.file(range.file as usize);
            (file, Part::whole(0, range).bytes(u64::MAX))
        })
    }

    /// Wants the blocks that have these bytes of files.
    fn want<'f>(
        &self,
        arriving: &ParkingImage,
        class: Class,
        parts: impl Iterator<Item = (Option<HotFile<'f>>, Range<u64>)>,
    ) {
        let mut blocks = Vec::new();
        for (file, bytes) in parts {
            if self.is_over() {
                return;
            }
            let Some(inode) = file.and_then(|file| file.inode()) else {
                continue;
            };
            let stored = || {
                let reader = self.image.file(&self.image.inode(inode)?)?;
                Ok::<_, brisk_image::Error>(reader.stored_at(bytes.clone()))
            };
            match stored() {
                Ok(stored) => blocks.extend(stored),
                // The tables come soon.
                Err(e) => match Absent::of(&e) {
                    Some(absent) => {
                        self.comes(absent, Class::Tables);
                        blocks.extend(stored().unwrap_or_default());
                    }
                    None => continue,
                },
            }
        }
        for bytes in joined(blocks) {
            arriving.want(&bytes, class);
        }
    }

    /// Reads frames directly, for the threads that store them.
    pub(super) fn read_batches(&self, ring: &ReadRing) {
        let wanted = |frame: &HotFrame| !self.is_over() && self.is_wanted(frame);
        let next = &self.progress.next;
        let read = self.file.read_batches(self.pack, next, wanted, ring);
        self.counters.read_directly(read);
    }

    /// Decodes and stores the frames that were read, and then those that no thread has read.
    pub(super) fn store_frames(&self, batches: Batches) {
        while let Some(batch) = batches.next() {
            if let Err(e) = self.file.check(&batch) {
                self.report(e);
                continue;
            }
            for number in batch.frames() {
                let Some(frame) = self.pack.frame(number) else {
                    return;
                };
                if self.is_over() {
                    return;
                }
                if self.is_wanted(&frame) {
                    self.store_frame(number, &frame, Some(batch.stored(&frame)));
                }
            }
        }
        while !self.is_over() {
            let number = self.progress.next.fetch_add(1, Ordering::Relaxed);
            let Some(frame) = self.pack.frame(number) else {
                return;
            };
            self.file.read_ahead_of(frame.stored.start);
            if self.is_wanted(&frame) {
                self.store_frame(number, &frame, None);
            }
        }
    }

    /// Decodes blocks of the image, and stores the pages of them that the pack lists.
    pub(super) fn store_blocks(&self, blocks: &ImageBlocks) {
        let mut reader = blocks.reader(self.image, self.pack);
        while !self.is_over() {
            let number = self.progress.next.fetch_add(1, Ordering::Relaxed);
            let Some(parts) = blocks.get(number) else {
                return;
            };
            if !parts.iter().any(|part| self.states(part).has_wanted()) {
                continue;
            }
            let read = loop {
                match reader.read(parts) {
                    Ok((start, bytes)) => break self.store_parts(parts, start, bytes),
                    Err(e) => match Absent::of(&e) {
                        Some(absent) if self.comes(absent, Class::Pack) => {}
                        Some(_) => return,
                        None => {
                            self.report(e);
                            break Ok(());
                        }
                    },
                }
            };
            if read.is_err() {
                self.progress.over.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Stores parts of a block. `start`: where in their file `bytes` begin.
    fn store_parts(&self, parts: &[Part], start: u64, bytes: &[u8]) -> Result<(), Over> {
        let mut stored = false;
        for part in parts {
            let from = part.first.saturating_mul(PAGE).saturating_sub(start);
            let from = usize::try_from(from).unwrap_or(usize::MAX);
            stored |= self.store_part(part, bytes.get(from..).unwrap_or(&[]))?;
        }
        self.note(bytes.len(), stored);
        Ok(())
    }

    /// Whether the frame has a page that was neither asked for nor stored. Only an image that arrives has neighbours stored: what is
    /// on a disk is read there when somebody asks for it.
    fn is_wanted(&self, frame: &HotFrame) -> bool {
        if self.pack_source.is_none() && frame.ranges.start >= self.pack.launch_range_count() {
            return false;
        }
        frame.ranges.clone().any(|number| {
            let count = self.pack.range(number).map_or(0, |range| range.count);
            self.pages.of_range(number, count).has_wanted()
        })
    }

    /// Stores the frame with this number. `stored`: its stored bytes, if they were read.
    fn store_frame(&self, number: usize, frame: &HotFrame, stored: Option<&[u8]>) {
        // Not while the frame is locked: threads that answer must not wait for the network.
        if let Some(arriving) = self.pack_source {
            let bytes = self.file.in_file(&frame.stored);
            let class = match number < self.pack.launch_frame_count() {
                true => Class::Pack,
                false => Class::Neighbours,
            };
            if !arriving.wait_for(&bytes, class, &|| self.is_over()) || !self.is_wanted(frame) {
                return;
            }
        }
        let decoded = loop {
            match self.frames.get(number, stored) {
                Ok(decoded) => break decoded,
                Err(e) => match Absent::of(&e) {
                    // Its digests come later than it does, or it was wrong and comes again.
                    Some(absent) if self.comes(absent, Class::Tables) => {}
                    Some(_) => return,
                    None => return self.report(e),
                },
            }
        };
        let Some(pieces) = decoded.pieces() else {
            return;
        };
        if self.store_pieces(frame, pieces).is_err() {
            self.progress.over.store(true, Ordering::Relaxed);
        }
    }

    /// Reports the first frame or batch that cannot be used, and ends the fill if the next ones will fail too.
    fn report(&self, e: brisk_image::Error) {
        let kind = e.kind();
        if self.counters.damaged() == 0 {
            let cause = unreadable_pack(e);
            (self.tell)(&Error::new(Action::Fill, cause));
        }
        if !goes_on_behind(kind) {
            self.progress.over.store(true, Ordering::Relaxed);
        }
    }

    fn store_pieces<'p>(
        &self,
        frame: &HotFrame,
        pieces: impl Iterator<Item = (PageRange, &'p [u8])>,
    ) -> Result<(), Over> {
        let mut stored = false;
        for (number, (range, bytes)) in frame.ranges.clone().zip(pieces) {
            stored |= self.store_part(&Part::whole(number, range), bytes)?;
        }
        self.note(frame.len, stored);
        Ok(())
    }

    /// Notes that so many bytes were decoded, and whether something of them was stored.
    fn note(&self, decoded: usize, stored: bool) {
        if self.progress.vain.frame(decoded as u64, stored) {
            self.give_up();
        }
    }

    fn states(&self, part: &Part) -> RangeStates<'_> {
        let end = part.skipped.saturating_add(part.count);
        self.pages.of_range(part.number, end).behind(part.skipped)
    }

    /// Stores those of the pages that nobody has asked for. False if it stores nothing. `bytes` begin with the first page.
    fn store_part(&self, part: &Part, bytes: &[u8]) -> Result<bool, Over> {
        let Some(file) = self.pack.file(part.file as usize) else {
            return Ok(false);
        };
        let Some(node) = file.inode().map(|inode| self.target.node(inode)) else {
            return Ok(false);
        };
        let known = self.progress.known.get(part.file as usize);
        if !known.is_some_and(|known| *known.get_or_init(|| self.look_up(part.file))) {
            return Ok(false);
        }
        let page = page_size() as u64;
        let states = self.states(part);
        let (mut any, mut at) = (false, 0);
        while let Some(run) = states.wanted_from(at) {
            at = run.end;
            let first = part.first.saturating_add(run.start as u64);
            let start = first.saturating_mul(PAGE);
            let end = start.saturating_add((run.len() as u64).saturating_mul(PAGE));
            let whole = whole_pages(start..end.min(file.len()), file.len(), page);
            let within = part.first.saturating_mul(PAGE);
            let slice = usize::try_from(whole.start.saturating_sub(within))
                .ok()
                .zip(usize::try_from(whole.end.saturating_sub(within)).ok())
                .and_then(|(from, to)| bytes.get(from..to));
            let Some(slice) = slice.filter(|slice| !slice.is_empty()) else {
                continue;
            };
            if self.is_over() {
                return Err(Over);
            }
            // In memory, the last page of a file is a whole page.
            let pages = (slice.len() as u64).div_ceil(PAGE);
            self.take(pages.saturating_mul(PAGE))?;
            if self.store(part.file, node, whole.start, slice)? {
                // `whole` is within the run, so these are pages of it.
                let first = run.start + ((whole.start - start) / PAGE) as usize;
                states.mark_stored(first..run.end.min(first + pages as usize));
                match self.again {
                    false => self.counters.stored(pages, self.started),
                    true => self.counters.stored_again(pages),
                }
                if let Some(log) = self.log {
                    let first = whole.start / PAGE;
                    log.add(true, node, first..first.saturating_add(pages));
                }
                any = true;
            }
        }
        Ok(any)
    }

    /// Takes bytes from the budget.
    fn take(&self, bytes: u64) -> Result<(), Over> {
        let take = |left: u64| left.checked_sub(bytes);
        let left = &self.progress.left;
        match left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => Ok(()),
            Err(_) => {
                self.give_up();
                Err(Over)
            }
        }
    }

    /// False if the kernel does not accept the bytes.
    fn store(&self, file: u32, node: u64, offset: u64, bytes: &[u8]) -> Result<bool, Over> {
        let store = || Stored::from(self.target.store(node, offset, bytes));
        let mut stored = store();
        if stored == Stored::Unknown && self.look_up(file) {
            // The kernel had forgotten the file, or did not know it.
            stored = store();
        }
        match stored {
            Stored::Yes => Ok(true),
            Stored::No | Stored::Unknown => Ok(false),
            Stored::Over => Err(Over),
        }
    }

    /// Tells the kernel about the file with this number, by its name. False if it is not the file that the
    /// pack says: a store past its end would make it longer.
    fn look_up(&self, number: u32) -> bool {
        let Some(file) = self.pack.file(number as usize) else {
            return false;
        };
        let Some(Ok(inode)) = file.inode().map(|inode| self.image.inode(inode)) else {
            return false;
        };
        matches!(inode.kind(), InodeKind::File(_))
            && inode.len() == file.len()
            && look_up(self.root, file.path())
    }
}

/// Blocks in the same stretch of so many bytes are asked for together: a request more costs as much.
const STRETCH: u64 = 1 << 20;

/// For each stretch of the file that has blocks, the bytes from its first to its last block. The stretch that a launch needs first is
/// first, as `blocks` are in the order in which a launch needs them.
fn joined(blocks: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let mut places = HashMap::new();
    let mut joined: Vec<Range<u64>> = Vec::new();
    for block in blocks {
        let place = *places.entry(block.start / STRETCH).or_insert(joined.len());
        match joined.get_mut(place) {
            Some(bytes) => {
                bytes.start = bytes.start.min(block.start);
                bytes.end = bytes.end.max(block.end);
            }
            None => joined.push(block),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_a_stretch_are_asked_for_together_in_the_order_of_the_launch() {
        let second = STRETCH..STRETCH + 50;
        let blocks = vec![
            second.clone(),
            900..950,
            0..10,
            second.end..second.end + 9,
            500..600,
        ];
        assert_eq!(joined(blocks), [STRETCH..STRETCH + 59, 0..950]);
        assert_eq!(joined(Vec::new()), []);
    }
}
