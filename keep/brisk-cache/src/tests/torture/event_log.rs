use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::format::digest::{self, Digest};

/// What happened to the slot of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Event {
    /// It is about to be freed, or to go to another key.
    Freed = 1,
    /// The key has one that it did not have before.
    Put = 2,
}

const LEN: usize = digest::LEN + 8;

/// Where all processes note what they do to slots. Each has the cache's lock then, so the order is that of the cache.
#[derive(Debug)]
pub(super) struct EventLog(File);

impl EventLog {
    pub(super) fn open(path: &Path) -> Self {
        let mut options = OpenOptions::new();
        Self(options.append(true).create(true).open(path).unwrap())
    }

    pub(super) fn note(&self, event: Event, digest: [u8; digest::LEN]) {
        let mut bytes = [0; LEN];
        bytes[..digest::LEN].copy_from_slice(&digest);
        bytes[digest::LEN] = event as u8;
        // One write behind the end of a file is whole, also beside others.
        (&self.0).write_all(&bytes).unwrap();
    }
}

/// The events so far.
#[derive(Debug)]
pub(super) struct Events {
    file: File,
    len: usize,
    by_digest: HashMap<Digest, Vec<(usize, Event)>>,
    pub(super) freed: u64,
}

impl Events {
    pub(super) fn open(path: &Path) -> Self {
        Self {
            file: File::open(path).unwrap(),
            len: 0,
            by_digest: HashMap::new(),
            freed: 0,
        }
    }

    /// Reads what is new, and returns how many events there are.
    pub(super) fn read(&mut self) -> usize {
        let mut bytes = [0; LEN * 1024];
        loop {
            let n = self
                .file
                .read_at(&mut bytes, (self.len * LEN) as u64)
                .unwrap();
            let (events, _) = bytes[..n].as_chunks::<LEN>();
            for event in events {
                let digest = Digest::from_bytes(*event.first_chunk().unwrap());
                let what = match event[digest::LEN] {
                    1 => Event::Freed,
                    2 => Event::Put,
                    other => panic!("{other}"),
                };
                self.freed += u64::from(what == Event::Freed);
                self.by_digest
                    .entry(digest)
                    .or_default()
                    .push((self.len, what));
                self.len += 1;
            }
            if events.is_empty() {
                return self.len;
            }
        }
    }

    /// Whether the events say that the key had no slot at some time between the events `before` and `after`. Before the
    /// event `since`, it had one.
    pub(super) fn name_a_miss(
        &self,
        digest: Digest,
        since: usize,
        before: usize,
        after: usize,
    ) -> bool {
        let all = self.by_digest.get(&digest).map_or(&[][..], Vec::as_slice);
        let of = |from: usize, to: usize| {
            all.iter()
                .filter(move |(at, _)| (from..to).contains(at))
                .map(|&(_, event)| event)
        };
        of(since, before).next_back() == Some(Event::Freed)
            || of(before, after).any(|event| event == Event::Freed)
    }
}
