//! Counters of a fill.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::page_states::AskedPages;

/// Counts what all threads of a fill do. [`FillCounts`] explains each number.
#[derive(Debug, Default)]
pub(crate) struct FillCounters {
    pack: AtomicU64,
    stored: AtomicU64,
    late: AtomicU64,
    evicted: AtomicU64,
    strayed: AtomicU64,
    primed: AtomicU64,
    damaged: AtomicU64,
    direct_bytes: AtomicU64,
    gave_up: AtomicU64,
    first: AtomicU64,
    last: AtomicU64,
    over: AtomicU64,
    looks: AtomicU64,
    refills: AtomicU64,
    refilled: AtomicU64,
}

/// What a fill has done so far. Numbers are pages of 4 KiB unless they say otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FillCounts {
    /// Pages of the hot pack. 0 if there is no pack.
    pub pack: u64,
    /// Pages that were put into the page cache, without those of [`FillCounts::refilled`].
    pub stored: u64,
    /// Pages that the kernel asked for before they were stored.
    pub late: u64,
    /// Pages that the kernel asked for after they were stored, because it had no room for them.
    pub evicted: u64,
    /// Pages that the kernel asked for and the pack lacks.
    pub strayed: u64,
    /// Names that were looked up.
    pub primed: u64,
    /// Frames of the pack that could not be read.
    pub damaged: u64,
    /// Bytes of the pack that were read directly, past the page cache. 0 until the last of them was read.
    pub direct_bytes: u64,
    /// Whether the fill, or a later one, stopped before the end of the pack, because it was too late or memory was short.
    pub gave_up: bool,
    /// Microseconds from the start of the server to the first store.
    pub first: u64,
    /// Microseconds to the last store, without those of [`FillCounts::refilled`].
    pub last: u64,
    /// Microseconds to the end of the fill. 0 if it has not ended.
    pub over: u64,
    /// How often the server asked, after the fill, whether its pages are still in the page cache. A look counts when what was
    /// gone is stored again.
    pub looks: u64,
    /// How often it stored again what was no longer there.
    pub refills: u64,
    /// Pages that it put into the page cache in doing so.
    pub refilled: u64,
}

impl FillCounters {
    pub(crate) fn counts(&self) -> FillCounts {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        FillCounts {
            pack: of(&self.pack),
            stored: of(&self.stored),
            late: of(&self.late),
            evicted: of(&self.evicted),
            strayed: of(&self.strayed),
            primed: of(&self.primed),
            damaged: of(&self.damaged),
            direct_bytes: of(&self.direct_bytes),
            gave_up: of(&self.gave_up) != 0,
            first: of(&self.first),
            last: of(&self.last),
            over: of(&self.over),
            looks: of(&self.looks),
            refills: of(&self.refills),
            refilled: of(&self.refilled),
        }
    }

    pub(super) fn pack(&self, pages: u64) {
        self.pack.store(pages, Ordering::Relaxed);
    }

    pub(super) fn asked(&self, asked: AskedPages) {
        for (count, pages) in [
            (&self.late, asked.late),
            (&self.evicted, asked.evicted),
            (&self.strayed, asked.strayed),
        ] {
            if pages > 0 {
                count.fetch_add(pages, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn stored(&self, pages: u64, since: Instant) {
        let now = micros(since);
        if self.stored.fetch_add(pages, Ordering::Relaxed) == 0 {
            self.first.store(now, Ordering::Relaxed);
        }
        self.last.fetch_max(now, Ordering::Relaxed);
    }

    pub(super) fn looked(&self) {
        self.looks.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn stored_again(&self, pages: u64) {
        self.refilled.fetch_add(pages, Ordering::Relaxed);
    }

    /// What was gone is stored again.
    pub(super) fn filled_again(&self) {
        self.refills.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn primed(&self, names: u64) {
        self.primed.fetch_add(names, Ordering::Relaxed);
    }

    /// Counts a damaged frame. Returns how many there were before.
    pub(super) fn damaged(&self) -> u64 {
        self.damaged.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn read_directly(&self, bytes: u64) {
        self.direct_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn gave_up(&self) {
        self.gave_up.store(1, Ordering::Relaxed);
    }

    pub(super) fn over(&self, since: Instant) {
        self.over.store(micros(since), Ordering::Relaxed);
    }
}

fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}
