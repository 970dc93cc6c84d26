//! An image that is not read yet.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use brisk_image::{Image, Limits, OpenOptions};

use super::open_image::OpenImage;

/// The file of an image. Only processes that may do little read it, because its bytes are not trusted: a server, and a
/// learner.
pub(super) struct ImageSource {
    pub(super) image: OpenImage,
    /// The most bytes of decoded blocks to keep.
    pub(super) block_cache: u64,
}

impl ImageSource {
    /// Reads the image's superblock and tables.
    pub(super) fn open(self) -> brisk_image::Result<Image> {
        let limits = Limits::new().block_cache(self.block_cache);
        self.image.into_image(OpenOptions::new().limits(limits))
    }

    /// A connection to whoever brings the file with this number: see [`OpenImage::arriving`]. None if nobody can be reached.
    pub(super) fn attach(&self, number: usize) -> Option<UnixStream> {
        self.image.remotes().nth(number)?.attach().ok().flatten()
    }

    /// Asks for a fetcher to be started.
    pub(super) fn start_fetcher(&self) {
        if let Some(remote) = self.image.remotes().next() {
            remote.start_fetcher();
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.image.file.as_fd()
    }
}
