//! The file of a hot pack.
//!
//! A launch reads a pack once, from its start to its end, and never needs it again after it was decoded. So
//! the pack is read directly, past the page cache ([`PackFile::read_batches`]), which leaves more processor
//! time to the program. If the system refuses direct reads, or much of the pack is in memory already, the
//! kernel gets advice what to read next ([`PackFile::read_ahead_of`]), and to forget the pack at the end.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use brisk_image::hot_pack::{HotFrame, HotPack};
use brisk_image::verity::VerifiedFile;
use brisk_io::{
    AlignedBuf, DIRECT_ALIGNMENT, cached_pages, largest_advice, open_direct, page_size,
    read_at_least,
};
use rustix::fs::{Advice, fadvise};

use super::batch_ring::{Batch, Read, ReadRing};

/// How far to read ahead of the frame that is decoded. More would delay the program's own reads.
const WINDOW: u64 = 4 << 20;

/// Bytes of the first read. The data of a larger read would arrive later, because it arrives all at once.
const FIRST_READ: u64 = 128 << 10;

/// The most bytes of a direct read, which is also the most bytes of a frame. It is about one operation of a
/// disk.
const MOST_READ: u64 = 1 << 20;

/// Bytes of a buffer: one read, in whole blocks.
const BUFFER: usize = (MOST_READ + 2 * BLOCK) as usize;

/// Direct reads start and end at multiples of this.
const BLOCK: u64 = DIRECT_ALIGNMENT;

/// The file that a pack is in.
pub(super) struct PackFile {
    file: File,
    /// The same file, for direct reads.
    direct: Option<File>,
    /// The same file, whose blocks are compared with a hash tree.
    verified: Option<Arc<VerifiedFile>>,
    /// Whether some of it may still be absent.
    arrives: bool,
    /// The byte of the file that the pack starts at.
    start: u64,
    /// The bytes of the pack that its frames are in.
    data: Range<u64>,
    /// How far in the pack the kernel was told to read.
    told: AtomicU64,
    /// The most bytes that one advice may cover.
    most: u64,
}

