//! The places where a hot pack of an image may be.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};

use brisk_image::hot_pack::HotPack;
use brisk_image::{Image, Limits};

use super::choice::first_of_use;
use super::pack_file::PackFile;
use super::trust::distrust;
use crate::error::{Action, Cause, Error, Result};
use crate::open::open_file;

/// The most pages of a pack that is used: 16 GiB.
const MOST_PAGES: u64 = 1 << 22;

/// A place where a hot pack may be.
#[derive(Debug)]
pub enum PackCandidate {
    /// In a file of its own.
    Beside {
        /// Its name, for messages.
        path: PathBuf,
        /// The file.
        file: File,
        /// Why somebody other than the makers of the image may have written the file. Then it is not used.
        distrusted: Option<String>,
    },
    /// Behind the image.
    Behind {
        /// The image's name, for messages.
        path: PathBuf,
        /// The image's file.
        file: File,
    },
}

/// A pack of the image that is served.
pub(super) struct OpenPack {
    pub(super) pack: HotPack,
    pub(super) file: PackFile,
}

impl PackCandidate {
    /// The pack in the file at `path`, which the user has named.
    pub(crate) fn named(path: &Path) -> Result<Self, Cause> {
        let step = format!("open the hot pack {}", path.display());
        let file = open_file(path).map_err(|e| Cause::io(step, e))?;
        Ok(Self::of(path.to_owned(), file))
    }

    /// The pack in `file`, which the caller trusts.
    pub(crate) fn of(path: PathBuf, file: File) -> Self {
        Self::Beside {
            path,
            file,
            distrusted: None,
        }
    }

    /// `IMAGE.hot` beside the image at `image`. None if it is missing or cannot be opened, because the
    /// program must start all the same.
    pub(crate) fn beside(image: &Path) -> Option<Self> {
        let mut path = OsString::from(image);
        path.push(".hot");
        let file = open_file(Path::new(&path)).ok()?;
        Some(Self::Beside {
            distrusted: distrust(&file, image),
            path: path.into(),
            file,
        })
    }

    /// The open file.
    pub(crate) fn file(&self) -> &File {
        let (Self::Beside { file, .. } | Self::Behind { file, .. }) = self;
        file
    }

    /// Opens the pack, if it belongs to `image`. None if there is no pack.
    fn open(&self, image: &Image) -> Result<Option<OpenPack>> {
        let (Self::Beside { path, .. } | Self::Behind { path, .. }) = self;
        self.open_of(image)
            .map_err(|cause| Error::new(Action::Fill, cause).with_path(path))
    }

    fn open_of(&self, image: &Image) -> Result<Option<OpenPack>, Cause> {
        let unreadable = |source| Cause::HotPack { source };
        let hold = |file: &File| {
            let file = file.try_clone();
            file.map_err(|e| Cause::io("hold the hot pack", e))
        };
        let (pack, file, start) = match self {
            Self::Beside {
                distrusted: Some(why),
                ..
            } => return Err(Cause::HotPackOfOthers { why: why.clone() }),
            Self::Beside { file, .. } => {
                let pack = HotPack::from_source(hold(file)?, &Limits::default());
                (pack.map_err(unreadable)?, hold(file)?, 0)
            }
            Self::Behind { file, .. } => {
                let pack = image.hot_pack().map_err(unreadable)?;
                let range = image.hot_pack_range().map_err(unreadable)?;
                let Some((pack, range)) = pack.zip(range) else {
                    return Ok(None);
                };
                let start = range.start.saturating_add(image.offset());
                (pack, hold(file)?, start)
            }
        };
        let file = PackFile::new(file, start, &pack);
        if !file.is_direct() {
            // The kernel reads the pack while this computes the identity, which reads the image's tables.
            file.read_ahead_of(0);
        }
        if !pack.is_of(image).map_err(unreadable)? {
            return Err(Cause::HotPackOfAnother);
        }
        let pages = pack.pages();
        if pages > MOST_PAGES {
            let allowed = MOST_PAGES;
            return Err(Cause::HotPackLarge { pages, allowed });
        }
        Ok(Some(OpenPack { pack, file }))
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
pub(crate) fn first_pack(candidates: &[PackCandidate], image: &Image) -> Option<Result<HotPack>> {
    let mut last = None;
    match open_first(candidates, image, || false, |why| last = Some(why)) {
        Some(open) => Some(Ok(open.pack)),
        None => last.map(Err),
    }
}
