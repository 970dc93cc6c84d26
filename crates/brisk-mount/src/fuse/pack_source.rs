//! Reading the frames of a hot pack before they are decoded.
//!
//! A pack is read once in a launch, from its start to its end, and nothing in it is looked at again once it is
//! decoded. So it is read past the page cache, which takes less of the processors that the program needs, by
//! [`Batches`]; where that is refused, or much of the pack is in memory already, the kernel is told what
//! comes next ([`Source::read_ahead_of`]), and to forget it at the end.

use std::fs::File;
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use brisk_image::hot_pack::{HotFrame, HotPack};
use brisk_io::{
    AlignedBuf, DIRECT_ALIGNMENT, cached_pages, largest_advice, open_direct, page_size,
    read_at_least,
};
use rustix::fs::{Advice, fadvise};

/// Bytes of the pack that are read ahead of the frame that is decoded. More would be in the way of
/// what the program reads by itself.
const WINDOW: u64 = 4 << 20;

/// Bytes of the first read: what comes of a larger one comes as a whole.
const FIRST_READ: u64 = 128 << 10;

/// Bytes of a direct read, at most, which is what a frame has at most: about one operation of a disk.
const MOST_READ: u64 = 1 << 20;

/// Bytes of a buffer: of a read, in whole blocks.
const BUFFER: usize = (MOST_READ + 2 * BLOCK) as usize;

/// Batches that are read, or decoded, at once.
const BATCHES: usize = 3;

/// Where direct reads start and end.
const BLOCK: u64 = DIRECT_ALIGNMENT;

/// The file with a pack.
pub(super) struct Source {
    file: File,
    /// The same, past the page cache.
    direct: Option<File>,
    /// Where the pack starts in it.
    start: u64,
    /// The frames of the pack, from its start.
    data: Range<u64>,
    /// The byte of the pack up to which the kernel was told to read.
    told: AtomicU64,
    /// Bytes of one advice.
    most: u64,
}

impl Source {
    /// The pack that starts at byte `start` of `file`.
    pub(super) fn new(file: File, start: u64, pack: &HotPack) -> Self {
        let first = pack.frame(0).map_or(0, |frame| frame.stored.start);
        let data = first..first.saturating_add(pack.data_stored());
        let len = data.end.saturating_sub(data.start);
        let pages = len / page_size() as u64;
        // Where the kernel does not tell, the fill before this one has had it forget the pack.
        let cached = cached_pages(&file, start.saturating_add(data.start), len);
        let direct = match cached {
            Ok(cached) if cached > pages / 2 => None,
            _ => open_direct(&file).ok(),
        };
        Self {
            most: largest_advice(&file),
            told: AtomicU64::new(data.start),
            file,
            direct,
            start,
            data,
        }
    }

    /// Has the kernel read what follows `at`, a byte of the pack.
    pub(super) fn read_ahead_of(&self, at: u64) {
        let want = at.max(self.data.start).saturating_add(WINDOW);
        let want = want.min(self.data.end);
        loop {
            let told = self.told.load(Ordering::Relaxed);
            // Not for every frame, and whole pieces.
            if told >= want || (want - told < WINDOW / 4 && want < self.data.end) {
                return;
            }
            // As much as was told of before, so that the first pages come soon and the disk is asked
            // seldom.
            let piece = (told - self.data.start).clamp(FIRST_READ, self.most);
            let end = told.saturating_add(piece).min(want);
            let ours = self
                .told
                .compare_exchange(told, end, Ordering::Relaxed, Ordering::Relaxed);
            let piece = (
                self.start.saturating_add(told),
                NonZeroU64::new(end.saturating_sub(told)),
            );
            // Advice may be refused: the frames are read all the same.
            if ours.is_ok() && fadvise(&self.file, piece.0, piece.1, Advice::WillNeed).is_err() {
                self.told.store(u64::MAX, Ordering::Relaxed);
            }
        }
    }

    /// Lets the kernel forget the pack: what was in it is in the cache by now. Some file systems read through the
    /// cache though they were asked not to.
    pub(super) fn forget(&self) {
        let len = NonZeroU64::new(self.data.end.saturating_sub(self.data.start));
        let start = self.start.saturating_add(self.data.start);
        // Advice only.
        fadvise(&self.file, start, len, Advice::DontNeed).ok();
    }

