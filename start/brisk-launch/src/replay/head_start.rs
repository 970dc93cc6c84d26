//! The head start that a replay has over its program.
//!
//! A program that begins at once is ahead of its replay. It asks for pages that are not in memory, and for each of them the
//! kernel reads as much around it as the disk's read-ahead allows. All that the replay asks for then stands behind that. So the
//! program waits until the replay has asked for its first pages.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};

use super::sample::Look;

/// How long the disk takes for what a replay asks for before its program begins.
const HEAD: Duration = Duration::from_millis(4);

/// A recorded launch that asked for its last pages sooner gives none. `gcc -c`, with 140 ms, took 12 ms longer even if its replay
/// only began 2 ms earlier: the compiler soon needs a new file of its own, and stands behind the replay for that.
const LONG: Duration = Duration::from_millis(250);

/// The longest that a program waits. To find the files of its first pages takes longer on a slow disk, and the program
/// finds them no faster by itself.
const MOST_WAIT: Duration = Duration::from_millis(10);

/// Whether the launch waits for its replay.
pub(super) fn gives_head_start(look: &Look) -> bool {
    !look.is_in_memory && look.lasts >= LONG
}

/// Makes both ends of a head start.
pub(super) fn head_start() -> io::Result<(HeadStart, StartLine)> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    let replay = HeadStart {
        left: Mutex::new(Some((write, HEAD))),
    };
    Ok((replay, StartLine { read }))
}

/// The replay's end. The program begins when the replay is far enough ahead, and at the latest when this is
/// dropped.
#[derive(Debug)]
pub(super) struct HeadStart {
    /// How much of the disk's time is left to ask for, and the pipe whose closing lets the program begin.
    left: Mutex<Option<(OwnedFd, Duration)>>,
}

impl HeadStart {
    pub(super) fn descriptor(&self) -> Option<RawFd> {
        let left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.as_ref().map(|(pipe, _)| pipe.as_raw_fd())
    }

    /// Notes that the replay has asked for what the disk needs this time for, or has found it in memory.
    pub(super) fn gain(&self, time: Duration) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, rest)) = &mut *left {
            *rest = rest.saturating_sub(time);
            if rest.is_zero() {
                *left = None;
            }
        }
    }
}

/// The program's end.
#[derive(Debug)]
pub(super) struct StartLine {
    read: OwnedFd,
}

impl StartLine {
    /// Waits until the replay has its head start, has ended, or takes too long. Every copy of the other end in this process
    /// must be closed.
    pub(super) fn wait(self) {
        let most = Timespec::try_from(MOST_WAIT).ok();
        // Whatever happened, the program begins.
        poll(&mut [PollFd::new(&self.read, PollFlags::IN)], most.as_ref()).ok();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_program_waits_until_the_replay_is_ahead() {
        let (replay, line) = head_start().unwrap();
        assert!(replay.descriptor().is_some());
        replay.gain(HEAD / 2);
        assert!(replay.descriptor().is_some(), "it is not far enough");
        replay.gain(HEAD / 2);
        assert_eq!(replay.descriptor(), None);
        line.wait();
        // More does no harm.
        replay.gain(HEAD);
    }

    #[test]
    fn a_long_launch_gives_one_unless_all_is_in_memory() {
        let gives = |is_in_memory, lasts| {
            gives_head_start(&Look {
                is_in_memory,
                lasts,
            })
        };
        assert!(gives(false, LONG));
        assert!(!gives(true, LONG));
        assert!(!gives(false, LONG - Duration::from_nanos(1)));
    }

    #[test]
    fn a_program_does_not_wait_for_a_replay_that_has_ended_or_is_slow() {
        let (replay, line) = head_start().unwrap();
        let waits = thread::spawn(move || line.wait());
        drop(replay);
        waits.join().unwrap();

        let (replay, line) = head_start().unwrap();
        let began = Instant::now();
        line.wait();
        assert!(began.elapsed() >= MOST_WAIT);
        drop(replay);
    }
}
