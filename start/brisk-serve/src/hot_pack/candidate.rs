//! The places where a hot pack of an image may be.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::remote::ParkingImage;
use brisk_image::hot_pack::HotPack;
use brisk_image::verity::{RootHash, SUPERBLOCK_IN_SECTION, TreeFile, VerifiedFile};
use brisk_image::{Image, Limits};
use brisk_io::ByteSource;
use brisk_launch::error::{Advice, Cause, Error, Result};
use brisk_launch::open::open_file;

use super::choice::first_of_use;
use super::comparison::Comparison;
use super::pack_file::PackFile;
use crate::action::Action;

/// The most pages of a pack that is used: 16 GiB.
const MOST_PAGES: u64 = 1 << 22;

/// A place where a hot pack may be.
#[derive(Debug)]
pub struct PackCandidate {
    /// The name of the file, for messages.
    path: PathBuf,
    /// Threads that fill have a table of descriptors of their own. Those that answer read the pack, too, so it must be read
    /// through a descriptor that was open before there were threads.
    file: Arc<File>,
    is_behind: bool,
    /// Whether the file may still arrive, so that only the image's own source knows what is there.
    arrives: bool,
    /// Whether its frames are never used, and need not be there.
    is_list: bool,
    /// None if the frames of the pack are known to have the contents of the image.
    comparison: Option<Comparison>,
    /// The pack is in this file, and not in that of the image.
    signed: Option<ArrivingPack>,
}

/// A hot pack that arrives in a file of its own. Somebody whom the user trusts vouches for its root hash.
#[derive(Debug)]
pub(crate) struct ArrivingPack {
    /// What messages call it.
    pub(crate) name: PathBuf,
    pub(crate) parking: Arc<ParkingImage>,
    pub(crate) root: RootHash,
    /// The byte at which the section with the hash tree starts.
    pub(crate) tree: u64,
}

impl ArrivingPack {
    /// What is absent is an error.
    fn open(&self) -> brisk_image::Result<HotPack> {
        open_arriving_pack(&self.parking, &self.name, self.root, self.tree)
    }
}

/// Opens a hot pack that arrives in `source`, which is `path` for messages. Each block is compared with the hash tree of this root
/// hash, in the section at byte `tree`, whenever it is read.
///
/// # Errors
///
/// Those of [`VerifiedFile::new`] and [`HotPack::from_source`].
pub fn open_arriving_pack(
    source: &Arc<impl ByteSource + 'static>,
    path: &Path,
    root: RootHash,
    tree: u64,
) -> brisk_image::Result<HotPack> {
    let superblock = tree.saturating_add(SUPERBLOCK_IN_SECTION);
    let tree = TreeFile::new(Arc::clone(source), path, superblock);
    let file = VerifiedFile::new(Arc::clone(source), path, tree, root)?;
    HotPack::from_source(file, &Limits::default())
}

/// A pack of the image that is served.
pub(super) struct OpenPack {
    pub(super) pack: HotPack,
    pub(super) file: PackFile,
    /// Whether its frames are used. If not, the pack is only a list of pages, which are read from the image.
    pub(super) uses_frames: bool,
    /// Whether it is part of an image that arrives.
    pub(super) arrives: bool,
    /// What must be done so that later sessions use the frames.
    pub(super) comparison: Option<Comparison>,
}

/// The pack that a new session would use.
pub(crate) struct UsablePack {
    pub(crate) pack: HotPack,
    /// Whether its frames are used, and not only its list of pages.
    pub(crate) is_compared: bool,
}

impl PackCandidate {
    /// The pack in the file at `path`, which the user has named. Its frames are used as they are.
    pub(crate) fn named(path: &Path) -> Result<Self, Cause> {
        let step = format!("open the hot pack {}", path.display());
        let file = open_file(path).map_err(|e| Cause::io(step, e))?;
        Ok(Self::of(path.to_owned(), file))
    }

    /// The pack in the file at `path`, of which only the list of pages is there, or is believed.
    pub(crate) fn list(path: &Path) -> Result<Self, Cause> {
        Ok(Self {
            is_list: true,
            ..Self::named(path)?
        })
    }

    /// The pack in `file`, which the caller trusts.
    pub(crate) fn of(path: PathBuf, file: File) -> Self {
        Self {
            path,
            file: Arc::new(file),
            is_behind: false,
            arrives: false,
            is_list: false,
            comparison: None,
            signed: None,
        }
    }

    /// The pack behind the image in `file`. Who wrote the one wrote the other.
    pub fn behind(path: PathBuf, file: File) -> Self {
        Self {
            is_behind: true,
            ..Self::of(path, file)
        }
    }

    /// The pack behind an image that arrives.
    pub(crate) fn arriving(path: PathBuf, file: File) -> Self {
        Self {
            arrives: true,
            ..Self::behind(path, file)
        }
    }

