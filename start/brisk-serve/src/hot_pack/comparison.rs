//! Which hot packs were compared with the contents of their images.
//!
//! A program executes the pages of a pack, and a pack beside an image may come from anybody. So its frames are used only
//! after all of them were compared with the image. Until then a pack is no more than a list of pages, which are read
//! from the image itself.
//!
//! The directory is `$XDG_CACHE_HOME/brisk/compared`, else `~/.cache/brisk/compared`. It holds an empty file for each
//! pair of an image and a pack. The name of the file has the times of the last change of both (`ctime`), which no program
//! can set back. So a pair that has changed in any way is another pair.
//!
//! Who has a file mapped can change it without that time, on some filesystems and for a while. So the result is kept only
//! for a pack that nobody else may write: others' packs are compared by every session, and never used.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use brisk_launch::error::{Cause, Error, Result};
use brisk_launch::key::Key;
use brisk_launch::open::open_file;
use brisk_launch::owner::is_of_user_or_root;
use brisk_launch::private_directory::{cache_directory, make_cache_directory, open_private};
use rustix::fs::{AtFlags, Dir, Mode, OFlags, Stat, fstat, openat, statat, unlinkat};

use crate::action::Action;

/// How many pairs are kept. The rest is compared again.
const MOST: usize = 1024;

/// The pairs that were compared, in a directory of the user.
#[derive(Debug)]
struct ComparedPacks(OwnedFd);

impl ComparedPacks {
    fn open() -> Result<Self, Cause> {
        let cache = cache_directory()?;
        make_cache_directory(&cache)?;
        open_private(&cache.join("compared")).map(Self)
    }

    fn has(&self, pair: &str) -> bool {
        statat(&self.0, pair, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    fn add(&self, pair: &str) -> io::Result<()> {
        self.remove_all_beyond(MOST)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&self.0, pair, flags, Mode::RUSR | Mode::WUSR)?;
        Ok(())
    }

    /// Removes everything if there are as many pairs as are kept: they are cheap to find out again.
    fn remove_all_beyond(&self, most: usize) -> io::Result<()> {
        let entries = || Dir::read_from(&self.0);
        // With the entries of the directory itself and of its parent.
        if entries()?.count() < most + 2 {
            return Ok(());
        }
        for entry in entries()? {
            let name = entry?.file_name().to_owned();
            if !matches!(name.to_bytes(), b"." | b"..") {
                unlinkat(&self.0, &name, AtFlags::empty())?;
            }
        }
        Ok(())
    }
}

/// The comparison of one pack with one image, which has not been made yet.
#[derive(Debug, Clone)]
pub(crate) struct Comparison {
    /// None if the result cannot be kept.
    packs: Option<Arc<ComparedPacks>>,
    pair: String,
}

impl Comparison {
    /// Of the pack in the file `pack` with the image in the file `image`. None if it was made before.
    pub(super) fn wanted(image: &File, offset: u64, pack: &File) -> io::Result<Option<Self>> {
        let pair = pair(image, offset, pack)?;
        // Without a directory every session compares.
        let packs = match is_only_ours(&fstat(pack)?) {
            true => ComparedPacks::open().ok(),
            false => None,
        };
        if packs.as_ref().is_some_and(|packs| packs.has(&pair)) {
            return Ok(None);
        }
        let packs = packs.map(Arc::new);
        Ok(Some(Self { packs, pair }))
    }

    /// The descriptor that it needs.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.packs.as_ref().map(|packs| packs.0.as_fd())
    }

    /// The name of the image and the pack as they are now.
    pub(super) fn pair(&self) -> &str {
        &self.pair
    }

    /// Keeps the result that all frames have the contents of the image.
    pub(super) fn keep(&self) -> io::Result<()> {
        self.packs
            .as_ref()
            .map_or(Ok(()), |packs| packs.add(&self.pair))
    }
}

/// Names the image and the pack as they are now.
fn pair(image: &File, offset: u64, pack: &File) -> io::Result<String> {
    let mut key = Key::of_launches();
    key.add(b"compared");
    key.add_image(image, offset)?;
    key.add_file(pack)?;
    Ok(key.name())
}

/// Whether nobody but the user and root may write to a file.
fn is_only_ours(found: &Stat) -> bool {
    is_of_user_or_root(found.st_uid) && found.st_mode & 0o022 == 0
}

/// An image from which a pack is about to be made.
#[derive(Debug)]
pub struct ImageOfPack {
    file: File,
    /// The file as it was before the pack was made.
    name: String,
}

