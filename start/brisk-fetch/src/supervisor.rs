//! Starts the fetcher, and starts it again if it dies.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use brisk_launch::sys::process::{start_child, start_detached};
use brisk_remote::{RemoteCache, SOCKET, open_own};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, WaitOptions, set_parent_process_death_signal, waitpid};

use crate::log::say;
use crate::server;

/// How often a fetcher may die in a minute.
const DEATHS: usize = 20;

/// Starts a fetcher for this cache, unless one runs. Returns when programs can connect to it.
pub fn start(path: &Path) -> io::Result<()> {
    let cache = RemoteCache::at(path).map_err(io::Error::other)?;
    let lock = open_own(&path.join("fetch.lock"), true)?;
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(());
    }
    let log = open_own(&path.join("fetch.log"), true)?;
    log.set_len(0)?;
    let listener = listen(&cache)?;
    let kept = [
        listener.as_raw_fd(),
        lock.as_raw_fd(),
        cache.fd().as_raw_fd(),
    ];
    start_detached(&kept, log.as_fd(), || supervise(&cache, &listener, &lock))
}

/// A socket in the cache, whatever the path of that is. An earlier one has nobody who listens, because this process has the lock.
fn listen(cache: &RemoteCache) -> io::Result<UnixListener> {
    let path = format!("/proc/self/fd/{}/{SOCKET}", cache.fd().as_raw_fd());
    match std::fs::remove_file(&path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    UnixListener::bind(path)
}

fn supervise(cache: &RemoteCache, listener: &UnixListener, _lock: &File) -> i32 {
    rustix::thread::set_name(c"brisk-fetch").ok();
    let mut deaths: Vec<Instant> = Vec::new();
    loop {
        let started = start_child(|| {
            // Two fetchers would write the same files.
            set_parent_process_death_signal(Some(Signal::KILL)).ok();
            i32::from(server::run(cache, listener).is_err())
        });
        match started.and_then(|pid| Ok(wait(pid)?)) {
            Ok(Some(0)) => {
                std::fs::remove_file(cache.path().join(SOCKET)).ok();
                return 0;
            }
            Ok(status) => say!("the fetcher ended with {status:?}"),
            Err(e) => say!("the fetcher cannot be started: {e}"),
        }
        deaths.retain(|death| death.elapsed() < Duration::from_secs(60));
        deaths.push(Instant::now());
        if deaths.len() > DEATHS {
            say!("it died {DEATHS} times in a minute, so it is not started again");
            return 1;
        }
        // Not at once, in case that it dies because memory is short.
        thread::sleep(Duration::from_millis(20));
    }
}

/// The exit status, or None if it was killed.
fn wait(pid: Pid) -> rustix::io::Result<Option<i32>> {
    loop {
        match waitpid(Some(pid), WaitOptions::empty()) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(Some((_, status))) => return Ok(status.exit_status()),
            Ok(None) => {}
            Err(e) => return Err(e),
        }
    }
}

/// The descriptor of a listener, for the runtime.
pub fn duplicate(listener: &UnixListener) -> io::Result<OwnedFd> {
    listener.as_fd().try_clone_to_owned()
}
