//! Reading the frames of a hot pack before they are decoded.
//!
//! A pack is read once in a launch, from its start to its end, and nothing in it is looked at again once it is
//! decoded. So it is read past the page cache, which takes less of the processors that the program needs, by
//! [`Batches`]; where that is refused, or much of the pack is in memory already, the kernel is told what
//! comes next ([`Source::read_ahead_of`]), and to forget it at the end.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use brisk_image::{HotFrame, HotPack};
use brisk_io::{AlignedBuf, ReadAt, cached_pages, largest_advice, open_direct, page_size};
use rustix::fs::{Advice, fadvise};

/// Bytes of the pack that are read ahead of the frame that is decoded. More would be in the way of
/// what the program reads by itself.
const WINDOW: u64 = 4 << 20;

/// Bytes of the first read: what comes of a larger one comes as a whole.
const FIRST_READ: u64 = 128 << 10;

/// Bytes of a direct read, at most, but for a frame that has more: what is one operation of a disk.
const MOST_READ: u64 = 1 << 20;

/// Bytes of a buffer, unless a frame takes more.
const USUAL_BUFFER: usize = (MOST_READ + 2 * BLOCK) as usize;

/// Batches that are read, or decoded, at once.
const BATCHES: usize = 3;

/// What divides every disk's block.
const BLOCK: u64 = 4096;

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
        // Where the kernel does not tell: the fill before this one has had it forget the pack.
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

    /// Lets the kernel forget the pack: what was in it is in the cache by now.
    pub(super) fn forget(&self) {
        if self.told.load(Ordering::Relaxed) == self.data.start {
            return;
        }
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
    /// or the file cannot be read past the page cache. `next` is then the first that others are to read.
    pub(super) fn read_batches(
        &self,
        pack: &HotPack,
        next: &AtomicUsize,
        is_wanted: impl Fn(&HotFrame) -> bool,
        ring: &ReadRing,
    ) {
        let Some(direct) = &self.direct else { return };
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
                return;
            };
            let more = (first + 1..)
                .map_while(|number| pack.frame(number))
                .take_while(|frame| frame.stored.end - stored.start <= most)
                .map(|frame| stored.end = frame.stored.end)
                .count();
            let start = self.start.saturating_add(stored.start);
            let before = start % BLOCK;
            let needed = stored
                .end
                .saturating_sub(stored.start)
                .saturating_add(before);
            let Ok(len) = usize::try_from(needed.next_multiple_of(BLOCK)) else {
                return;
            };
            if bytes.len() < len {
                bytes = AlignedBuf::zeroed(len.max(USUAL_BUFFER), BLOCK as usize);
            }
            let read = read_blocks(direct, start - before, &mut bytes[..len], needed);
            if read.is_err() {
                return;
            }
            let end = first + 1 + more;
            next.store(end, Ordering::Relaxed);
            let batch = Batch {
                frames: first..end,
                start: stored.start.wrapping_sub(before),
                bytes,
            };
            if ring.read.send(batch).is_err() {
                return;
            }
            most = (most * 2).min(MOST_READ);
        }
    }
}

