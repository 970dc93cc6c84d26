use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::task::Waker;

use io_uring::{IoUring, opcode, squeue, types};
use rustix::event::{EventfdFlags, eventfd};

use super::ring;
use crate::read_group::ReadGroup;

/// Reads in progress at once.
const DEPTH: usize = 64;

/// The number of the read that waits for the alarm. Those of other reads are below [`DEPTH`].
const ALARM: usize = DEPTH;

/// Wakes the thread that reads.
#[derive(Debug, Clone)]
pub(crate) struct Alarm(Arc<OwnedFd>);

impl Alarm {
    pub(crate) fn ring(&self) {
        // This fails only if nobody has heard the alarm 2^64 times.
        rustix::io::write(&*self.0, &1u64.to_ne_bytes()).ok();
    }
}

/// Gives groups of reads to the kernel, several at once, and waits for all of them in one thread.
pub(crate) struct RingReads {
    ring: IoUring,
    alarm: Alarm,
    /// Where the kernel writes when the alarm rings. Nothing else ever uses it, because the kernel may write
    /// at any time.
    heard: *mut [u8; 8],
    /// By the numbers that their completions carry.
    reads: Vec<Option<Read>>,
    /// Groups that must be started.
    waiting: Vec<ReadGroup>,
    /// Why nothing can wake it any more.
    broken: Option<io::Error>,
}

struct Read {
    group: ReadGroup,
    buf: Vec<u8>,
    done: usize,
}

impl RingReads {
    /// # Errors
    ///
    /// If the kernel, its settings, or a filter of system calls refuse `io_uring`.
    pub(crate) fn new() -> io::Result<Self> {
        let entries = u32::try_from(2 * DEPTH).unwrap_or(u32::MAX);
        // One thread does everything, and reads complete only while it asks for them: Linux 6.1 and later.
        let mut alone = IoUring::builder();
        alone
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .dontfork();
        let mut reads = Self {
            ring: ring::build(&alone, entries).or_else(|_| ring::make(entries))?,
            alarm: Alarm(Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?)),
            heard: Box::leak(Box::new([0; 8])),
            reads: (0..DEPTH).map(|_| None).collect(),
            waiting: Vec::new(),
            broken: None,
        };
        reads.listen();
        Ok(reads)
    }

    /// Ends the wait of [`enter`](Self::enter).
    pub(crate) fn alarm(&self) -> Alarm {
        self.alarm.clone()
    }

    /// How many more groups it can take.
    pub(crate) fn room(&self) -> usize {
        let room = self.reads.iter().filter(|read| read.is_none()).count();
        room.saturating_sub(self.waiting.len())
    }

    /// Gives groups to the kernel, at most as many as there is [`room`](Self::room) for.
    pub(crate) fn begin(&mut self, groups: Vec<ReadGroup>) {
        self.waiting.extend(groups);
        while let Some(number) = self.reads.iter().position(Option::is_none)
            && let Some(group) = self.waiting.pop()
        {
            let buf = vec![0; group.len()];
            self.reads[number] = Some(Read {
                group,
                buf,
                done: 0,
            });
            self.go_on(number);
        }
    }

    /// Makes the kernel start the reads, and waits until one has completed or the alarm rang. This wakes
    /// nobody yet.
    ///
    /// # Errors
    ///
    /// If the kernel accepts nothing any more.
    pub(crate) fn enter(&mut self) -> io::Result<()> {
        match self.broken.take() {
            Some(e) => Err(e),
            None => ring::hand_over_and_wait(&self.ring),
        }
    }

    /// Finishes reads that have completed, and continues those that need more. Returns whom to wake.
    #[must_use]
    pub(crate) fn finish(&mut self) -> Vec<Waker> {
        let mut woken = Vec::new();
        let ended = self.ring.completion();
        let ended: Vec<_> = ended.map(|end| (end.user_data(), end.result())).collect();
        for (number, result) in ended {
            match usize::try_from(number) {
                Ok(ALARM) => match -result {
                    ..=0 | libc::EINTR | libc::EAGAIN | libc::ECANCELED => self.listen(),
                    e => self.broken = Some(io::Error::from_raw_os_error(e)),
                },
                Ok(number) => self.took(number, result, &mut woken),
                Err(_) => {}
            }
        }
        woken
    }

    /// Everything that was not read, because nothing more can be read.
    pub(crate) fn give_up(mut self) -> Vec<ReadGroup> {
        let mut left = std::mem::take(&mut self.waiting);
        left.extend(self.abandon());
        left
    }

    /// The groups of unfinished reads. The kernel may still write to the buffers that it has, so nothing else
    /// uses them from here on.
    fn abandon(&mut self) -> Vec<ReadGroup> {
        let under_way = self.reads.iter_mut().filter_map(Option::take);
        let groups = under_way.map(|read| {
            std::mem::forget(read.buf);
            read.group
        });
        groups.collect()
    }

    /// Makes the kernel wait for the alarm.
    fn listen(&mut self) {
        let alarm = opcode::Read::new(types::Fd(self.alarm.0.as_raw_fd()), self.heard.cast(), 8);
        let alarm = alarm.build().user_data(ALARM as u64);
        // SAFETY: what it is read to is leaked and nobody else's; nothing else reads to there, as this is called
        // for the first one, and whenever one has ended. The kernel holds the file once it was handed over, and
        // before that its descriptor lives as long as `self`, as the ring does.
        unsafe { self.push(&alarm) };
    }

    /// Makes the kernel read the missing part of a read.
    fn go_on(&mut self, number: usize) {
        let Some(read) = self.reads[number].as_mut() else {
            return;
        };
        let rest = &mut read.buf[read.done..];
        let entry = opcode::Read::new(
            types::Fd(read.group.file().as_raw_fd()),
            rest.as_mut_ptr(),
            // Groups have at most `LARGEST` bytes.
            u32::try_from(rest.len()).unwrap_or(u32::MAX),
        )
        .offset(read.group.start() + read.done as u64)
        .build()
        .user_data(number as u64);
        // SAFETY: the buffer and the file are those of `self.reads[number]`, which stays as it is until the
        // completion with this number is there, or its buffer is leaked (see `abandon`), wherever this ends.
        unsafe { self.push(&entry) };
    }

    /// # Safety
    ///
    /// What the entry points to and its descriptor must stay until its completion is there, and nobody else
    /// may touch the former.
    unsafe fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: `push` asks that what the entry points to, and its descriptor, are valid until the read has ended.
        // This function asks its caller for the same.
        let pushed = unsafe { self.ring.submission().push(entry) };
        assert!(pushed.is_ok(), "there is an entry for each read and more");
    }

    fn took(&mut self, number: usize, result: i32, woken: &mut Vec<Waker>) {
        let Some(read) = self.reads.get_mut(number).and_then(Option::as_mut) else {
            return;
        };
        let outcome = match usize::try_from(result) {
            Ok(n) => {
                read.done += n;
                if n > 0 && read.done < read.buf.len() && read.group.is_wanted() {
                    return self.go_on(number);
                }
                Ok(())
            }
            Err(_) if matches!(-result, libc::EINTR | libc::EAGAIN) => return self.go_on(number),
            Err(_) => Err(io::Error::from_raw_os_error(-result)),
        };
        let Some(mut read) = self.reads[number].take() else {
            return;
        };
        read.buf.truncate(read.done);
        // If a group failed, only one of its reads may be at fault.
        self.waiting
            .extend(read.group.finish(outcome.map(|()| read.buf), woken));
    }
}

impl Drop for RingReads {
    fn drop(&mut self) {
        self.abandon();
    }
}
