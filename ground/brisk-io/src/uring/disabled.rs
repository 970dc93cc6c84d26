use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::task::Waker;

use crate::read_group::ReadGroup;

/// Fails, because this build has no io_uring.
pub(crate) fn transfer(_: &File, _: u64, _: &mut [u8], _: usize) -> io::Result<()> {
    Err(unsupported())
}

/// No alarm exists.
#[derive(Debug, Clone)]
pub(crate) struct Alarm(Infallible);

impl Alarm {
    pub(crate) fn ring(&self) {
        match self.0 {}
    }
}

/// No ring exists.
pub(crate) struct RingReads(Infallible);

impl RingReads {
    pub(crate) fn new() -> io::Result<Self> {
        Err(unsupported())
    }

    pub(crate) fn alarm(&self) -> Alarm {
        match self.0 {}
    }

    pub(crate) fn room(&self) -> usize {
        match self.0 {}
    }

    pub(crate) fn begin(&mut self, _: Vec<ReadGroup>) {
        match self.0 {}
    }

    pub(crate) fn enter(&mut self) -> io::Result<()> {
        match self.0 {}
    }

    pub(crate) fn finish(&mut self) -> Vec<Waker> {
        match self.0 {}
    }

    pub(crate) fn give_up(self) -> Vec<ReadGroup> {
        match self.0 {}
    }
}

fn unsupported() -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        "brisk-io was built without its feature io-uring",
    )
}
