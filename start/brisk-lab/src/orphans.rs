//! Processes that launches leave behind.
//!
//! The kernel adds what a process has read to the account of its parent, when the parent waits for it. But the process
//! that replays is nobody's child, and neither are helpers of a browser that ends before them. So the lab adopts such
//! processes, and waits for them.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, WaitOptions, getpid, set_child_subreaper, waitpid};

/// How long a process may take from giving up its program to its end. If it takes longer, only its first thread has
/// ended, and the process goes on.
const ENDING: Duration = Duration::from_secs(1);

/// Makes this process the parent of every process below it whose own parent has ended. Without `all`, other processes
/// of the system become their parents, as usual.
pub fn adopt(all: bool) -> Result<()> {
    let parent = all.then(getpid);
    set_child_subreaper(parent).context("cannot adopt the processes that launches leave behind")
}

/// Waits for the adopted processes that have ended, or are about to.
pub fn reap() -> Result<()> {
    let session = own_session()?;
    for entry in fs::read_dir("/proc").context("cannot list processes")? {
        let process = entry?.path();
        // It may have gone meanwhile.
        let Ok(text) = fs::read_to_string(process.join("stat")) else {
            continue;
        };
        let Some(child) = Process::of(&text).filter(|process| process.parent == Some(getpid()))
        else {
            continue;
        };
        // A process that ends has no program any more.
        let runs = fs::read_link(process.join("exe")).is_ok();
        if !runs && !child.is_own(session) {
            wait_for(child.pid)?;
        }
    }
    Ok(())
}

/// The session of the lab. It is `None` if its leader is outside this PID namespace, as for what is started in a container
/// from outside, and if init has begun no session. `/proc` and `getsid` then say 0, which rustix's `getsid` does not allow.
fn own_session() -> Result<Option<Pid>> {
    let stat =
        fs::read_to_string("/proc/self/stat").context("cannot find the lab's own session")?;
    let own = Process::of(&stat).context("/proc/self/stat does not name the lab's session")?;
    Ok(own.session)
}

fn wait_for(pid: Pid) -> Result<()> {
    let deadline = Instant::now() + ENDING;
    loop {
        let ended = waitpid(Some(pid), WaitOptions::NOHANG);
        let ended = ended.context("cannot wait for a process that a launch has left behind")?;
        if ended.is_some() || Instant::now() > deadline {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// What a `/proc/PID/stat` says. Processes outside this PID namespace are `None`.
#[derive(Debug, PartialEq, Eq)]
struct Process {
    pid: Pid,
    parent: Option<Pid>,
    group: Option<Pid>,
    session: Option<Pid>,
}

impl Process {
    fn of(stat: &str) -> Option<Self> {
        // The name between the parentheses may have any characters.
        let (pid, _) = stat.split_once(' ')?;
        let (_, fields) = stat.rsplit_once(')')?;
        let mut numbers = fields.split_whitespace().skip(1).map(number);
        Some(Self {
            pid: number(pid)?,
            parent: numbers.next()?,
            group: numbers.next()?,
            session: numbers.next()?,
        })
    }

    /// Whether it is a child that the lab has started, and waits for elsewhere. Such a process leads a group in the lab's
    /// session. An adopted one has left the session, or is in the group of its program.
    fn is_own(&self, session: Option<Pid>) -> bool {
        self.session == session && self.group == Some(self.pid)
    }
}

/// A process, a group or a session. None for 0, which is outside the container, and for -1, which the kernel says while a process
/// is reaped.
fn number(text: &str) -> Option<Pid> {
    let number = text.parse().ok().filter(|number| *number > 0)?;
    Pid::from_raw(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pid(number: i32) -> Option<Pid> {
        Pid::from_raw(number)
    }

    #[test]
    fn processes_are_read_whatever_their_names_are() {
        let process = |parent, session| Process {
            pid: pid(71).unwrap(),
            parent,
            group: pid(60),
            session,
        };
        let stat = "71 (a) 1 (b) Z 9 60 50 0 -1 4228108";
        assert_eq!(Process::of(stat), Some(process(pid(9), pid(50))));
        // Its parent and session are outside the container.
        assert_eq!(
            Process::of("71 (a) S 0 60 0 0 -1 4228108"),
            Some(process(None, None))
        );
        // Somebody else reaps it at this moment.
        let reaped = Process::of("71 (a) X -1 -1 -1 0 -1 4228108").unwrap();
        assert_eq!(
            (reaped.parent, reaped.group, reaped.session),
            (None, None, None)
        );
        assert_eq!(Process::of("71 (a"), None);
        assert_eq!(Process::of("71 (a) Z 9 60"), None);
    }

    #[test]
    fn what_the_lab_has_started_is_not_reaped() {
        for session in [50, 0] {
            let is_own = |stat: String| Process::of(&stat).unwrap().is_own(pid(session));
            // An X server of the lab, a helper of the program, a replay.
            assert!(is_own(format!("71 (Xvfb) Z 9 71 {session} 0")));
            assert!(!is_own(format!("71 (helper) Z 9 60 {session} 0")));
            assert!(!is_own("71 (brisk-replay) Z 9 71 71 0".to_owned()));
        }
    }
}