    /// Whether batches are read, and no advice is of use.
    pub(super) fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// Reads frames from number `next` on, until all are read that `is_wanted`, nobody takes batches any more,
    /// or the file cannot be read past the page cache. `next` is then the first that others are to read. Returns
    /// how many bytes were read.
    pub(super) fn read_batches(
        &self,
        pack: &HotPack,
        next: &AtomicUsize,
        is_wanted: impl Fn(&HotFrame) -> bool,
        ring: &ReadRing,
    ) -> u64 {
        let mut read = 0;
        let Some(direct) = &self.direct else {
            return read;
        };
        let mut most = FIRST_READ;
        // None once nobody decodes any more.
        while let Ok(mut bytes) = ring.free.recv() {
            let first = next.load(Ordering::Relaxed);
            let unwanted = (first..)
                .map_while(|number| pack.frame(number))
                .take_while(|frame| !is_wanted(frame))
                .count();
            let first = first.saturating_add(unwanted);
            next.store(first, Ordering::Relaxed);
            let Some(mut stored) = pack.frame(first).map(|frame| frame.stored) else {
                return read;
            };
            let more = (first + 1..)
                .map_while(|number| pack.frame(number))
                .take_while(|frame| frame.stored.end - stored.start <= most)
                .map(|frame| stored.end = frame.stored.end)
                .count();
            let start = self.start.saturating_add(stored.start);
            let before = start % BLOCK;
            let needed = stored.end.saturating_sub(stored.start);
            let needed = usize::try_from(needed.saturating_add(before)).unwrap_or(usize::MAX);
            let len = needed.next_multiple_of(BLOCK as usize);
            if bytes.is_empty() {
                bytes = AlignedBuf::zeroed(BUFFER, BLOCK as usize);
            }
            let Some(blocks) = bytes.get_mut(..len) else {
                return read;
            };
            if read_at_least(direct, start - before, blocks, needed).is_err() {
                // Who goes on from here is not to have all before it read again.
                self.told.fetch_max(stored.start, Ordering::Relaxed);
                return read;
            }
            read += needed as u64;
            let end = first + 1 + more;
            next.store(end, Ordering::Relaxed);
            let batch = Read {
                frames: first..end,
                start: stored.start.wrapping_sub(before),
                bytes,
            };
            if ring.full.send(batch).is_err() {
                return read;
            }
            most = (most * 2).min(MOST_READ);
        }
        read
    }
}

/// Frames that were read in one go.
struct Read {
    frames: Range<usize>,
    /// The byte of the pack that is the first of `bytes`; before 0 where the pack starts within a block.
    start: u64,
    bytes: AlignedBuf,
}

/// The same, for who decodes them. Its buffer is used again once it is dropped.
pub(super) struct Batch {
    read: Read,
    free: Sender<AlignedBuf>,
}

impl Batch {
    /// The numbers of its frames.
    pub(super) fn frames(&self) -> Range<usize> {
        self.read.frames.clone()
    }

    /// The stored bytes of one of its frames.
    pub(super) fn stored(&self, frame: &HotFrame) -> &[u8] {
        let start = self.read.start;
        let place = |at: u64| usize::try_from(at.wrapping_sub(start)).unwrap_or(usize::MAX);
        let place = place(frame.stored.start)..place(frame.stored.end);
        // None are not what the frame's checksum is of.
        self.read.bytes.get(place).unwrap_or(&[])
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let bytes = std::mem::replace(&mut self.read.bytes, no_buffer());
        // Nobody reads any more otherwise.
        self.free.send(bytes).ok();
    }
}

/// One that has no bytes yet.
fn no_buffer() -> AlignedBuf {
    AlignedBuf::zeroed(0, 1)
}

/// The side of who reads batches.
pub(super) struct ReadRing {
    free: Receiver<AlignedBuf>,
    full: Sender<Read>,
}

/// The side of who decodes them; each thread has its own.
#[derive(Clone)]
pub(super) struct Batches {
    full: Arc<Mutex<Receiver<Read>>>,
    free: Sender<AlignedBuf>,
}

impl Batches {
    /// A few buffers that go round. One side ends when all of the other are gone.
    pub(super) fn ring() -> (ReadRing, Self) {
        let (give_back, free) = channel();
        let (send, full) = channel();
        for _ in 0..BATCHES {
            // `free` is there.
            give_back.send(no_buffer()).ok();
        }
        let batches = Self {
            full: Arc::new(Mutex::new(full)),
            free: give_back,
        };
        (ReadRing { free, full: send }, batches)
    }

