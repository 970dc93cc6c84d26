use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use brisk_io::ByteSource;
use rustix::fs::{OFlags, fstat};

use super::event_log::{Event, EventLog};
use super::report::{Message, Reports, What};
use crate::directory::{Directory, INDEX};
use crate::disk::{Disk, RealDisk};
use crate::format::digest;
use crate::format::index_header::{self, IndexHeader, SLOTS_AT};
use crate::format::slot::{self, Slot};

/// Does what the real disk does, and notes each slot that goes from one key to another. At one of the calls it says so and
/// waits to be killed.
#[derive(Debug)]
pub(super) struct WatchingDisk {
    log: EventLog,
    reports: Option<Reports>,
    calls: AtomicU64,
    /// `u64::MAX` for never.
    wait_at: u64,
    freed: AtomicU64,
}

type DigestBytes = [u8; digest::LEN];

impl WatchingDisk {
    pub(super) fn new(log: EventLog, reports: Option<Reports>, wait_at: u64) -> Self {
        Self {
            log,
            reports,
            calls: AtomicU64::new(0),
            wait_at,
            freed: AtomicU64::new(0),
        }
    }

    /// How many slots this process took from their keys.
    pub(super) fn freed(&self) -> u64 {
        self.freed.load(Ordering::Relaxed)
    }

    fn note_freed(&self, digest: DigestBytes) {
        self.freed.fetch_add(1, Ordering::Relaxed);
        self.log.note(Event::Freed, digest);
    }
}

impl Disk for WatchingDisk {
    fn before(&self) -> io::Result<()> {
        if self.calls.fetch_add(1, Ordering::Relaxed) == self.wait_at {
            let reports = self.reports.as_ref().unwrap();
            reports.send(Message::new(What::Waits, 0, self.wait_at));
            std::thread::sleep(Duration::from_secs(3600));
            panic!("nobody killed it");
        }
        Ok(())
    }

    fn write(&self, file: BorrowedFd<'_>, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.before()?;
        let change = SlotChange::of(file, at, bytes)?;
        if let Some(SlotChange(Some(old), new)) = change
            && new != Some(old)
        {
            self.note_freed(old);
        }
        RealDisk.write(file, at, bytes)?;
        if let Some(SlotChange(old, Some(new))) = change
            && old != Some(new)
        {
            self.log.note(Event::Put, new);
        }
        Ok(())
    }

    fn rename(&self, directory: &Directory, from: &str, to: &str) -> io::Result<()> {
        self.before()?;
        if to == INDEX {
            let new = digests_of(directory, from)?;
            for gone in digests_of(directory, to)?.difference(&new) {
                self.note_freed(*gone);
            }
        }
        RealDisk.rename(directory, from, to)
    }
}

/// Whose slot it was, and whose it becomes.
#[derive(Clone, Copy)]
struct SlotChange(Option<DigestBytes>, Option<DigestBytes>);

impl SlotChange {
    /// None if the write is not that of a slot.
    fn of(file: BorrowedFd<'_>, at: u64, bytes: &[u8]) -> io::Result<Option<Self>> {
        let Ok(new) = <[u8; slot::LEN]>::try_from(bytes) else {
            return Ok(None);
        };
        let file = File::from(file.try_clone_to_owned()?);
        let Some(header) = header_of(&file)?.filter(|_| at >= SLOTS_AT) else {
            return Ok(None);
        };
        let mut old = [0; slot::LEN];
        file.read_exact_bytes_at(at, &mut old)?;
        let of = |bytes| digest_of(header.seed, bytes);
        Ok(Some(Self(of(&old), of(&new))))
    }
}

fn digest_of(seed: u64, bytes: &[u8; slot::LEN]) -> Option<DigestBytes> {
    Slot::parse(seed, bytes).and_then(|_| bytes.first_chunk().copied())
}

fn header_of(file: &File) -> io::Result<Option<IndexHeader>> {
    let len = fstat(file.as_fd())?.st_size as u64;
    let mut header = [0; index_header::LEN];
    match file.read_exact_bytes_at(0, &mut header) {
        Ok(()) => Ok(IndexHeader::parse(&header, len)),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(e) => Err(e),
    }
}

/// The keys that have slots in an index.
fn digests_of(directory: &Directory, name: &str) -> io::Result<HashSet<DigestBytes>> {
    let Some((file, _)) = directory.file(name, OFlags::RDONLY)? else {
        return Ok(HashSet::new());
    };
    let Some(header) = header_of(&file)? else {
        return Ok(HashSet::new());
    };
    let mut bytes = vec![0; (header.file_len() - SLOTS_AT) as usize];
    file.read_exact_bytes_at(SLOTS_AT, &mut bytes)?;
    let (slots, _) = bytes.as_chunks::<{ slot::LEN }>();
    let digests = slots.iter().filter_map(|s| digest_of(header.seed, s));
    Ok(digests.collect())
}
