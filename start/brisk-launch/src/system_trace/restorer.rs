//! A process that restores what a trace changes in the system, however the trace ends.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::sys::process::start_detached;
use crate::sys::signal::ignore_requests_to_end;

/// How long to wait if something that must be restored is in use.
const WAIT: Duration = Duration::from_secs(5);

const AGAIN_AFTER: Duration = Duration::from_millis(10);

/// A change that must be undone.
#[derive(Debug, Clone)]
pub(super) enum Change {
    /// A file whose text is `was` until `becomes` is written to it. If others have written something else
    /// since then, that stays.
    File {
        path: PathBuf,
        was: String,
        becomes: String,
    },
    /// A directory that is made.
    Directory(PathBuf),
    /// A mount point with a mount. The lock may be in it.
    Mount(PathBuf),
}

/// The process. It undoes all changes when this is dropped, or when this process ends.
pub(super) struct Restorer {
    alive: Option<OwnedFd>,
    done: File,
}

impl Restorer {
    /// Starts it, for changes that will be made soon. It holds `lock` until everything but mounts is
    /// restored.
    pub(super) fn start(changes: Vec<Change>, lock: OwnedFd) -> io::Result<Self> {
        let (waits, alive) = pipe_with(PipeFlags::CLOEXEC)?;
        let (done, does) = pipe_with(PipeFlags::CLOEXEC)?;
        let stdio = File::options().read(true).write(true).open("/dev/null")?;
        let kept = [waits.as_raw_fd(), does.as_raw_fd(), lock.as_raw_fd()];
        start_detached(&kept, stdio.as_fd(), move || {
            ignore_requests_to_end();
            // The name is only for people, so a failure does not matter.
            rustix::thread::set_name(c"brisk-restorer").ok();
            // Nobody writes to it, so this returns at its end.
            File::from(waits).read_to_end(&mut Vec::new()).ok();
            let (mounts, others): (Vec<_>, Vec<_>) = changes
                .into_iter()
                .partition(|change| matches!(change, Change::Mount(_)));
            others.iter().for_each(Change::put_back);
            drop(lock);
            mounts.iter().for_each(Change::put_back);
            drop(does);
            0
        })?;
        Ok(Self {
            alive: Some(alive),
            done: done.into(),
        })
    }
}

impl Drop for Restorer {
    fn drop(&mut self) {
        self.alive = None;
        // Only its end comes.
        self.done.read_to_end(&mut Vec::new()).ok();
    }
}

impl Change {
    /// If this fails, there is no place to say so.
    fn put_back(&self) {
        match self {
            Self::File { path, was, becomes } => {
                let is = fs::read_to_string(path).unwrap_or_default();
                if is.trim() == becomes {
                    fs::write(path, was).ok();
                }
            }
            Self::Directory(path) => until_free(|| fs::remove_dir(path)),
            Self::Mount(path) => until_free(|| Ok(unmount(path, UnmountFlags::empty())?)),
        }
    }
}

/// Runs `undo`, and repeats it while its object is in use.
fn until_free(undo: impl Fn() -> io::Result<()>) {
    let started = Instant::now();
    while let Err(e) = undo()
        && Errno::from_io_error(&e) == Some(Errno::BUSY)
        && started.elapsed() < WAIT
    {
        thread::sleep(AGAIN_AFTER);
    }
}
