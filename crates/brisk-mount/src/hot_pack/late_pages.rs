//! Answers from frames of a pack, for a program that asks for pages before they are stored.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use brisk_image::hot_pack::{FrameReader, HotPack};
use brisk_image::profile::PAGE;

use super::page_states::PageStates;

/// The frames of a pack, for threads that answer.
///
/// A page that is in the pack is also in a block of the image. A frame in lz4 is decoded in a fraction of the time that a block
/// of another codec takes, so a program that asks as fast as the pack is stored waits less.
pub(super) struct LatePages {
    pack: HotPack,
    /// The first range of each frame.
    starts: Vec<usize>,
    /// Those that no thread uses now.
    readers: Mutex<Vec<FrameReader>>,
}

impl LatePages {
    pub(super) fn of(pack: &HotPack) -> Self {
        let frames = (0..pack.frame_count()).map_while(|number| pack.frame(number));
        Self {
            pack: pack.clone(),
            starts: frames.map(|frame| frame.ranges.start).collect(),
            readers: Mutex::default(),
        }
    }

    /// These bytes of the file that is `node`, which has `len` bytes. None if the pack lacks some of them, or has them of
    /// another file, or damaged.
    pub(super) fn read(
        &self,
        pages: &PageStates,
        node: u64,
        bytes: Range<u64>,
        len: u64,
    ) -> Option<Vec<u8>> {
        if !bytes.start.is_multiple_of(PAGE) || bytes.end > len {
            return None;
        }
        let mut at = bytes.start;
        while at < bytes.end {
            let place = pages.place(node, at / PAGE)?;
            let file = self.pack.range(place.range)?.file;
            if self.pack.file(file as usize)?.len() != len {
                return None;
            }
            at = place.end.saturating_mul(PAGE);
        }
        let first = self.frame_of(pages.place(node, bytes.start / PAGE)?.range)?;
        let mut reader = self.take_reader(first);
        let read = self.read_with(&mut reader, pages, node, bytes);
        self.readers().push(reader);
        read
    }

    /// The frame with this range.
    fn frame_of(&self, range: usize) -> Option<usize> {
        let behind = self.starts.partition_point(|start| *start <= range);
        behind.checked_sub(1)
    }

    fn read_with(
        &self,
        reader: &mut FrameReader,
        pages: &PageStates,
        node: u64,
        bytes: Range<u64>,
    ) -> Option<Vec<u8>> {
        let len = usize::try_from(bytes.end.checked_sub(bytes.start)?).ok()?;
        let mut read = Vec::with_capacity(len);
        while read.len() < len {
            let before = read.len();
            let place = |read: &Vec<u8>| {
                let at = bytes.start.saturating_add(read.len() as u64);
                pages.place(node, at / PAGE)
            };
            let number = self.frame_of(place(&read)?.range)?;
            let ranges = self.pack.frame(number)?.ranges;
            let pieces: Vec<_> = reader.read(number).ok()?.map(|(_, piece)| piece).collect();
            // What follows is often in the same frame.
            while read.len() < len
                && let Some(place) = place(&read)
                && let Some(within) = place.range.checked_sub(ranges.start)
                && let Some(piece) = pieces.get(within)
            {
                let from = usize::try_from(place.before.saturating_mul(PAGE)).ok()?;
                let piece = piece.get(from..).filter(|piece| !piece.is_empty())?;
                read.extend_from_slice(piece.get(..len - read.len()).unwrap_or(piece));
            }
            if read.len() == before {
                return None;
            }
        }
        Some(read)
    }

    /// A reader that holds this frame, if there is one.
    fn take_reader(&self, frame: usize) -> FrameReader {
        let mut kept = self.readers();
        let held = kept.iter().position(|reader| reader.held() == Some(frame));
        match held {
            Some(i) => Some(kept.swap_remove(i)),
            None => kept.pop(),
        }
        .unwrap_or_else(|| self.pack.frame_reader())
    }

    fn readers(&self) -> MutexGuard<'_, Vec<FrameReader>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
            node: node.to_word(),
            bytes,
            _dir: dir,
        }
    }

    impl Given {
        fn read(&self, bytes: Range<u64>) -> Option<Vec<u8>> {
            let len = self.bytes.len() as u64;
            self.late.read(&self.pages, self.node, bytes, len)
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
        let (late, pages) = (&given.late, &given.pages);
        assert_eq!(late.read(pages, given.node + 1, 0..PAGE, len), None);
        // The pack is of a file of another length.
        assert_eq!(late.read(pages, given.node, 0..PAGE, len - 1), None);
    }

    #[test]
    fn a_damaged_frame_is_not_used() {
        assert_eq!(given(true).read(80 * PAGE..81 * PAGE), None);
    }
}
