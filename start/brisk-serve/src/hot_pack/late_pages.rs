//! Answers from frames of a pack, for a program that asks for pages before they are stored.

use std::io::IoSlice;
use std::ops::Range;

use brisk_image::hot_pack::HotPack;
use brisk_image::profile::PAGE;

use super::decoded_frames::DecodedFrames;
use super::page_states::PageStates;

/// The most bytes of the frames that one answer uses. A read of 1 MiB in order needs 1.25 MiB of the frames that brisk makes. If
/// the pages are far apart in the pack, the image answers.
const MOST: usize = 2 << 20;

/// Which frames of a pack have what a program asks for.
///
/// A page that is in the pack is also in a block of the image. A frame in lz4 is decoded in a fraction of the time that a block
/// of another codec takes, so a program that asks as fast as the pack is stored waits less.
pub(super) struct LatePages {
    pack: HotPack,
    /// The first range of each frame.
    starts: Vec<usize>,
}

impl LatePages {
    pub(super) fn of(pack: &HotPack) -> Self {
        let frames = (0..pack.frame_count()).map_while(|number| pack.frame(number));
        Self {
            pack: pack.clone(),
            starts: frames.map(|frame| frame.ranges.start).collect(),
        }
    }

    /// Calls `answer` with these bytes of the file that is `node`, which has `len` bytes. None if the pack lacks some of them, has
    /// them of another file, damaged, or in too many frames.
    pub(super) fn answer<T>(
        &self,
        frames: &DecodedFrames,
        pages: &PageStates,
        node: u64,
        bytes: Range<u64>,
        len: u64,
        answer: impl FnOnce(&[IoSlice<'_>]) -> T,
    ) -> Option<T> {
        if !bytes.start.is_multiple_of(PAGE) || bytes.end > len {
            return None;
        }
        let places = self.places(pages, node, bytes, len)?;
        let mut numbers: Vec<_> = places.iter().map(|place| place.frame).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let lens = numbers.iter().filter_map(|number| self.pack.frame(*number));
        if lens.map(|frame| frame.len).sum::<usize>() > MOST {
            return None;
        }
        let decoded = numbers.iter().map(|number| frames.get(*number, None));
        let decoded: Vec<_> = decoded.collect::<Result<_, _>>().ok()?;
        let pieces = decoded.iter().map(|frame| {
            let pieces = frame.pieces()?;
            Some(pieces.map(|(_, bytes)| bytes).collect::<Vec<_>>())
        });
        let pieces: Vec<_> = pieces.collect::<Option<_>>()?;
        let slices = places.iter().map(|place| {
            let frame = numbers.binary_search(&place.frame).ok()?;
            let piece = pieces.get(frame)?.get(place.piece)?;
            piece.get(place.bytes.clone()).map(IoSlice::new)
        });
        let slices: Vec<_> = slices.collect::<Option<_>>()?;
        Some(answer(&slices))
    }

    /// Where the frame with this number is stored in the pack.
    pub(super) fn stored(&self, number: usize) -> Option<Range<u64>> {
        self.pack.frame(number).map(|frame| frame.stored)
    }

    /// The numbers of the frames that have these bytes of a file, as in [`answer`](Self::answer). Empty if the pack lacks some.
    pub(super) fn frames_of(
        &self,
        pages: &PageStates,
        node: u64,
        bytes: Range<u64>,
        len: u64,
    ) -> Vec<usize> {
        let places = match bytes.start.is_multiple_of(PAGE) && bytes.end <= len {
            true => self.places(pages, node, bytes, len),
            false => None,
        };
        places
            .into_iter()
            .flatten()
            .map(|place| place.frame)
            .collect()
    }

    /// Where bytes of a file are. None if the pack lacks some of them.
    fn places(
        &self,
        pages: &PageStates,
        node: u64,
        bytes: Range<u64>,
        len: u64,
    ) -> Option<Vec<Place>> {
        let mut places = Vec::new();
        let mut at = bytes.start;
        while at < bytes.end {
            let place = pages.place(node, at / PAGE)?;
            let file = self.pack.range(place.range)?.file;
            if self.pack.file(file as usize)?.len() != len {
                return None;
            }
            let end = place.end.saturating_mul(PAGE).min(bytes.end);
            let frame = self.frame_of(place.range)?;
            let from = usize::try_from(place.before.saturating_mul(PAGE)).ok()?;
            let count = usize::try_from(end.checked_sub(at)?).ok()?;
            places.push(Place {
                frame,
                piece: place.range.checked_sub(*self.starts.get(frame)?)?,
                bytes: from..from.checked_add(count)?,
            });
            at = end;
        }
        Some(places)
    }

    /// The frame with this range.
    fn frame_of(&self, range: usize) -> Option<usize> {
        let behind = self.starts.partition_point(|start| *start <= range);
        behind.checked_sub(1)
    }
}

/// Bytes of a pack.
struct Place {
    /// The number of their frame.
    frame: usize,
    /// Which of the frame's ranges has them.
    piece: usize,
    /// Where they are in that range.
    bytes: Range<usize>,
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use brisk_image::hot_pack::Prefer;
    use brisk_image::profile::{Named, ProfileBuilder, RootKind};
    use brisk_image::{Image, ImageWriter, Tree, TreeRules};

    use super::*;

    /// The pages that the profile asks for, in its order, of a file of 1,000,000 bytes. They are in several frames.
    const ASKED: [Range<u64>; 4] = [80..160, 0..1, 40..80, 200..245];

    struct Given {
        late: LatePages,
        frames: DecodedFrames,
        pages: PageStates,
        node: u64,
        bytes: Vec<u8>,
        _dir: tempfile::TempDir,
    }

    /// With `damage`, the stored bytes of the pack are others.
    fn given(damage: bool) -> Given {
        let dir = tempfile::tempdir().expect("a place for files");
        let tree = dir.path().join("tree");
        fs::create_dir(&tree).expect("empty");
        let bytes: Vec<u8> = (0..1_000_000_u32)
            .flat_map(|i| (i / 7).to_le_bytes())
            .take(1_000_000)
            .collect();
        fs::write(tree.join("file"), &bytes).expect("there is room");
        let builder = ProfileBuilder::new();
        let root = builder.add_root(&tree, RootKind::Directory);
        for (i, pages) in (0..).zip(ASKED) {
            let len = (pages.end - pages.start) * PAGE;
            builder.range(root, 0, pages.start * PAGE, len, Duration::from_millis(i));
        }
        let named = |_, _| Some(Named::new("file", bytes.len() as u64));
        let profile = builder.finish(vec!["app".into()], None, named);
        let tree = Tree::from_directory(&tree, &TreeRules::default()).expect("a tree");
        let image = dir.path().join("image");
        ImageWriter::new()
            .hot_pack(profile.expect("one file").profile, Prefer::Speed)
            .write(&tree, &image)
            .expect("there is room");
        if damage {
            let opened = Image::open(&image).expect("written");
            let range = opened.hot_pack_range().expect("sound").expect("asked for");
            let pack = opened.hot_pack().expect("sound").expect("asked for");
            let at = range.start + pack.frame(0).expect("one").stored.start;
            let mut stored = fs::read(&image).expect("written");
            stored[at as usize] ^= 1;
            fs::write(&image, stored).expect("ours");
        }
        let opened = Image::open(&image).expect("written");
        let pack = opened.hot_pack().expect("sound").expect("asked for");
        let node = pack
            .file(0)
            .and_then(|file| file.inode())
            .expect("of an image");
        Given {
            pages: PageStates::of(&pack, |inode| inode.to_word()),
            late: LatePages::of(&pack),
            frames: DecodedFrames::of(&pack),
            node: node.to_word(),
            bytes,
            _dir: dir,
        }
    }

    impl Given {
        fn read(&self, bytes: Range<u64>) -> Option<Vec<u8>> {
            self.read_of(self.node, bytes, self.bytes.len() as u64)
        }

        fn read_of(&self, node: u64, bytes: Range<u64>, len: u64) -> Option<Vec<u8>> {
            let all = |slices: &[IoSlice<'_>]| slices.iter().flat_map(|s| s.to_vec()).collect();
            let (frames, pages) = (&self.frames, &self.pages);
            self.late.answer(frames, pages, node, bytes, len, all)
        }
    }

    #[test]
    fn what_the_pack_has_is_read_from_its_frames() {
        let given = given(false);
        assert!(given.late.starts.len() > 4, "{:?}", given.late.starts);
        let len = given.bytes.len() as u64;
        for bytes in [
            0..PAGE,
            0..100,
            40 * PAGE..160 * PAGE,
            50 * PAGE..60 * PAGE + 5,
            159 * PAGE..160 * PAGE,
            200 * PAGE..len,
            244 * PAGE..len,
            80 * PAGE..80 * PAGE,
        ] {
            let right = &given.bytes[bytes.start as usize..bytes.end as usize];
            let read = given.read(bytes.clone());
            assert!(read.as_deref() == Some(right), "{bytes:?}");
        }
    }

    #[test]
    fn the_image_answers_what_the_pack_lacks() {
        let given = given(false);
        let len = given.bytes.len() as u64;
        for bytes in [
            0..PAGE + 1,
            20 * PAGE..30 * PAGE,
            39 * PAGE..41 * PAGE,
            159 * PAGE..161 * PAGE,
            // Not from the start of a page, and behind the end.
            1..PAGE,
            200 * PAGE..len + 1,
        ] {
            assert_eq!(given.read(bytes.clone()), None, "{bytes:?}");
        }
        assert_eq!(given.read_of(given.node + 1, 0..PAGE, len), None);
        // The pack is of a file of another length.
        assert_eq!(given.read_of(given.node, 0..PAGE, len - 1), None);
    }

    #[test]
    fn a_damaged_frame_is_not_used() {
        assert_eq!(given(true).read(80 * PAGE..81 * PAGE), None);
    }
}