    /// The pack in a file of its own that arrives, which the caller trusts.
    pub(crate) fn signed(pack: ArrivingPack) -> Result<Self, Cause> {
        let name = pack.name.clone();
        let file = pack.parking.arriving().image().try_clone();
        let file = file.map_err(|e| Cause::io("hold the hot pack", e))?;
        Ok(Self {
            arrives: true,
            signed: Some(pack),
            ..Self::of(name, file)
        })
    }

    /// `IMAGE.hot` beside the image at `path`, which is in `image` and starts at byte `offset`. None if it is missing or
    /// cannot be opened, because the program must start all the same.
    pub fn beside(path: &Path, image: &File, offset: u64) -> Option<Self> {
        let mut hot = OsString::from(path);
        hot.push(".hot");
        let hot = PathBuf::from(hot);
        let file = open_file(&hot).ok()?;
        let comparison = Comparison::wanted(image, offset, &file).ok()?;
        Some(Self {
            comparison,
            ..Self::of(hot, file)
        })
    }

    /// The open file.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// What must be done before its frames are used.
    pub(super) fn comparison(&self) -> Option<&Comparison> {
        self.comparison.as_ref()
    }

    /// The descriptors that it needs.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let comparison = self.comparison.as_ref().and_then(Comparison::descriptor);
        std::iter::once(self.file.as_fd()).chain(comparison)
    }

    /// Opens the pack, if it belongs to `image`. None if there is no pack.
    fn open(&self, image: &Image) -> Result<Option<OpenPack>> {
        self.open_of(image)
            .map_err(|cause| Error::new(Action::Fill, cause).with_path(&self.path))
    }

    fn open_of(&self, image: &Image) -> Result<Option<OpenPack>, Cause> {
        let unreadable = unreadable_pack;
        let hold = || {
            let file = self.file.try_clone();
            file.map_err(|e| Cause::io("hold the hot pack", e))
        };
        let (pack, start) = match (&self.signed, self.is_behind) {
            (Some(signed), _) => (signed.open().map_err(unreadable)?, 0),
            (None, false) => {
                let pack = HotPack::from_source(Arc::clone(&self.file), &Limits::default());
                (pack.map_err(unreadable)?, 0)
            }
            (None, true) => {
                let pack = image.hot_pack().map_err(unreadable)?;
                let range = image.hot_pack_range().map_err(unreadable)?;
                let Some((pack, range)) = pack.zip(range) else {
                    return Ok(None);
                };
                (pack, range.start.saturating_add(image.offset()))
            }
        };
        // A hash tree vouches for what it covers, and nothing else does: neither the user nor an earlier comparison.
        let (uses_frames, comparison) = match image.verified() {
            _ if self.is_list => (false, None),
            _ if self.signed.is_some() => (true, None),
            Some(_) => (self.is_behind, None),
            None => (self.comparison.is_none(), self.comparison.clone()),
        };
        let file = match self.arrives {
            true => PackFile::arriving(hold()?, start, &pack),
            false => PackFile::new(hold()?, start, &pack).verified(image.verified()),
        };
        if !file.is_direct() && !self.is_list {
            // The kernel reads the pack while this computes the identity, which reads the image's tables.
            file.read_ahead_of(0);
        }
        if !pack.is_of(image).map_err(unreadable)? {
            let cause = Cause::image("it belongs to another image");
            return Err(cause.advise(Advice::PackAgain));
        }
        let pages = pack.pages();
        if pages > MOST_PAGES {
            let text = format!("it has {pages} pages, allowed are {MOST_PAGES}");
            return Err(Cause::image(text));
        }
        Ok(Some(OpenPack {
            pack,
            file,
            uses_frames,
            arrives: self.arrives,
            comparison,
        }))
    }
}

/// The first usable pack of `image`. Calls `refused` with the reason for each earlier one. `is_over` says
/// that nobody needs it any more.
pub(super) fn open_first(
    candidates: &[PackCandidate],
    image: &Image,
    is_over: impl Fn() -> bool,
    refused: impl FnMut(Error),
) -> Option<OpenPack> {
    let candidates = candidates.iter().take_while(|_| !is_over());
    first_of_use(candidates.map(|candidate| candidate.open(image)), refused)
}

/// The first usable pack of `image`, or why the last one is not usable. None if there is no pack.
pub(crate) fn first_pack(
    candidates: &[PackCandidate],
    image: &Image,
) -> Option<Result<UsablePack>> {
    let mut last = None;
    match open_first(candidates, image, || false, |why| last = Some(why)) {
        Some(open) => Some(Ok(UsablePack {
            is_compared: open.uses_frames,
            pack: open.pack,
        })),
        None => last.map(Err),
    }
}

/// A pack is damaged, or no pack.
pub(super) fn unreadable_pack(e: brisk_image::Error) -> Cause {
    let cause = Cause::image("it cannot be read").advise(Advice::PackAgain);
    cause.because(e)
}
