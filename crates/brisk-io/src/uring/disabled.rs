use std::convert::Infallible;
use std::fs::File;
use std::io;

use crate::hop::Group;

/// Says that this build cannot.
pub(crate) fn transfer(_: &File, _: u64, _: &mut [u8], _: usize) -> io::Result<()> {
    Err(unsupported())
}

/// There is none.
#[derive(Debug, Clone)]
pub(crate) struct Alarm(Infallible);

impl Alarm {
    pub(crate) fn ring(&self) {
        match self.0 {}
    }
}

/// There are none.
pub(crate) struct Hops(Infallible);

impl Hops {
    pub(crate) fn new() -> io::Result<Self> {
        Err(unsupported())
    }

    pub(crate) fn alarm(&self) -> Alarm {
        match self.0 {}
    }

    pub(crate) fn run(self, _: impl Fn(usize) -> Vec<Group>) -> Vec<Group> {
        match self.0 {}
    }
}

fn unsupported() -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        "brisk-io was built without its feature io-uring",
    )
}
