//! The arguments that name an image.

use std::path::{Path, PathBuf};

use brisk_image::{Image, OpenOptions};

/// An image to be read.
#[derive(Debug, clap::Args)]
pub struct ImageArgs {
    /// The image, or a file that contains one, such as an AppImage.
    pub image: PathBuf,

    /// The byte of the file at which the image starts. [default: brisk finds it]
    #[arg(long, value_name = "BYTES")]
    pub offset: Option<u64>,
}

impl ImageArgs {
    /// Opens the image.
    pub fn open(&self) -> anyhow::Result<Image> {
        open_image(&self.image, self.offset)
    }
}

/// Opens the image at `path`. It starts at byte `offset` of the file. Without `offset`, brisk finds it.
pub fn open_image(path: &Path, offset: Option<u64>) -> anyhow::Result<Image> {
    let mut options = OpenOptions::new();
    if let Some(bytes) = offset {
        options = options.offset(bytes);
    }
    Ok(Image::open_with(path, &options)?)
}