impl PackFile {
    /// The pack that starts at byte `start` of `file`.
    pub(super) fn new(file: File, start: u64, pack: &HotPack) -> Self {
        let first = pack.frame(0).map_or(0, |frame| frame.stored.start);
        let data = first..first.saturating_add(pack.data_stored());
        let len = data.end.saturating_sub(data.start);
        let pages = len / page_size() as u64;
        // If the kernel does not say: an earlier fill made it forget the pack.
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
            verified: None,
            arrives: false,
            start,
            data,
        }
    }

    /// The pack in a file of which some is still to arrive: frames are read by the source of the image, and nothing here reads.
    pub(super) fn arriving(file: File, start: u64, pack: &HotPack) -> Self {
        let told = AtomicU64::new(u64::MAX);
        Self {
            direct: None,
            arrives: true,
            told,
            ..Self::new(file, start, pack)
        }
    }

    /// Where the frames of the launch are in the file, and where those with their neighbours.
    pub(super) fn frames(&self, pack: &HotPack) -> (Range<u64>, Range<u64>) {
        let all = self.in_file(&self.data);
        let neighbours = pack.frame(pack.launch_frame_count());
        let end = neighbours.map_or(all.end, |frame| self.in_file(&frame.stored).start);
        (all.start..end, end..all.end)
    }

    /// Where bytes of the pack are in its file.
    pub(super) fn in_file(&self, bytes: &Range<u64>) -> Range<u64> {
        self.start.saturating_add(bytes.start)..self.start.saturating_add(bytes.end)
    }

    /// The same, for another fill: what is in memory is another part of it now, and the kernel was told nothing yet.
    pub(super) fn again(&self, pack: &HotPack) -> io::Result<Self> {
        let file = self.file.try_clone()?;
        if self.arrives {
            return Ok(Self::arriving(file, self.start, pack));
        }
        Ok(Self::new(file, self.start, pack).verified(self.verified.as_ref()))
    }

    /// With batches that are compared with the hash tree of the file, if it is `verified`.
    pub(super) fn verified(mut self, verified: Option<&Arc<VerifiedFile>>) -> Self {
        self.verified = verified.cloned();
        self
    }

    /// Compares a batch with the hash tree. Nothing of it may be decoded before. The thread that decodes does this, so
    /// that the disk never waits for it.
    pub(super) fn check(&self, batch: &Batch) -> brisk_image::Result<()> {
        match &self.verified {
            // The batch may start before the pack does, in the same block.
            Some(verified) => {
                verified.check(self.start.wrapping_add(batch.start()), batch.blocks())
            }
            None => Ok(()),
        }
    }

    /// Tells the kernel to read what follows byte `at` of the pack.
    pub(super) fn read_ahead_of(&self, at: u64) {
        let want = at.max(self.data.start).saturating_add(WINDOW);
        let want = want.min(self.data.end);
        loop {
            let told = self.told.load(Ordering::Relaxed);
            // Only whole pieces, and not one for every frame.
            if told >= want || (want - told < WINDOW / 4 && want < self.data.end) {
                return;
            }
            // As much as all earlier pieces together. So the first pages come soon, and later the disk is
            // asked rarely.
            let piece = (told - self.data.start).clamp(FIRST_READ, self.most);
            let end = told.saturating_add(piece).min(want);
            let ours = self
                .told
                .compare_exchange(told, end, Ordering::Relaxed, Ordering::Relaxed);
            let piece = (
                self.start.saturating_add(told),
                NonZeroU64::new(end.saturating_sub(told)),
            );
            // The kernel may refuse advice. The frames are read all the same.
            if ours.is_ok() && fadvise(&self.file, piece.0, piece.1, Advice::WillNeed).is_err() {
                self.told.store(u64::MAX, Ordering::Relaxed);
            }
        }
    }

    /// Tells the kernel to forget the pack, because its pages are in the page cache of the mount now. Some
    /// file systems go through the cache even for a direct read.
    pub(super) fn forget(&self) {
        let len = NonZeroU64::new(self.data.end.saturating_sub(self.data.start));
        let start = self.start.saturating_add(self.data.start);
        // This is only advice.
        fadvise(&self.file, start, len, Advice::DontNeed).ok();
    }

    /// Whether the pack is read in batches. Then advice is useless.
    pub(super) fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// Reads the frames from number `next` on for which `is_wanted` is true. Stops when all are read, when
    /// nobody takes batches any more, or when direct reads fail. Then `next` is the first frame that was not
    /// read. Returns how many bytes were read.
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
        // The ring closes when nobody decodes any more.
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
            // What is verified has whole blocks, and all of them are needed.
            let least = if self.verified.is_some() { len } else { needed };
            if read_at_least(direct, start - before, blocks, least).is_err() {
                // Everything before this was read, so advice goes on from here.
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
                len,
            };
            if ring.full.send(batch).is_err() {
                return read;
            }
            most = (most * 2).min(MOST_READ);
        }
        read
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::fs::FileExt;
    use std::path::Path;
    use std::thread;
    use std::time::Duration;

    use brisk_image::hot_pack::{HotPackWriter, Prefer};
    use brisk_image::profile::{Named, Origin, Profile, ProfileBuilder, RootKind};
    use brisk_image::verity::Verity;
    use brisk_image::{Image, ImageWriter, Limits, OpenOptions, Tree, TreeRules};

    use super::super::batch_ring::{BATCHES, Batches};
    use super::*;

    /// Bytes before the pack in its file. They are not a whole number of blocks.
    const BEFORE: u64 = 5000;

    /// 2 MiB of noise in the directory `tree`, and a profile that asks for all of it.
    fn tree_of_noise(tree: &Path) -> Profile {
        std::fs::create_dir(tree).expect("empty");
        // xorshift, which no codec can compress.
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
        let root = builder.add_root(tree, RootKind::Directory);
        builder.range(root, 0, 0, noise.len() as u64, Duration::ZERO);
        let named = |_, _| Some(Named::new("noise", 2 << 20));
        let profile = builder.finish(vec!["app".into()], None, named);
        profile.expect("one file").profile
    }

    /// A pack of 2 MiB of noise in frames of 64 KiB, somewhere in a file.
    pub(in super::super) fn pack_in_a_file() -> (HotPack, File) {
        let dir = tempfile::tempdir().expect("a place for files");
        let tree = dir.path().join("tree");
        let profile = tree_of_noise(&tree);
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

    /// Reads batches of any file, because not every file supports direct reads, while `decode` takes them.
    /// Returns the result of `decode`, and the number of the first frame that was not read.
    fn read_for<T>(
        pack: &HotPack,
        file: &File,
        is_wanted: impl Fn(&HotFrame) -> bool + Send,
        decode: impl FnOnce(Batches) -> T,
    ) -> (T, usize) {
        let source = PackFile::new(hold(file), BEFORE, pack).into_direct();
        read_from(&source, pack, is_wanted, decode)
    }

    fn read_from<T>(
        source: &PackFile,
        pack: &HotPack,
        is_wanted: impl Fn(&HotFrame) -> bool + Send,
        decode: impl FnOnce(Batches) -> T,
    ) -> (T, usize) {
        let next = AtomicUsize::new(0);
        let (ring, batches) = Batches::ring();
        let decoded = thread::scope(|scope| {
            let next = &next;
            scope.spawn(move || source.read_batches(pack, next, is_wanted, &ring));
            decode(batches)
        });
        (decoded, next.into_inner())
    }

    fn hold(file: &File) -> File {
        file.try_clone().expect("descriptors are left")
    }

    impl PackFile {
        fn into_direct(self) -> Self {
            Self {
                direct: Some(hold(&self.file)),
                ..self
            }
        }
    }

    /// As a fill does it: a batch is compared, and only then used.
    #[test]
    fn no_flipped_bit_of_a_verified_pack_is_in_a_batch_that_is_used() {
        const FLIPS: u64 = 500;
        let dir = tempfile::tempdir().expect("a place for files");
        let profile = tree_of_noise(&dir.path().join("tree"));
        let rules = TreeRules::default();
        let tree = Tree::from_directory(dir.path().join("tree"), &rules).expect("a tree");
        let writer = ImageWriter::new().verity(true);
        let writer = writer.hot_pack(profile, Prefer::Speed);
        let path = dir.path().join("image");
        let summary = writer.write(&tree, &path).expect("there is room");
        let root = summary.verity.expect("asked for").root_hash;
        let verity = Verity::new(root.parse().expect("a root hash"));
        let file = File::options().read(true).write(true).open(&path);
        let file = file.expect("written");
        let verified = VerifiedFile::open(&path, hold(&file), None, &verity).expect("sound");
        let image = Image::open_verified(Arc::new(verified), &OpenOptions::new()).expect("sound");
        let pack = image.hot_pack().expect("sound").expect("asked for");
        let range = image.hot_pack_range().expect("sound").expect("asked for");
        let right = std::fs::read(&path).expect("written");

        let source = PackFile::new(hold(&file), range.start, &pack)
            .verified(image.verified())
            .into_direct();
        // Numbers of batches that are refused, and that are used.
        let read = || {
            let (counts, next) = read_from(
                &source,
                &pack,
                |_| true,
                |batches| {
                    let mut counts = (0, 0);
                    while let Some(batch) = batches.next() {
                        if source.check(&batch).is_err() {
                            counts.0 += 1;
                            continue;
                        }
                        counts.1 += 1;
                        let at = range.start.wrapping_add(batch.start()) as usize;
                        let blocks = batch.blocks();
                        assert!(blocks == &right[at..at + blocks.len()], "wrong bytes");
                    }
                    counts
                },
            );
            assert_eq!(next, pack.frame_count());
            counts
        };
        let (refused, all) = read();
        assert!((refused, all > 3) == (0, true), "{all} batches");
        let blocks = {
            let end = range.start + source.data.end;
            (range.start + source.data.start) / BLOCK * BLOCK..end.next_multiple_of(BLOCK)
        };
        for n in 0..FLIPS {
            // Another bit of a byte each time.
            let at = blocks.start + n * (blocks.end - blocks.start) / FLIPS;
            let byte = right[at as usize];
            file.write_all_at(&[byte ^ 1 << (n % 8)], at).expect("ours");
            let (refused, used) = read();
            // Two batches may have parts of one block.
            assert!(matches!(refused, 1 | 2), "byte {at}: {refused} refused");
            assert_eq!(refused + used, all, "byte {at}");
            file.write_all_at(&[byte], at).expect("ours");
        }
        assert_eq!(read(), (0, all));
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

    /// As after giving up a fill: more threads than there are buffers, and each has one.
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
