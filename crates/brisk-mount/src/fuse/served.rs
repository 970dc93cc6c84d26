use std::sync::atomic::{AtomicU64, Ordering};

use super::wire::{UNIQUE_RESEND, op};

/// What a server has done, counted by all of its threads.
#[derive(Debug)]
pub struct Served {
    requests: [AtomicU64; op::END as usize],
    resent: AtomicU64,
    read: AtomicU64,
    stored: AtomicU64,
    faults: AtomicU64,
}

impl Default for Served {
    fn default() -> Self {
        Self {
            requests: [const { AtomicU64::new(0) }; op::END as usize],
            resent: AtomicU64::new(0),
            read: AtomicU64::new(0),
            stored: AtomicU64::new(0),
            faults: AtomicU64::new(0),
        }
    }
}

/// [`Served`] at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServedCounts {
    /// Requests of every kind.
    pub requests: u64,
    /// Requests that the kernel sent again, as their server had died.
    pub resent: u64,
    /// Names looked up, absent ones too.
    pub lookups: u64,
    /// Attributes asked for by themselves.
    pub getattrs: u64,
    /// Files and directories opened; one of each where the kernel needs no answer.
    pub opens: u64,
    /// Parts of listings.
    pub listings: u64,
    /// Targets of symbolic links.
    pub readlinks: u64,
    /// Reads of files.
    pub reads: u64,
    /// Extended attributes, and lists of them.
    pub xattrs: u64,
    /// Bytes that reads of files were answered with.
    pub bytes_read: u64,
    /// Bytes put into the page cache before they were asked for.
    pub bytes_stored: u64,
    /// Requests answered with EIO, as the image is damaged or cannot be read.
    pub faults: u64,
}

impl Served {
    /// The counts now.
    pub fn counts(&self) -> ServedCounts {
        let of = |opcode: u32| {
            self.requests
                .get(opcode as usize)
                .map_or(0, |count| count.load(Ordering::Relaxed))
        };
        ServedCounts {
            requests: (0..op::END).map(of).sum(),
            lookups: of(op::LOOKUP),
            getattrs: of(op::GETATTR),
            opens: of(op::OPEN) + of(op::OPENDIR),
            listings: of(op::READDIR) + of(op::READDIRPLUS),
            readlinks: of(op::READLINK),
            reads: of(op::READ),
            xattrs: of(op::GETXATTR) + of(op::LISTXATTR),
            bytes_read: self.read.load(Ordering::Relaxed),
            resent: self.resent.load(Ordering::Relaxed),
            bytes_stored: self.stored.load(Ordering::Relaxed),
            faults: self.faults.load(Ordering::Relaxed),
        }
    }

    /// Counts a request. Those of codes that no kernel has yet count as the code 0.
    pub(super) fn request(&self, opcode: u32, unique: u64) {
        let known = self.requests.get(opcode as usize);
        known
            .unwrap_or(&self.requests[0])
            .fetch_add(1, Ordering::Relaxed);
        if unique & UNIQUE_RESEND != 0 {
            self.resent.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn read(&self, bytes: u64) {
        self.read.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn stored(&self, bytes: u64) {
        self.stored.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn fault(&self) {
        self.faults.fetch_add(1, Ordering::Relaxed);
    }
}
