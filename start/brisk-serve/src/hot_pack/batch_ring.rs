//! Buffers that circulate between the thread that reads frames and those that decode them.

use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use brisk_image::hot_pack::HotFrame;
use brisk_io::AlignedBuf;

/// How many batches are read or decoded at once.
pub(super) const BATCHES: usize = 3;

/// The frames of one read.
pub(super) struct Read {
    /// Their numbers.
    pub(super) frames: Range<usize>,
    /// The byte of the pack at which `bytes` begin. It wraps below 0 if the pack starts within a block.
    pub(super) start: u64,
    pub(super) bytes: AlignedBuf,
    /// How many of `bytes` were read: whole blocks.
    pub(super) len: usize,
}

/// The same, for a thread that decodes them. Dropping it frees its buffer for another read.
pub(super) struct Batch {
    read: Read,
    free: Sender<AlignedBuf>,
}

impl Batch {
    /// The numbers of its frames.
    pub(super) fn frames(&self) -> Range<usize> {
        self.read.frames.clone()
    }

    /// The byte of the pack at which it starts. It wraps below 0 if the pack starts within a block.
    pub(super) fn start(&self) -> u64 {
        self.read.start
    }

    /// All bytes that were read.
    pub(super) fn blocks(&self) -> &[u8] {
        self.read.bytes.get(..self.read.len).unwrap_or(&[])
    }

    /// The stored bytes of one of its frames.
    pub(super) fn stored(&self, frame: &HotFrame) -> &[u8] {
        let start = self.read.start;
        let place = |at: u64| usize::try_from(at.wrapping_sub(start)).unwrap_or(usize::MAX);
        let place = place(frame.stored.start)..place(frame.stored.end);
        // If bytes are missing, the frame's checksum fails.
        self.read.bytes.get(place).unwrap_or(&[])
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let bytes = std::mem::replace(&mut self.read.bytes, no_buffer());
        // If this fails, the reading has ended.
        self.free.send(bytes).ok();
    }
}

/// An empty buffer.
fn no_buffer() -> AlignedBuf {
    AlignedBuf::zeroed(0, 1)
}

/// The side of the ring that reads.
pub(super) struct ReadRing {
    pub(super) free: Receiver<AlignedBuf>,
    pub(super) full: Sender<Read>,
}

/// The side of the ring that decodes. Each thread has its own.
#[derive(Clone)]
pub(super) struct Batches {
    full: Arc<Mutex<Receiver<Read>>>,
    free: Sender<AlignedBuf>,
}

impl Batches {
    /// Both sides of a ring with a few buffers. Each side ends when the other is gone.
    pub(super) fn ring() -> (ReadRing, Self) {
        let (give_back, free) = channel();
        let (send, full) = channel();
        for _ in 0..BATCHES {
            // `free` still exists, so this succeeds.
            give_back.send(no_buffer()).ok();
        }
        let batches = Self {
            full: Arc::new(Mutex::new(full)),
            free: give_back,
        };
        (ReadRing { free, full: send }, batches)
    }

    /// Waits for the next batch. None if no more are read.
    pub(super) fn next(&self) -> Option<Batch> {
        let full = self.full.lock().unwrap_or_else(PoisonError::into_inner);
        let free = self.free.clone();
        full.recv().ok().map(|read| Batch { read, free })
    }
}
