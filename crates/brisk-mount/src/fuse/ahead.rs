//! Having ready what will be asked for next.
//!
//! A block has to be decoded whole for any part of it, and programs read what stands close
//! together: so the rest of a block that was decoded goes into the page cache at once, where it
//! costs no further request, be it of the same file or of small files that share the block.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use brisk_image::FileReader;
use brisk_io::page_size;
use rustix::io::Errno;

use super::channel::Channel;
use super::neighbours::Neighbours;
use super::node::{Fail, Nodes};
use super::served::Served;

/// Reads that wait to be followed up at most; behind more of them, the oldest are stale.
const WAITING: usize = 16;

/// Blocks that are remembered as followed up, so that each of the many reads of a block does not
/// store it again.
const REMEMBERED: usize = 512;

/// Bytes that one store takes. The pages it is for are locked one after the other while it runs.
const STORE: u64 = 128 << 10;

/// A read that was answered.
pub(super) struct Answered {
    pub(super) nodeid: u64,
    pub(super) reader: FileReader,
    /// The bytes that the reader has now.
    pub(super) range: Range<u64>,
    pub(super) block_size: u64,
    /// The kernel reads nothing ahead by itself.
    pub(super) alone: bool,
}

/// The queue between the threads that answer and the one that follows up.
///
/// That one never answers requests: a store waits, uninterruptibly, for the answers to reads of the
/// pages that it is for.
#[derive(Default)]
pub(super) struct Ahead {
    queue: Mutex<Queue>,
    changed: Condvar,
    pub(super) neighbours: Neighbours,
}

/// What is to be stored.
enum Task {
    /// The rest of the block that the read was in.
    Rest(Answered),
    /// Files that share a block with one that was read.
    Whole(Vec<u64>),
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Task>,
    /// Nodes and blocks; the oldest is in front.
    done: VecDeque<(u64, u64)>,
    ended: bool,
}

impl Ahead {
    /// Takes note of a read.
    pub(super) fn follow(&self, answered: Answered) {
        if let Some(block) = answered.reader.shared_block() {
            let others = self.neighbours.take(block, answered.nodeid);
            if !others.is_empty() {
                self.lock().push(Task::Whole(others));
                self.changed.notify_one();
            }
            return;
        }
        // What was read whole is not worth waking anybody.
        if answered.range.is_empty() || answered.rest().iter().all(Range::is_empty) {
            return;
        }
        let block = (answered.nodeid, answered.last_block());
        let mut queue = self.lock();
        if queue.ended || queue.done.contains(&block) {
            return;
        }
        if queue.done.len() == REMEMBERED {
            queue.done.pop_front();
        }
        queue.done.push_back(block);
        queue.push(Task::Rest(answered));
        self.changed.notify_one();
    }

    /// Makes [`Ahead::run`] end.
    pub(super) fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    /// Follows reads up until [`Ahead::end`].
    pub(super) fn run(&self, channel: Channel<'_>, nodes: Nodes<'_>, served: &Served) {
        // What fails here is asked for and fails again when somebody wants it, and is told then. A
        // node that the kernel dropped (ENOENT) wants nothing.
        let goes_on = |stored: Result<(), Errno>| {
            // Else the connection has ended, or the kernel takes no stores.
            matches!(
                stored,
                Ok(()) | Err(Errno::IO | Errno::NOENT | Errno::NOMEM)
            )
        };
        while let Some(task) = self.next() {
            let go_on = match task {
                Task::Rest(answered) => {
                    let Answered { nodeid, reader, .. } = &answered;
                    answered
                        .rest()
                        .into_iter()
                        .all(|range| goes_on(store(*nodeid, reader, range, channel, served)))
                }
                Task::Whole(files) => files.into_iter().all(|nodeid| {
                    let reader = nodes.file(nodeid).map_err(|fail| match fail {
                        Fail::Errno(errno) => errno,
                        Fail::Image(_) => Errno::IO,
                    });
                    goes_on(reader.and_then(|reader| {
                        store(nodeid, &reader, 0..reader.len(), channel, served)
                    }))
                }),
            };
            if !go_on {
                return;
            }
        }
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

impl Answered {
    /// The block with the last byte of the read.
    fn last_block(&self) -> u64 {
        self.range.end.saturating_sub(1) / self.block_size
    }

    /// What the block with the last byte of the read has beside that, in pages: what is behind it,
    /// as most readers go forwards, then what is before it.
    fn rest(&self) -> [Range<u64>; 2] {
        let len = self.reader.len();
        let start = self.last_block() * self.block_size;
        let end = start.saturating_add(self.block_size).min(len);
        if self.reader.is_raw_at(start) && !self.alone {
            // Nothing was decoded, and the kernel reads it ahead in larger pieces.
            return [0..0, 0..0];
        }
        [self.range.end..end, start..self.range.start]
            .map(|range| whole_pages(range, len, page_size() as u64))
    }
}

impl Queue {
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
    served: &Served,
) -> Result<(), Errno> {
    while range.start < range.end {
        let most = usize::try_from(STORE.min(range.end - range.start));
        let most = most.map_err(|_| Errno::INVAL)?;
        let piece = reader.piece(range.start, most).map_err(|_| Errno::IO)?;
        let (Some(bytes), false) = (piece.as_slice(), piece.is_empty()) else {
            // Holes are made as quickly as they are asked for.
            break;
        };
        channel.store(nodeid, range.start, &[IoSlice::new(bytes)])?;
        served.stored(bytes.len() as u64);
        range.start += bytes.len() as u64;
    }
    Ok(())
}

/// The pages that are wholly in `range`, and the last one of a file of `len` bytes as far as it
/// goes: a store of less would leave a page that holds nothing yet, one of more lengthen the file.
pub(super) fn whole_pages(range: Range<u64>, len: u64, page: u64) -> Range<u64> {
    let start = range.start.next_multiple_of(page);
    let end = match range.end {
        end if end >= len => len,
        end => end - end % page,
    };
    start.min(end)..end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_are_whole_pages_within_the_file() {
        let table = [
            ((0..8192, 100_000, 4096), 0..8192),
            ((1..8191, 100_000, 4096), 4096..4096),
            ((4096..131_072, 10_000, 4096), 4096..10_000),
            ((4096..10_000, 10_000, 4096), 4096..10_000),
            ((9000..10_000, 10_000, 4096), 10_000..10_000),
            ((4096..131_072, 200_000, 65_536), 65_536..131_072),
        ];
        for ((range, len, page), stored) in table {
            assert_eq!(whole_pages(range, len, page), stored);
        }
    }
}
