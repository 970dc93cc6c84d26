//! The hot packs that a session fills from.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brisk_image::Image;
use rustix::fs::OFlags;

use super::say;
use crate::error::{Cause, Error, Result};
use crate::fuse::fill::{Fill, FillRoot, PackPlace, check_pack};

/// What a new session puts into the page cache before its programs ask for it: the pages of the
/// images' hot packs.
///
/// The pack of an image is `IMAGE.hot` beside it, or else, and where that is of another image or
/// damaged, the one behind the image. An image without one is served as any other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionFill {
    /// The pack of the session's first image, in place of those that would be found.
    pub hot: Option<PathBuf>,
    /// Bytes that are stored for each image, at most. Half of the free memory is a bound always.
    pub budget: Option<u64>,
}

impl SessionFill {
    /// Looks at the pack that a session of the image at `path` would use: the bytes that it fills,
    /// or why it is ignored; none if there is no pack.
    ///
    /// # Errors
    ///
    /// `Io` if [`SessionFill::hot`] or the image cannot be opened.
    pub fn check(&self, path: &Path, image: &Image) -> Result<Option<Result<u64>>> {
        let failed = |cause| Error::new(crate::error::Action::Fill, cause).with_path(path);
        let packs = Packs::find(self, path, true).map_err(failed)?;
        let file = File::open(path).map_err(|e| failed(Cause::io("open the image", e)))?;
        Ok(check_pack(&packs.places(path, file), image))
    }
}

/// The packs that an image may have.
pub(super) struct Packs {
    beside: Option<(PathBuf, File)>,
    behind: bool,
    budget: Option<u64>,
}

impl Packs {
    /// Those of the image at `path`. `first`: it is the session's first image.
    pub(super) fn find(fill: &SessionFill, path: &Path, first: bool) -> Result<Self, Cause> {
        let budget = fill.budget;
        if let (Some(hot), true) = (&fill.hot, first) {
            let step = format!("open the hot pack {}", hot.display());
            let file = open(hot).map_err(|e| Cause::io(step, e))?;
            return Ok(Self {
                beside: Some((hot.clone(), file)),
                behind: false,
                budget,
            });
        }
        let mut name = OsString::from(path);
        name.push(".hot");
        // One that is not there or cannot be opened is no reason not to start.
        let beside = open(Path::new(&name)).ok().map(|file| (name.into(), file));
        Ok(Self {
            beside,
            behind: true,
            budget,
        })
    }

    /// The descriptors of those that are open.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        self.beside.iter().map(|(_, file)| file.as_raw_fd())
    }

    /// Where to look for the pack of the image in `file`, in order.
    fn places(self, path: &Path, file: File) -> Vec<PackPlace> {
        let beside = self
            .beside
            .map(|(path, file)| PackPlace::Beside { path, file });
        let behind = self.behind.then(|| PackPlace::Behind {
            path: path.to_owned(),
            file,
        });
        beside.into_iter().chain(behind).collect()
    }

    /// The fill of a mount of the image at `path`, with this `root`.
    pub(super) fn fill(self, path: &Path, image: &File, root: FillRoot) -> Option<Arc<Fill>> {
        let budget = self.budget;
        match image.try_clone() {
            Ok(image) => {
                let fill = Fill::new(self.places(path, image), root, tell);
                Some(Arc::new(fill.budget(budget)))
            }
            Err(e) => {
                say(&format!("nothing is filled: {e}"));
                None
            }
        }
    }
}

/// Opens a file, and waits for nobody if it is a pipe.
fn open(path: &Path) -> io::Result<File> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).map_err(io::Error::other)?;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Writes an error and its reasons to the session's log.
fn tell(error: &Error) {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    say(&text);
}
