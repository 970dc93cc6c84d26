//! What a process of a session must not inherit from the first run, because later runs use it too.

use brisk_launch::sys::signal::reset_signals;
use rustix::fs::Mode;
use rustix::process::{
    Resource, Rlimit, getpriority_process, getrlimit, setpriority_process, setrlimit, umask,
};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::log::say;
use crate::sys::scheduling::{set_default_io_priority, set_ordinary_scheduling};

/// Limits of resources, with their names in a shell.
const LIMITS: [(Resource, &str, u64); 7] = [
    (Resource::As, "ulimit -v", u64::MAX),
    (Resource::Cpu, "ulimit -t", u64::MAX),
    (Resource::Data, "ulimit -d", u64::MAX),
    (Resource::Fsize, "ulimit -f", u64::MAX),
    (Resource::Nofile, "ulimit -n", FILES),
    // It counts all processes of the user, so a system sets it for everybody.
    (Resource::Nproc, "ulimit -u", 0),
    (Resource::Stack, "ulimit -s", STACK),
];

/// Descriptors that a guardian needs while many runs join at once.
const FILES: u64 = 256;

/// Bytes of stack that suffice for any process of a session.
const STACK: u64 = 1 << 20;

/// Replaces what this process has inherited by values of its own: limits of resources, niceness, priority of reads,
/// scheduling, processors, signals, and the mode of new files. What it may not change and may suffer from goes to the
/// session's log.
pub(super) fn take_own_limits() {
    reset_signals();
    // The usual one. What must be private is in a directory that nobody else may enter.
    umask(Mode::WGRP | Mode::WOTH);
    for (resource, name, enough) in LIMITS {
        raise(resource, name, enough);
    }
    // A core would have the contents of images in it.
    let none = Rlimit {
        current: Some(0),
        maximum: getrlimit(Resource::Core).maximum,
    };
    setrlimit(Resource::Core, none).ok();
    set_default_io_priority().ok();
    if let Err(e) = set_ordinary_scheduling() {
        say(&format!(
            "this session keeps the scheduling policy of its first run, and may be slow: {e}"
        ));
    }
    be_ordinary();
    let mut all = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
    // The kernel leaves out those that this process may not use, and there is at least the present one.
    sched_setaffinity(None, &all).ok();
    // A process that others have made a likely victim of a lack of memory may only undo that down to where root has put
    // it, so a refusal says nothing.
    std::fs::write("/proc/self/oom_score_adj", "0").ok();
}

/// Raises a limit as far as it goes.
fn raise(resource: Resource, name: &str, enough: u64) {
    let had = getrlimit(resource);
    if had.current.is_none() {
        return;
    }
    let too_low = |limit: Option<u64>| limit.is_some_and(|limit| limit < enough);
    if too_low(had.maximum) {
        // Root may raise it. Nobody may have descriptors without end.
        let end = (resource == Resource::Nofile).then_some(enough);
        let raised = Rlimit {
            current: end,
            maximum: end,
        };
        if setrlimit(resource, raised).is_ok() {
            return;
        }
    }
    let highest = Rlimit {
        current: had.maximum,
        ..had
    };
    let now = match setrlimit(resource, highest) {
        Ok(()) => had.maximum,
        Err(_) => had.current,
    };
    if let Some(now) = now.filter(|now| too_low(Some(*now))) {
        say(&format!(
            "this session keeps the limit of its first run, {now} ({name}), and may fail because of it"
        ));
    }
}

/// Sets the niceness to 0.
fn be_ordinary() {
    let nice = getpriority_process(None).unwrap_or(0);
    if nice != 0
        && let Err(e) = setpriority_process(None, 0)
    {
        say(&format!(
            "this session keeps the niceness {nice} of its first run, and may be slow: {e}"
        ));
    }
}