/// Reads whole blocks at `start`, of which the file has the first `needed` bytes at least.
fn read_blocks(file: &File, start: u64, buf: &mut [u8], needed: u64) -> io::Result<()> {
    let mut done = 0;
    while (done as u64) < needed {
        match ReadAt::read_at(file, start.saturating_add(done as u64), &mut buf[done..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Frames that were read in one go.
pub(super) struct Batch {
    /// Their numbers.
    pub(super) frames: Range<usize>,
    /// The byte of the pack that is the first of `bytes`; before 0 where the pack starts within a block.
    start: u64,
    bytes: AlignedBuf,
}

impl Batch {
    /// The stored bytes of one of its frames.
    pub(super) fn stored(&self, frame: &HotFrame) -> &[u8] {
        let place = |at: u64| usize::try_from(at.wrapping_sub(self.start)).unwrap_or(usize::MAX);
        let place = place(frame.stored.start)..place(frame.stored.end);
        // None are not what the frame's checksum is of.
        self.bytes.get(place).unwrap_or(&[])
    }
}

/// The side of who reads batches.
pub(super) struct ReadRing {
    free: Receiver<AlignedBuf>,
    read: Sender<Batch>,
}

/// The side of who decodes them; each thread has its own.
#[derive(Clone)]
pub(super) struct Batches {
    read: Arc<Mutex<Receiver<Batch>>>,
    free: Sender<AlignedBuf>,
}

impl Batches {
    /// A few buffers that go round. One side ends when all of the other are gone.
    pub(super) fn ring() -> (ReadRing, Self) {
        let (give_back, free) = channel();
        let (send, read) = channel();
        for _ in 0..BATCHES {
            // `free` is there.
            give_back.send(AlignedBuf::zeroed(0, BLOCK as usize)).ok();
        }
        let batches = Self {
            read: Arc::new(Mutex::new(read)),
            free: give_back,
        };
        (ReadRing { free, read: send }, batches)
    }

    /// Waits for the next one; none if no more are read.
    pub(super) fn next(&self) -> Option<Batch> {
        let read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.recv().ok()
    }

    /// Lets the buffer be used for another one.
    pub(super) fn give_back(&self, batch: Batch) {
        // Nobody reads any more otherwise.
        self.free.send(batch.bytes).ok();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::Ordering;
    use std::thread;
    use std::time::Duration;

    use brisk_image::{HotPackWriter, Limits, Named, Origin, ProfileBuilder, RootKind};

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
            .write(&profile, &origin, &hot, &|_| {})
            .expect("there is room");
        let bytes = std::fs::read(&hot).expect("written");
        let file = tempfile::tempfile().expect("a place for files");
        file.write_all_at(&bytes, BEFORE).expect("there is room");
        let pack = HotPack::open(&hot, &Limits::default()).expect("written");
        (pack, file)
    }

    /// One that reads batches of any file, as direct reads are not possible everywhere.
    fn source(pack: &HotPack, file: &File) -> Source {
        let hold = || file.try_clone().expect("descriptors are left");
        Source {
            direct: Some(hold()),
            ..Source::new(hold(), BEFORE, pack)
        }
    }

    #[test]
    fn batches_have_the_frames_that_are_wanted() {
        let (pack, file) = pack_in_a_file();
        assert_eq!(pack.frame_count(), 32);
        let source = source(&pack, &file);
        let next = AtomicUsize::new(0);
        let (ring, batches) = Batches::ring();
        let wanted = |frame: &HotFrame| frame.ranges.start >= 3;
        let mut seen = Vec::new();
        thread::scope(|scope| {
            scope.spawn(|| source.read_batches(&pack, &next, wanted, &{ ring }));
            while let Some(batch) = batches.next() {
                for number in batch.frames.clone() {
                    let frame = pack.frame(number).expect("one of the pack's");
                    let mut stored = Vec::new();
                    pack.read_stored(number..number + 1, &mut stored)
                        .expect("sound");
                    assert!(batch.stored(&frame) == stored, "frame {number}");
                    seen.push(number);
                }
                batches.give_back(batch);
            }
        });
        assert_eq!(seen, (3..32).collect::<Vec<_>>());
        assert_eq!(next.load(Ordering::Relaxed), 32);
    }

    #[test]
    fn reading_ends_when_nobody_decodes() {
        let (pack, file) = pack_in_a_file();
        let source = source(&pack, &file);
        let next = AtomicUsize::new(0);
        let (ring, batches) = Batches::ring();
        thread::scope(|scope| {
            scope.spawn(|| source.read_batches(&pack, &next, |_| true, &{ ring }));
            assert!(batches.next().is_some());
            drop(batches);
        });
        assert!(next.load(Ordering::Relaxed) < 32);
    }

    #[test]
    fn what_a_cut_file_has_not_is_left_to_others() {
        let (pack, file) = pack_in_a_file();
        let source = source(&pack, &file);
        let cut = pack.frame(5).expect("there are 32").stored.start;
        file.set_len(BEFORE + cut).expect("shorter");
        let next = AtomicUsize::new(0);
        let (ring, batches) = Batches::ring();
        let frames = thread::scope(|scope| {
            scope.spawn(|| source.read_batches(&pack, &next, |_| true, &{ ring }));
            let mut frames = Vec::new();
            while let Some(batch) = batches.next() {
                frames.extend(batch.frames);
            }
            frames
        });
        assert_eq!(frames.len(), next.load(Ordering::Relaxed));
        assert!((1..=5).contains(&frames.len()), "{frames:?}");
    }
}
