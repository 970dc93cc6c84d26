//! Whether somebody empties the memory of the machine while a test counts on what is in it.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;

/// Who writes to it empties memory.
const COMMAND: &str = "/proc/sys/vm/drop_caches";

/// How often this machine was told to empty its memory until some moment.
pub struct Memory {
    emptied: String,
}

impl Memory {
    pub fn now() -> Self {
        let counts = fs::read_to_string("/proc/vmstat").expect("procfs");
        let counts = counts.lines().filter(|line| line.starts_with("drop_"));
        Self {
            emptied: counts.collect(),
        }
    }

    /// Whether anybody has emptied it since, and has ended.
    pub fn has_been_emptied(&self) -> bool {
        Self::now().emptied != self.emptied
    }

    /// Whether anybody has emptied it since, or is doing so.
    pub fn is_disturbed(&self) -> bool {
        // The kernel counts when it has ended, so who is still doing so is looked for first.
        is_being_emptied() || self.has_been_emptied()
    }
}

/// Whether a process has the file open by which memory is emptied.
fn is_being_emptied() -> bool {
    let processes = fs::read_dir("/proc").expect("procfs").flatten();
    // A process may end at any time.
    let files = processes.filter_map(|process| fs::read_dir(process.path().join("fd")).ok());
    files
        .flatten()
        .flatten()
        .any(|file| fs::read_link(file.path()).is_ok_and(|path| path == Path::new(COMMAND)))
}

/// Runs `attempt` again if it panics while somebody empties memory.
#[track_caller]
pub fn while_nobody_empties_memory<T>(attempt: impl Fn() -> T) -> T {
    for _ in 0..50 {
        let memory = Memory::now();
        match catch_unwind(AssertUnwindSafe(&attempt)) {
            Ok(done) => return done,
            Err(panic) if !memory.is_disturbed() => resume_unwind(panic),
            Err(_) => {}
        }
    }
    panic!("somebody empties memory all the time");
}
