//! What a worker tells the one who watches it, by a pipe.

use std::fs::File;
use std::io::Write;

/// What a worker tells the one who watches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum What {
    PutBegun = 1,
    PutDone = 2,
    RemovalBegun = 3,
    RemovalDone = 4,
    /// It has come to the call at which it is to be killed.
    Waits = 5,
    /// So many hits and operations since the last time.
    Worked = 6,
    /// Something is wrong: the text is in a file.
    Wrong = 7,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Message {
    pub(super) what: What,
    pub(super) key: u64,
    pub(super) number: u64,
}

impl Message {
    pub(super) const LEN: usize = 24;

    pub(super) fn new(what: What, key: u64, number: u64) -> Self {
        Self { what, key, number }
    }

    pub(super) fn parse(bytes: &[u8; Self::LEN]) -> Self {
        let (numbers, _) = bytes.as_chunks::<8>();
        let number = |n: usize| u64::from_le_bytes(numbers[n]);
        let what = match number(0) {
            1 => What::PutBegun,
            2 => What::PutDone,
            3 => What::RemovalBegun,
            4 => What::RemovalDone,
            5 => What::Waits,
            6 => What::Worked,
            7 => What::Wrong,
            other => panic!("{other}"),
        };
        Self::new(what, number(1), number(2))
    }
}

/// The end of a pipe into which a worker writes.
#[derive(Debug)]
pub(super) struct Reports(pub(super) File);

impl Reports {
    pub(super) fn send(&self, message: Message) {
        let numbers = [message.what as u64, message.key, message.number];
        let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        // So few bytes are written into a pipe as a whole.
        (&self.0).write_all(&bytes).unwrap();
    }

    pub(super) fn try_clone(&self) -> Self {
        Self(self.0.try_clone().unwrap())
    }
}
