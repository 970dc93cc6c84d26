//! Stores in the page cache what a program will probably ask for next.
//!
//! Any read of a block decodes all of it, and programs read data that is close together. So the rest of a
//! decoded block goes into the page cache at once, and later reads of it cost no request. The rest belongs to
//! the same file, or to small files that share the block.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use brisk_image::FileReader;
use brisk_image::contents::Piece;
use brisk_io::page_size;
use rustix::io::Errno;

use super::channel::Channel;
use super::neighbours::Neighbours;
use super::node::{Fail, Nodes};
use super::serve_counters::ServeCounters;
use crate::whole_pages::whole_pages;

/// How many blocks may wait for their rest to be stored. Each stays in memory while it waits. With more, the
/// oldest would come too late.
const WAITING: usize = 32;

/// How many blocks are remembered as stored, so that several reads of a block do not store it again.
const REMEMBERED: usize = 512;

/// Bytes of one store. A store locks its pages, one after the other, while it runs.
const STORE: usize = 128 << 10;

/// A read that was answered.
pub(super) struct Answered {
    pub(super) nodeid: u64,
    pub(super) reader: FileReader,
    /// The first byte of the file that was read.
    pub(super) start: u64,
    /// What was read: a piece of each block.
    pub(super) pieces: Vec<Piece>,
    pub(super) block_size: u64,
    /// Whether the kernel reads nothing ahead by itself.
    pub(super) alone: bool,
}

/// The queue between the threads that answer and the one that stores.
///
/// The storing thread never answers requests: a store waits, uninterruptibly, for the answers to reads of its
/// pages.
#[derive(Default)]
pub(super) struct ReadAhead {
    queue: Mutex<Queue>,
    changed: Condvar,
    pub(super) neighbours: Neighbours,
}

/// What to store.
enum Task {
    /// The rest of a block that was read from.
    Rest(Rest),
    /// Files that share a block with one that was read.
    Whole(Vec<u64>),
}

/// The part of a block that was not read.
struct Rest {
    nodeid: u64,
    reader: FileReader,
    piece: Piece,
    /// The byte of the file at which the block's piece begins.
    offset: u64,
    /// The ranges to store, in pages: first what follows the piece, because most readers go forwards, then
    /// what is before it.
    ranges: [Range<u64>; 2],
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Task>,
    /// Nodes and blocks. The oldest is first.
    done: VecDeque<(u64, u64)>,
    ended: bool,
}

impl ReadAhead {
    /// Follows a read that was answered.
    pub(super) fn follow(&self, answered: Answered) {
        if let Some(block) = answered.reader.shared_block() {
            let others = self.neighbours.take(block, answered.nodeid);
            if !others.is_empty() {
                self.lock().push(Task::Whole(others));
                self.changed.notify_one();
            }
            return;
        }
        let rests = answered.rests();
        // A block that was read whole has no rest.
        if rests.is_empty() {
            return;
        }
        let mut queue = self.lock();
        let mut pushed = false;
        for (block, rest) in rests {
            pushed |= queue.follow(block, rest);
        }
        drop(queue);
        if pushed {
            self.changed.notify_one();
        }
    }

    /// Makes [`ReadAhead::run`] end.
    pub(super) fn end(&self) {
        let mut queue = self.lock();
        queue.ended = true;
        // They hold decoded blocks.
        queue.waiting.clear();
        drop(queue);
        self.changed.notify_all();
    }

    /// Stores the rests of reads until [`ReadAhead::end`].
    pub(super) fn run(&self, channel: Channel<'_>, nodes: Nodes<'_>, counters: &ServeCounters) {
        self.follow_up(channel, nodes, counters);
        // Nobody takes anything from the queue any more.
        self.end();
    }

    fn follow_up(&self, channel: Channel<'_>, nodes: Nodes<'_>, counters: &ServeCounters) {
        while let Some(task) = self.next() {
            if !task.run(channel, nodes, counters) {
                return;
            }
        }
    }

