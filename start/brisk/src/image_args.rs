//! The arguments that name an image.

use std::path::{Path, PathBuf};

use anyhow::bail;
use brisk_image::{Image, Limits, OpenOptions};
use brisk_remote::RemoteUrl;
use brisk_terminal::names::shown;

use crate::file_kind::explain_image;

/// An image to be read.
#[derive(Debug, Clone, clap::Args)]
pub struct ImageArgs {
    /// The image, or a file that contains one, such as an AppImage. Verbs that only read images also take a URL.
    pub image: PathBuf,

    /// The byte of the file at which the image starts. [default: brisk finds it]
    #[arg(long, value_name = "BYTES")]
    pub offset: Option<u64>,
}

/// How much an image may hold where all of it is read.
#[derive(Debug, Clone, clap::Args)]
pub struct LimitArgs {
    /// Reads the image however many names and bytes its files have. Give this only for images that you trust.
    /// [default: at most 100,000 names and 1 GiB, and for each byte of the image 2 names and 1000 bytes more]
    #[arg(long)]
    pub no_limits: bool,
}

impl LimitArgs {
    /// The limits of images.
    pub fn limits(&self) -> Limits {
        match self.no_limits {
            true => unlimited(),
            false => Limits::new(),
        }
    }

    /// The same error. If an option lifts the limit that it is about, it says which.
    pub fn advise<T>(&self, result: anyhow::Result<T>) -> anyhow::Result<T> {
        advise(result, "use --no-limits")
    }
}

/// The limits of an image that the user trusts.
pub fn unlimited() -> Limits {
    Limits::new().names(u64::MAX).contents(u64::MAX)
}

/// The same error. If it is about a limit that `advice` lifts, it says so.
pub fn advise<T>(result: anyhow::Result<T>, advice: &str) -> anyhow::Result<T> {
    result.map_err(|e| {
        let error = e.downcast_ref::<brisk_image::Error>();
        match error.is_some_and(brisk_image::Error::is_image_limit) {
            true => anyhow::anyhow!("{e:#}; if you trust the image, {advice}"),
            false => e,
        }
    })
}

impl ImageArgs {
    /// Opens the image.
    pub fn open(&self) -> anyhow::Result<Image> {
        open_image(&self.image, self.offset)
    }
}

/// Opens the image at `path`. It starts at byte `offset` of the file. Without `offset`, brisk finds it.
pub fn open_image(path: &Path, offset: Option<u64>) -> anyhow::Result<Image> {
    open_image_within(path, offset, Limits::new())
}

/// As [`open_image`], within other limits than the default ones.
pub fn open_image_within(
    path: &Path,
    offset: Option<u64>,
    limits: Limits,
) -> anyhow::Result<Image> {
    if RemoteUrl::is_url(path.as_os_str()) {
        bail!(
            "{}: this needs a file, and no URL; get the file with curl -O",
            shown(path)
        );
    }
    let mut options = OpenOptions::new().limits(limits);
    if let Some(bytes) = offset {
        options = options.offset(bytes);
    }
    Image::open_with(path, &options).map_err(|e| explain_image(e, path, offset))
}
