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
    /// A file object of Python.
    Object(FileObject),
}

impl Source {
    /// The file at `path`.
    pub fn file(path: &Path) -> Result<Self, Fault> {
        let file = open_at_once(path).map_err(|e| {
            let number = Errno::from_io_error(&e).unwrap_or(Errno::IO);
            Fault::System(number, format!("cannot open the image: {e}"))
        })?;
        Ok(Self::File(Arc::new(file)))
    }

    /// Opens the image in it.
    pub fn open(&self) -> Result<Image, Fault> {
        let options = OpenOptions::new();
        match self {
            Self::File(file) => Ok(Image::from_source(Arc::clone(file), &options)?),
            Self::Remote(remote) => remote.open(),
            Self::Object(object) => Ok(Image::from_source(object.clone(), &options)?),
        }
    }

    /// Opens the image in a process that was forked.
    pub fn open_again(&self) -> Result<Image, Fault> {
        match self {
            Self::Object(_) => Err(Fault::Misuse(
                "an image in a file object cannot be used behind a fork, because both processes would move its one position: open \
                 it in this process"
                    .to_owned(),
            )),
            _ => self.open(),
        }
    }
}