    /// Waits for the next one; none if no more are read.
    pub(super) fn next(&self) -> Option<Batch> {
        let full = self.full.lock().unwrap_or_else(PoisonError::into_inner);
        let free = self.free.clone();
        full.recv().ok().map(|read| Batch { read, free })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::thread;
    use std::time::Duration;

    use brisk_image::Limits;
    use brisk_image::hot_pack::HotPackWriter;
    use brisk_image::profile::{Named, Origin, ProfileBuilder, RootKind};

    use super::*;

    /// Bytes before the pack in its file, which no block ends at.
    const BEFORE: u64 = 5000;

    /// A pack of 2 MiB of noise in frames of 64 KiB, somewhere in a file.
    fn pack_in_a_file() -> (HotPack, File) {
        let dir = tempfile::tempdir().expect("a place for files");
        let tree = dir.path().join("tree");
        std::fs::create_dir(&tree).expect("empty");
        // xorshift: no codec makes it shorter.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let words = (0..(2 << 20) / 8).flat_map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        });
        let noise: Vec<u8> = words.collect();
        std::fs::write(tree.join("noise"), &noise).expect("there is room");
        let builder = ProfileBuilder::new();
        let root = builder.add_root(&tree, RootKind::Directory);
        builder.range(root, 0, 0, noise.len() as u64, Duration::ZERO);
        let named = |_, _| {
            Some(Named {
                path: "noise".into(),
                len: 2 << 20,
                digest: None,
            })
        };
        let profile = builder.finish(vec!["app".into()], None, named);
        let profile = profile.expect("one file").profile;
        let hot = dir.path().join("hot");
        let origin = Origin::directory(&tree).expect("it is there");
        let writer = HotPackWriter::new().frame_size(64 << 10);
        writer
            .write(&profile, &origin, &hot)
            .expect("there is room");
        let bytes = std::fs::read(&hot).expect("written");
        let file = tempfile::tempfile().expect("a place for files");
        file.write_all_at(&bytes, BEFORE).expect("there is room");
        let pack = HotPack::open(&hot, &Limits::default()).expect("written");
        (pack, file)
    }

    /// Reads batches of any file, as direct reads are not possible everywhere, while `decode` takes them.
    /// Returns what that does, and the number of the first frame that was not read.
    fn read_for<T>(
        pack: &HotPack,
        file: &File,
        is_wanted: impl Fn(&HotFrame) -> bool + Send,
        decode: impl FnOnce(Batches) -> T,
    ) -> (T, usize) {
        let hold = || file.try_clone().expect("descriptors are left");
        let source = Source {
            direct: Some(hold()),
            ..Source::new(hold(), BEFORE, pack)
        };
        let next = AtomicUsize::new(0);
        let (ring, batches) = Batches::ring();
        let decoded = thread::scope(|scope| {
            let (source, next) = (&source, &next);
            scope.spawn(move || source.read_batches(pack, next, is_wanted, &ring));
            decode(batches)
        });
        (decoded, next.into_inner())
    }

    #[test]
    fn batches_have_the_frames_that_are_wanted() {
        let (pack, file) = pack_in_a_file();
        assert_eq!(pack.frame_count(), 32);
        let wanted = |frame: &HotFrame| frame.ranges.start >= 3;
        let (seen, next) = read_for(&pack, &file, wanted, |batches| {
            let mut seen = Vec::new();
            while let Some(batch) = batches.next() {
                for number in batch.frames() {
                    let frame = pack.frame(number).expect("one of the pack's");
                    let mut stored = Vec::new();
                    pack.read_stored(number..number + 1, &mut stored)
                        .expect("sound");
                    assert!(batch.stored(&frame) == stored, "frame {number}");
                    seen.push(number);
                }
            }
            seen
        });
        assert_eq!(seen, (3..32).collect::<Vec<_>>());
        assert_eq!(next, 32);
    }

    #[test]
    fn reading_ends_when_nobody_decodes() {
        let (pack, file) = pack_in_a_file();
        let one = |batches: Batches| assert!(batches.next().is_some());
        let ((), next) = read_for(&pack, &file, |_| true, one);
        assert!(next < 32);
    }

    /// As when a fill is given up: each of more threads than there are buffers has one.
    #[test]
    fn threads_that_stop_in_the_middle_stop_no_other() {
        let (pack, file) = pack_in_a_file();
        read_for(
            &pack,
            &file,
            |_| true,
            |batches| {
                thread::scope(|scope| {
                    for _ in 0..=BATCHES {
                        let batches = batches.clone();
                        scope.spawn(move || drop(batches.next()));
                    }
                });
            },
        );
    }

    #[test]
    fn what_a_cut_file_has_not_is_left_to_others() {
        let (pack, file) = pack_in_a_file();
        let cut = pack.frame(5).expect("there are 32").stored.start;
        file.set_len(BEFORE + cut).expect("shorter");
        let (frames, next) = read_for(
            &pack,
            &file,
            |_| true,
            |batches| {
                let taken = std::iter::from_fn(|| batches.next());
                taken.flat_map(|batch| batch.frames()).count()
            },
        );
        assert_eq!(frames, next);
        assert!((1..=5).contains(&frames), "{frames}");
    }
}
