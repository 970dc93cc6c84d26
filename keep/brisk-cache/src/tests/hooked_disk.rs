use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::directory::Directory;
use crate::disk::{Disk, RealDisk};

/// What a cache is about to do, or has just done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Deed {
    /// A file was made.
    Created(String),
    /// A write of these bytes follows.
    Write(Vec<u8>),
}

/// The disk itself, with something that happens beside it.
pub(super) struct HookedDisk(Box<dyn Fn(Deed) + Send + Sync>);

impl HookedDisk {
    pub(super) fn new(hook: impl Fn(Deed) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self(Box::new(hook)))
    }
}

impl fmt::Debug for HookedDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HookedDisk").finish_non_exhaustive()
    }
}

impl Disk for HookedDisk {
    fn create(&self, directory: &Directory, name: &str) -> io::Result<File> {
        let made = RealDisk.create(directory, name);
        self.0(Deed::Created(name.to_owned()));
        made
    }

    /// As on a filesystem that has no such files.
    fn create_unnamed(&self, _: &Directory) -> io::Result<Option<File>> {
        Ok(None)
    }

    fn link(&self, _: &Directory, _: BorrowedFd<'_>, _: &str) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn write(&self, file: BorrowedFd<'_>, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.0(Deed::Write(bytes.to_vec()));
        RealDisk.write(file, at, bytes)
    }
}