    /// Like [`ReadAhead::run`], for what waits now.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn run_waiting(
        &self,
        channel: Channel<'_>,
        nodes: Nodes<'_>,
        counters: &ServeCounters,
    ) {
        // The lock is not held while a task runs.
        let next = || self.lock().waiting.pop_front();
        while next().is_some_and(|task| task.run(channel, nodes, counters)) {}
    }

    fn next(&self) -> Option<Task> {
        let mut queue = self.lock();
        loop {
            if queue.ended {
                return None;
            }
            if let Some(task) = queue.waiting.pop_front() {
                return Some(task);
            }
            queue = self
                .changed
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Task {
    /// Stores it. False if nothing more can be stored.
    fn run(self, channel: Channel<'_>, nodes: Nodes<'_>, counters: &ServeCounters) -> bool {
        // What fails here fails again when a program asks for it, and is reported then. If the kernel has
        // dropped the node (ENOENT), nobody wants it.
        let goes_on = |stored: Result<(), Errno>| {
            // With any other error, the connection has ended, or the kernel accepts no stores.
            matches!(
                stored,
                Ok(()) | Err(Errno::IO | Errno::NOENT | Errno::NOMEM)
            )
        };
        match self {
            Self::Rest(rest) => rest
                .ranges
                .iter()
                .all(|range| goes_on(rest.store(range, channel, counters))),
            Self::Whole(files) => {
                files.into_iter().all(|nodeid| {
                    let reader = nodes.file(nodeid).map_err(|fail| match fail {
                        Fail::Errno(errno) => errno,
                        Fail::Image(_) | Fail::Absent(_) => Errno::IO,
                    });
                    goes_on(reader.and_then(|reader| {
                        store(nodeid, &reader, 0..reader.len(), channel, counters)
                    }))
                })
            }
        }
    }
}

impl Answered {
    /// The rest of each block that was read from, with the block's number in the file.
    fn rests(self) -> Vec<(u64, Rest)> {
        let Self {
            nodeid,
            reader,
            start,
            pieces,
            block_size,
            alone,
        } = self;
        let (len, page) = (reader.len(), page_size() as u64);
        let mut offset = start;
        let mut rests = Vec::new();
        for piece in pieces {
            let read = offset..offset + piece.len() as u64;
            offset = read.end;
            let block = read.start / block_size;
            let first = block * block_size;
            // Holes are made as fast as they are asked for. Data that is stored raw was not decoded, and the
            // kernel reads it ahead in larger pieces.
            if piece.as_slice().is_none() || reader.is_raw_at(first) && !alone {
                continue;
            }
            let end = first.saturating_add(block_size).min(len);
            let ranges = [read.end..end, first..read.start];
            let ranges = ranges.map(|range| whole_pages(range, len, page));
            if ranges.iter().all(Range::is_empty) {
                continue;
            }
            let reader = reader.clone();
            let rest = Rest {
                nodeid,
                reader,
                piece,
                offset: read.start,
                ranges,
            };
            rests.push((block, rest));
        }
        rests
    }
}

impl Rest {
    /// Stores one of the ranges.
    fn store(
        &self,
        range: &Range<u64>,
        channel: Channel<'_>,
        counters: &ServeCounters,
    ) -> Result<(), Errno> {
        let Self { nodeid, reader, .. } = self;
        let beside = reader.piece_beside(&self.piece, self.offset, range.clone());
        match beside.as_ref().and_then(Piece::as_slice) {
            Some(bytes) => store_bytes(*nodeid, range.start, bytes, channel, counters),
            None => store(*nodeid, reader, range.clone(), channel, counters),
        }
    }
}

impl Queue {
    /// Takes the rest of the block with this number. False if it was taken before.
    fn follow(&mut self, block: u64, rest: Rest) -> bool {
        let block = (rest.nodeid, block);
        if self.ended || self.done.contains(&block) {
            return false;
        }
        if self.done.len() == REMEMBERED {
            self.done.pop_front();
        }
        self.done.push_back(block);
        self.push(Task::Rest(rest));
        true
    }

    fn push(&mut self, task: Task) {
        if self.waiting.len() == WAITING {
            self.waiting.pop_front();
        }
        self.waiting.push_back(task);
    }
}

/// Stores what is in `range`.
fn store(
    nodeid: u64,
    reader: &FileReader,
    mut range: Range<u64>,
    channel: Channel<'_>,
    counters: &ServeCounters,
) -> Result<(), Errno> {
    while range.start < range.end {
        let left = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let piece = reader
            .piece(range.start, left.min(STORE))
            .map_err(|_| Errno::IO)?;
        let (Some(bytes), false) = (piece.as_slice(), piece.is_empty()) else {
            // Holes are made as fast as they are asked for.
            break;
        };
        store_bytes(nodeid, range.start, bytes, channel, counters)?;
        range.start += bytes.len() as u64;
    }
    Ok(())
}

/// Stores `bytes` at `offset` of a file.
fn store_bytes(
    nodeid: u64,
    mut offset: u64,
    bytes: &[u8],
    channel: Channel<'_>,
    counters: &ServeCounters,
) -> Result<(), Errno> {
    for bytes in bytes.chunks(STORE) {
        channel.store(nodeid, offset, &[IoSlice::new(bytes)])?;
        counters.stored(bytes.len() as u64);
        offset += bytes.len() as u64;
    }
    Ok(())
}