impl ImageOfPack {
    /// The image at `path`. Call this before anything is read from the image.
    ///
    /// # Errors
    ///
    /// `Io` if the file cannot be opened or examined.
    pub fn open(path: &Path) -> Result<Self> {
        let open = || -> io::Result<Self> {
            let file = open_file(path)?;
            let name = name_of(&file)?;
            Ok(Self { file, name })
        };
        open().map_err(|e| {
            let cause = Cause::io("examine the image", e);
            Error::new(Action::Fill, cause).with_path(path)
        })
    }

    /// Keeps the result that the pack in the file `pack` has the contents of the image, which starts at byte `offset`,
    /// because the caller has just made the pack from it. Sessions of the same user use the pack from then on.
    ///
    /// Nothing is kept if the image has changed meanwhile, or if others may write to the pack.
    ///
    /// # Errors
    ///
    /// `Io` if a file cannot be examined, or the result cannot be written. `Place` if the environment names no directory
    /// for it, or others can enter that.
    pub fn keep_comparison(&self, offset: u64, pack: &Path) -> Result<()> {
        let examine = |e| Cause::io("examine the hot pack and its image", e);
        let keep = || {
            let pack = open_file(pack).map_err(examine)?;
            let found = fstat(&pack).map_err(|e| examine(e.into()))?;
            let pair = pair(&self.file, offset, &pack).map_err(examine)?;
            if !is_only_ours(&found) || name_of(&self.file).map_err(examine)? != self.name {
                return Ok(());
            }
            let added = ComparedPacks::open()?.add(&pair);
            added.map_err(|e| Cause::io("keep that the hot pack was compared", e))
        };
        keep().map_err(|cause| Error::new(Action::Fill, cause).with_path(pack))
    }
}

/// Names a file as it is now.
fn name_of(file: &File) -> io::Result<String> {
    let mut key = Key::of_launches();
    key.add_file(file)?;
    Ok(key.name())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_pair_is_another_once_one_of_both_changes() {
        let mut image = tempfile::tempfile().expect("a file");
        image.write_all(&[7; 200]).expect("room");
        let mut pack = tempfile::tempfile().expect("a file");
        let name = |image: &File, pack: &File| pair(image, 0, pack).expect("files");
        let first = name(&image, &pack);
        assert_eq!(name(&image, &pack), first);
        std::thread::sleep(std::time::Duration::from_millis(20));
        pack.write_all(b"1").expect("room");
        let second = name(&image, &pack);
        assert_ne!(second, first);
        std::thread::sleep(std::time::Duration::from_millis(20));
        image.write_all(b"1").expect("room");
        assert_ne!(name(&image, &pack), second);
    }

    #[test]
    fn a_pack_that_others_may_write_is_not_ours() {
        use std::os::unix::fs::PermissionsExt;
        let pack = tempfile::tempfile().expect("a file");
        let ours = |pack: &File| is_only_ours(&fstat(pack).expect("open"));
        assert!(ours(&pack));
        for mode in [0o664, 0o646] {
            let mode = std::fs::Permissions::from_mode(mode);
            pack.set_permissions(mode).expect("ours");
            assert!(!ours(&pack));
        }
        pack.set_permissions(std::fs::Permissions::from_mode(0o644))
            .expect("ours");
        std::os::unix::fs::fchown(&pack, Some(4711), None).expect("tests run as root");
        assert!(!ours(&pack));
    }

    /// Another image may come to the same place while the pack is made.
    #[test]
    fn a_pack_of_an_image_that_changed_meanwhile_is_not_kept() {
        let dir = tempfile::tempdir().expect("a directory");
        let (image, pack) = (dir.path().join("image"), dir.path().join("pack"));
        std::fs::write(&image, [7; 200]).expect("room");
        std::fs::write(&pack, [7; 200]).expect("room");
        let before = ImageOfPack::open(&image).expect("a file");
        let of = |image: &ImageOfPack| name_of(&image.file).expect("open") == image.name;
        assert!(of(&before));
        std::thread::sleep(std::time::Duration::from_millis(20));
        std::fs::write(&image, [8; 200]).expect("room");
        assert!(!of(&before));
    }

    #[test]
    fn the_number_of_pairs_is_bounded() {
        let dir = tempfile::tempdir().expect("a directory");
        let packs = ComparedPacks(open_private(&dir.path().join("compared")).expect("made"));
        for pair in ["a", "b", "c"] {
            packs.add(pair).expect("room");
        }
        packs.remove_all_beyond(4).expect("ours");
        assert!(["a", "b", "c"].iter().all(|pair| packs.has(pair)));
        packs.remove_all_beyond(3).expect("ours");
        assert!(!["a", "b", "c"].iter().any(|pair| packs.has(pair)));
    }
}
