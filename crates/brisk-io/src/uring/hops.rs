use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use io_uring::{IoUring, opcode, squeue, types};
use rustix::event::{EventfdFlags, eventfd};

use super::ring;
use crate::hop::Group;

/// Reads under way at once.
const DEPTH: usize = 64;

/// The number of what waits for the alarm; those of reads are below [`DEPTH`].
const ALARM: usize = DEPTH;

/// Wakes the thread that reads.
#[derive(Debug, Clone)]
pub(crate) struct Alarm(Arc<OwnedFd>);

impl Alarm {
    pub(crate) fn ring(&self) {
        // It is refused only where nobody has heard it 2^64 times.
        rustix::io::write(&*self.0, &1u64.to_ne_bytes()).ok();
    }
}

/// Hands groups of reads to the kernel, several at once, and waits for them all: in one thread.
pub(crate) struct Hops {
    ring: IoUring,
    alarm: Alarm,
    /// By number, which their completions carry.
    reads: Vec<Option<Read>>,
    /// Groups that have to be begun.
    waiting: Vec<Group>,
}

struct Read {
    group: Group,
    buf: Vec<u8>,
    done: usize,
}

/// Ends the process where a thread unwinds: the kernel would go on to write to what it frees.
struct NeverUnwinds;

impl Drop for NeverUnwinds {
    fn drop(&mut self) {
        std::process::abort();
    }
}

impl Hops {
    /// # Errors
    ///
    /// Where the kernel, its settings, or a filter of system calls refuse `io_uring`.
    pub(crate) fn new() -> io::Result<Self> {
        let entries = u32::try_from(2 * DEPTH).unwrap_or(u32::MAX);
        // One thread does all, and reads end only while it waits for them: Linux 6.1 and later.
        let mut alone = IoUring::builder();
        alone.setup_single_issuer().setup_defer_taskrun();
        Ok(Self {
            ring: ring::build(&alone, entries).or_else(|_| ring::make(entries))?,
            alarm: Alarm(Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?)),
            reads: (0..DEPTH).map(|_| None).collect(),
            waiting: Vec::new(),
        })
    }

    pub(crate) fn alarm(&self) -> Alarm {
        self.alarm.clone()
    }

    /// Reads what `take` gives. It is told for how many groups there is room, and asked again whenever
    /// some have ended or the alarm rang. Returns what is not read where the kernel takes nothing any more.
    pub(crate) fn run(mut self, take: impl Fn(usize) -> Vec<Group>) -> Vec<Group> {
        let guard = NeverUnwinds;
        let heard = Box::leak(Box::new([0; 8]));
        let alarm = opcode::Read::new(
            types::Fd(self.alarm.0.as_raw_fd()),
            heard.as_mut_ptr(),
            heard.len() as u32,
        );
        let alarm = alarm.build().user_data(ALARM as u64);
        // SAFETY: what it is read to is leaked and nobody else's, and its descriptor lives as long as `self`,
        // which is dropped only where nothing is handed over any more; the process ends where this panics.
        unsafe { self.push(&alarm) };
        loop {
            let room = self.reads.iter().filter(|read| read.is_none()).count();
            self.waiting
                .extend(take(room.saturating_sub(self.waiting.len())));
            self.begin();
            if ring::hand_over_and_wait(&self.ring).is_err() {
                std::mem::forget(guard);
                return self.give_up();
            }
            let ended = self.ring.completion();
            let ended: Vec<_> = ended.map(|end| (end.user_data(), end.result())).collect();
            for (number, result) in ended {
                match usize::try_from(number) {
                    // SAFETY: as above, and it was heard, so nothing else reads to there.
                    Ok(ALARM) => unsafe { self.push(&alarm) },
                    Ok(number) => self.took(number, result),
                    Err(_) => {}
                }
            }
        }
    }

    /// All that is not read. The kernel may still write to buffers that it was given, which are nobody's from
    /// here on.
    fn give_up(mut self) -> Vec<Group> {
        let under_way = self.reads.iter_mut().filter_map(Option::take);
        let groups = under_way.map(|read| {
            std::mem::forget(read.buf);
            read.group
        });
        self.waiting.extend(groups.collect::<Vec<_>>());
        self.waiting
    }

    /// Hands groups to the kernel, as far as there is room.
    fn begin(&mut self) {
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

    /// Has the kernel read what is missing of a read.
    fn go_on(&mut self, number: usize) {
        let Some(read) = self.reads[number].as_mut() else {
            return;
        };
        let rest = &mut read.buf[read.done..];
        let entry = opcode::Read::new(
            types::Fd(read.group.file().as_raw_fd()),
            rest.as_mut_ptr(),
            // Groups are at most `LARGEST` long.
            u32::try_from(rest.len()).unwrap_or(u32::MAX),
        )
        .offset(read.group.start() + read.done as u64)
        .build()
        .user_data(number as u64);
        // SAFETY: the buffer and the file are those of `self.reads[number]`, which stays as it is until the
        // completion with this number is there, or its buffer is leaked (see `give_up`).
        unsafe { self.push(&entry) };
    }

    /// # Safety
    ///
    /// What the entry points to and its descriptor must stay until its completion is there, and nobody else
    /// may touch the former.
    unsafe fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: the caller's.
        let pushed = unsafe { self.ring.submission().push(entry) };
        assert!(pushed.is_ok(), "there is an entry for each read and more");
    }

    fn took(&mut self, number: usize, result: i32) {
        let Some(read) = self.reads.get_mut(number).and_then(Option::as_mut) else {
            return;
        };
        let outcome = match usize::try_from(result) {
            Ok(n) => {
                read.done += n;
                if n > 0 && read.done < read.buf.len() {
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
        // Of a group that failed, one read may be at fault and the others not.
        self.waiting
            .extend(read.group.finish(outcome.map(|()| read.buf)));
    }
}
