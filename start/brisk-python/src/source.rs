//! Where the bytes of an image come from.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use brisk_image::{Image, OpenOptions};
use brisk_io::open_at_once;
use rustix::io::Errno;

use crate::fault::Fault;
use crate::object::FileObject;
use crate::remote::RemoteSource;

/// Where the bytes of an image come from.
pub enum Source {
    /// A file. Each process reads the one that was opened first, whatever its path leads to later.
    File(Arc<File>),
    /// The network.
    Remote(Box<RemoteSource>),
    /// A file object of Python, which the image has.
    Object,
}

impl Source {
    /// The file at `path`, and the image in it.
    pub fn open_file(path: &Path) -> Result<(Self, Image), Fault> {
        let file = open_at_once(path).map_err(|e| {
            let number = Errno::from_io_error(&e).unwrap_or(Errno::IO);
            Fault::System(number, format!("cannot open the image: {e}"))
        })?;
        let file = Arc::new(file);
        let image = Image::from_source(Arc::clone(&file), &OpenOptions::new())?;
        Ok((Self::File(file), image))
    }

    /// The file object, and the image in it.
    pub fn open_object(object: FileObject) -> Result<(Self, Image), Fault> {
        let image = Image::from_source(object, &OpenOptions::new())?;
        Ok((Self::Object, image))
    }

    /// Opens the image in a process that was forked.
    pub fn open_again(&self) -> Result<Image, Fault> {
        match self {
            Self::File(file) => Ok(Image::from_source(Arc::clone(file), &OpenOptions::new())?),
            Self::Remote(remote) => remote.open_again(),
            Self::Object => Err(Fault::Misuse(
                "an image in a file object cannot be used behind a fork, because both processes would move its one position: open \
                 it in this process"
                    .to_owned(),
            )),
        }
    }
}
