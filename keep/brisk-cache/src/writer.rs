//! What a process has open to write.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use brisk_io::{ByteSource, Mapping, UnsharedFile};
use rustix::io::Errno;

use crate::clock::Minute;
use crate::directory::{Directory, FileId, LEDGER};
use crate::format::check;
use crate::format::ledger_state::{self, LedgerState, TOTALS_AT};
use crate::format::slot::BUCKETS;
use crate::random;
use crate::segment::Aged;

/// How much of the ledger is written at once: its state, and the total of bucket 0, which follows it.
pub(crate) const SAVED: usize = ledger_state::LEN + 16;

/// What a process has open to write.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) ledger: Arc<UnsharedFile>,
    ledger_id: FileId,
    /// Proves that a ledger says where its segment ends.
    pub(crate) home: u64,
    pub(crate) active: Option<Active>,
    pub(crate) lease: Option<Lease>,
    /// How many bytes of records this process has appended.
    pub(crate) appended: u64,
    pub(crate) totals: Vec<u8>,
    /// The start of the ledger as it is on the disk, if it is known.
    pub(crate) saved: Option<[u8; SAVED]>,
    /// The ledger, in a process that has written before. Only read with the lock.
    map: Option<Mapping>,
    /// When this process last looked which files have the names of the index and of the ledger, and which index had.
    pub(crate) named: Option<(Minute, FileId)>,
    /// The index in which this process's limit is noted.
    pub(crate) limit_in: Option<FileId>,
    /// The oldest files, when they were last listed, without those that this process has evicted or spared since. All others
    /// are younger.
    pub(crate) oldest: VecDeque<Aged>,
}

/// The segment that is appended to, if its number is still the ledger's.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) number: u64,
    pub(crate) file: File,
    pub(crate) len: u64,
}

/// A range of a segment that the ledger has as taken, and that this process alone appends to. So most records need no
/// write to the ledger.
///
/// 1. No record and no other writer's range is in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lease {
    pub(crate) segment: u64,
    pub(crate) next: u64,
    pub(crate) end: u64,
}

impl Lease {
    pub(crate) fn has_room(&self, bytes: u64, state: &LedgerState) -> bool {
        let end = self.next.checked_add(bytes);
        // A ledger that does not have it as taken is not the one in which it was noted.
        let is_noted = self.segment == state.active && self.end <= state.tail;
        is_noted && end.is_some_and(|end| end <= self.end)
    }
}

/// The records of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Total {
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
}

/// The file of an [`UnsharedFile`], which a child never uses: it has a [`Process`](crate::store::Process) of its own.
pub(crate) trait TryBorrow {
    fn try_borrow(&self) -> io::Result<BorrowedFd<'_>>;
}

impl TryBorrow for UnsharedFile {
    fn try_borrow(&self) -> io::Result<BorrowedFd<'_>> {
        self.get().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Writer {
    pub(crate) fn new(ledger: File, ledger_id: FileId) -> io::Result<Self> {
        Ok(Self {
            ledger: Arc::new(UnsharedFile::new(ledger)?),
            ledger_id,
            home: home_of(ledger_id),
            active: None,
            lease: None,
            appended: 0,
            totals: Vec::new(),
            saved: None,
            map: None,
            named: None,
            limit_in: None,
            oldest: VecDeque::new(),
        })
    }

    /// Whether the ledger still has its name.
    pub(crate) fn has_name(&self, directory: &Directory) -> io::Result<bool> {
        Ok(directory.id_of(LEDGER)? == Some(self.ledger_id))
    }

    /// Whether the ledger that was read has anything.
    pub(crate) fn has_ledger(&self) -> bool {
        let state = self.totals.get(..ledger_state::LEN).unwrap_or_default();
        state.iter().any(|&byte| byte != 0)
    }

    /// The ledger as it is, of this home or of another. None if it is damaged.
    pub(crate) fn read(
        &mut self,
        directory: &Directory,
        is_mapped: bool,
    ) -> io::Result<Option<LedgerState>> {
        const LEN: usize = TOTALS_AT as usize + BUCKETS as usize * 16;
        self.saved = None;
        if self.read_map() {
            self.saved = self.totals.first_chunk().copied();
            let state = self.totals.first_chunk::<{ ledger_state::LEN }>();
            return Ok(state.and_then(LedgerState::parse));
        }
        let again = !self.totals.is_empty();
        self.totals.clear();
        self.totals.resize(LEN, 0);
        let mut done = 0;
        while let Some(rest) = self.totals.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match rustix::io::pread(self.ledger.try_borrow()?, rest, done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(e) => return Err(directory.told(LEDGER, e.into())),
            }
        }
        if again && done == LEN && is_mapped {
            // A process that writes once needs no map.
            let bytes = 0..LEN as u64;
            let mapped = Mapping::within(&self.ledger.try_clone()?, bytes, LEN as u64);
            self.map = Some(mapped.map_err(|e| directory.told(LEDGER, e))?);
        }
        if done == LEN {
            self.saved = self.totals.first_chunk().copied();
        }
        let state = self.totals.first_chunk::<{ ledger_state::LEN }>();
        Ok(state.and_then(LedgerState::parse))
    }

    /// Copies the ledger from its map. False if there is none, or if somebody has cut the file.
    fn read_map(&mut self) -> bool {
        let Some(map) = &self.map else {
            return false;
        };
        let read = map.read_exact_bytes_at(0, &mut self.totals).is_ok();
        if !read {
            self.map = None;
        }
        read
    }
}

/// The check of the boot id and of the ledger's own numbers.
pub(crate) fn home_of(ledger: FileId) -> u64 {
    // Without a boot id, nobody can prove anything: a random number is the home of this process alone.
    let boot = fs::read("/proc/sys/kernel/random/boot_id");
    let boot = boot.or_else(|_| random::number().map(|number| number.to_le_bytes().to_vec()));
    let mut bytes = boot.unwrap_or_default();
    bytes.extend(ledger.device.to_le_bytes());
    bytes.extend(ledger.inode.to_le_bytes());
    check::seeded(1, &bytes)
}
