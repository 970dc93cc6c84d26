//! No image arrives from the network: this build lacks the feature `remote`. Nothing here can exist, and all has the face that it has
//! in builds with the feature (`brisk_remote`).

use std::convert::Infallible;
use std::error;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use brisk_io::ByteSource;

pub use io::Error;

type Result<T> = std::result::Result<T, Error>;

fn unsupported<T>() -> Result<T> {
    Err(io::Error::other(
        "this program gets nothing from a network; brisk run does",
    ))
}

#[derive(Clone)]
pub struct Absent {
    pub bytes: Range<u64>,
}

impl Absent {
    pub fn of<'a>(_: &'a (dyn error::Error + 'static)) -> Option<&'a Self> {
        None
    }
}

pub enum Arrival {
    #[expect(dead_code, reason = "nothing arrives")]
    Here,
    #[expect(dead_code, reason = "nothing arrives")]
    Failed(Range<u64>, String),
    #[expect(dead_code, reason = "nothing arrives")]
    Nothing,
    #[expect(dead_code, reason = "nothing arrives")]
    Lost,
}

#[derive(Debug)]
pub struct Arriving(Infallible);

impl Arriving {
    pub fn open(entry: &Entry) -> Result<Self> {
        match entry.0 {}
    }

    pub fn key(&self) -> &str {
        match self.0 {}
    }

    pub fn image(&self) -> &File {
        match self.0 {}
    }

    pub fn files(&self) -> std::slice::Iter<'_, File> {
        match self.0 {}
    }

    pub fn is_whole(&self) -> bool {
        match self.0 {}
    }

    pub fn absent(&self, _: Range<u64>) -> Absent {
        match self.0 {}
    }

    pub fn lacks(&self, _: &Absent) -> bool {
        match self.0 {}
    }

    pub fn first_absent(&self, _: &Range<u64>) -> io::Result<Option<Range<u64>>> {
        match self.0 {}
    }
}

#[derive(Clone, Copy)]
pub enum Class {
    Miss,
    Tables,
    Pack,
    Neighbours,
    Opened,
}

#[derive(Debug)]
pub struct Descriptor {
    pub hash_tree: Option<u64>,
    never: Infallible,
}

impl Descriptor {
    pub fn first_needed(&self) -> [Range<u64>; 3] {
        match self.never {}
    }

    pub fn parse(_: &str) -> Result<Self> {
        unsupported()
    }
}

pub struct Resolved {
    pub descriptor: Option<String>,
}

pub struct Entry(Infallible);

impl Entry {
    pub fn described(&self) -> Result<Resolved> {
        match self.0 {}
    }
}

#[derive(Clone, Debug)]
pub struct FetcherPlace(Infallible);

impl FetcherPlace {
    pub fn new(cache: Arc<RemoteCache>, _: &Path) -> Self {
        match cache.0 {}
    }

    pub fn cache(&self) -> &Arc<RemoteCache> {
        match self.0 {}
    }

    pub fn start(&self) -> Result<()> {
        match self.0 {}
    }
}

#[derive(Debug)]
pub struct ParkingImage(Infallible);

impl ParkingImage {
    pub fn new(arriving: Arc<Arriving>) -> Result<Self> {
        match arriving.0 {}
    }

    pub fn descriptors(&self) -> [RawFd; 2] {
        match self.0 {}
    }

    pub fn arriving(&self) -> &Arc<Arriving> {
        match self.0 {}
    }

    pub fn want(&self, _: &Range<u64>, _: Class) {
        match self.0 {}
    }

    pub fn needs_nobody(&self) -> bool {
        match self.0 {}
    }

    pub fn has_asks(&self) -> bool {
        match self.0 {}
    }

    pub fn wake_up(&self) {
        match self.0 {}
    }

    pub fn wait_for(&self, _: &Range<u64>, _: Class, _: &dyn Fn() -> bool) -> bool {
        match self.0 {}
    }

    pub fn arrivals(&self, _: UnixStream) -> Result<Arrivals> {
        match self.0 {}
    }
}

impl ByteSource for ParkingImage {
    fn size(&self) -> io::Result<u64> {
        match self.0 {}
    }

    fn read_bytes_at(&self, _: u64, _: &mut [u8]) -> io::Result<usize> {
        match self.0 {}
    }
}

pub struct Arrivals(Infallible);

impl Arrivals {
    pub fn next(&mut self, _: Duration) -> Arrival {
        match self.0 {}
    }
}

#[derive(Debug)]
pub struct RemoteCache(Infallible);

impl RemoteCache {
    pub fn at(_: &Path) -> Result<Self> {
        unsupported()
    }

    pub fn path(&self) -> &Path {
        match self.0 {}
    }

    pub fn fd(&self) -> &OwnedFd {
        match self.0 {}
    }

    pub fn entry(&self, _: &str) -> Result<Option<Entry>> {
        match self.0 {}
    }
}

pub struct RemoteUrl(Infallible);

impl RemoteUrl {
    pub fn is_url(_: &OsStr) -> bool {
        false
    }

    pub fn of_user(_: &str) -> Result<Self> {
        unsupported()
    }

    pub fn as_str(&self) -> &str {
        match self.0 {}
    }
}

pub struct WaitingImage(Infallible);

impl WaitingImage {
    pub fn new(arriving: Arc<Arriving>, _: FetcherPlace) -> Self {
        match arriving.0 {}
    }
}

impl ByteSource for WaitingImage {
    fn size(&self) -> io::Result<u64> {
        match self.0 {}
    }

    fn read_bytes_at(&self, _: u64, _: &mut [u8]) -> io::Result<usize> {
        match self.0 {}
    }
}

pub fn attach(_: &OwnedFd, arriving: &Arriving) -> io::Result<Option<UnixStream>> {
    match arriving.0 {}
}
