//! Processes that launches leave behind.
//!
//! The kernel adds what a process has read to the account of its parent, when the parent waits for it. But the process
//! that replays is nobody's child, and neither are helpers of a browser that ends before them. So the lab adopts such
//! processes, and waits for them.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, WaitOptions, getpid, getsid, set_child_subreaper, waitpid};

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
    let session = getsid(None).context("cannot find the lab's own session")?;
    for entry in fs::read_dir("/proc").context("cannot list processes")? {
        let process = entry?.path();
        // It may have gone meanwhile.
        let Ok(text) = fs::read_to_string(process.join("stat")) else {
            continue;
        };
        let Some(child) = child_of(&text, getpid()) else {
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

/// A child of the lab.
#[derive(Debug, PartialEq, Eq)]
struct ChildProcess {
    pid: Pid,
    group: Option<Pid>,
    session: Option<Pid>,
}

impl ChildProcess {
    /// Whether the lab has started it, and waits for it elsewhere. Such a process leads a group in the lab's session. An
    /// adopted one has left the session, or is in the group of its program.
    fn is_own(&self, session: Pid) -> bool {
        self.session == Some(session) && self.group == Some(self.pid)
    }
}

/// The process that a `/proc/PID/stat` describes, if it is a child of `parent`.
fn child_of(stat: &str, parent: Pid) -> Option<ChildProcess> {
    // The name between the parentheses may have any characters.
    let (pid, _) = stat.split_once(' ')?;
    let (_, fields) = stat.rsplit_once(')')?;
    let mut numbers = fields.split_whitespace().skip(1).map(number);
    let mut next = || numbers.next().flatten();
    (next() == Some(parent)).then_some(())?;
    Some(ChildProcess {
        pid: number(pid)?,
        group: next(),
        session: next(),
    })
}

fn number(text: &str) -> Option<Pid> {
    Pid::from_raw(text.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_told_from_other_processes_whatever_their_names_are() {
        let pid = |number| Pid::from_raw(number);
        let stat = "71 (a) 1 (b) Z 9 60 50 0 -1 4228108";
        let child = ChildProcess {
            pid: pid(71).unwrap(),
            group: pid(60),
            session: pid(50),
        };
        assert_eq!(child_of(stat, pid(9).unwrap()), Some(child));
        for other in [1, 60, 71] {
            assert_eq!(child_of(stat, pid(other).unwrap()), None);
        }
        assert_eq!(child_of("71 (a", pid(9).unwrap()), None);
    }

    #[test]
    fn what_the_lab_has_started_is_not_reaped() {
        let is_own = |stat: &str| {
            let [lab, session] = [9, 50].map(|number| Pid::from_raw(number).unwrap());
            child_of(stat, lab).unwrap().is_own(session)
        };
        // An X server of the lab, a helper of the program, a replay.
        assert!(is_own("71 (Xvfb) Z 9 71 50 0"));
        assert!(!is_own("71 (helper) Z 9 60 50 0"));
        assert!(!is_own("71 (brisk-replay) Z 9 71 71 0"));
    }
}
