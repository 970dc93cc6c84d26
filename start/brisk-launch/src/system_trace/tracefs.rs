//! The kernel's events of pages that some processes bring into the page cache.
//!
//! An instance of tracefs has its own buffer, events and list of processes, so that it disturbs no other
//! trace.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::restorer::Change;
use crate::error::{Advice, Cause};

const TRACEFS: &str = "/sys/kernel/tracing";

/// Below `TRACEFS`. Only one exists at a time, because there is one lock.
const INSTANCE: &str = "instances/brisk";

/// The event of pages, since Linux 3.9.
const EVENT: &str = "events/filemap/mm_filemap_add_to_page_cache";
const EVENT_NAME: &str = ": mm_filemap_add_to_page_cache: ";

/// The events of processes, which tell who is followed.
const PROCESS_EVENTS: [&str; 2] = [
    "events/sched/sched_process_fork",
    "events/sched/sched_process_exec",
];
const FORK_NAME: &str = ": sched_process_fork: ";
const EXEC_NAME: &str = ": sched_process_exec: ";

/// Memory for events that were not read yet, in KiB, for all processors together: about 400 000 events.
const BUFFER_KIB: usize = 32 << 10;

/// Bytes of text to read at once. The kernel returns a page of it.
const TEXT: usize = 16 << 10;

/// An event of a followed process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    Cached(CachedPages),
    /// A process with this number has started, or has become another program.
    Begins(i32),
}

/// One page or several that entered the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CachedPages {
    /// Time since the start of the system.
    pub at: Duration,
    /// The file system: major and minor number.
    pub device: (u32, u32),
    pub inode: u64,
    /// Offset in bytes.
    pub offset: u64,
    /// The number of pages is 2 to the power of this.
    pub order: u32,
}

/// The kernel lacks this for tracing the whole system.
pub fn lacks(what: &str) -> Cause {
    let text = format!("the kernel lacks {what}, which tracing the whole system needs");
    Cause::unsupported(text).advise(Advice::NameTrees)
}

/// tracefs, with what brisk needs of it.
pub struct Tracefs {
    /// Only one trace of the whole system holds it at a time.
    pub lock: OwnedFd,
    mounted: bool,
}

/// An instance, with its text open.
pub struct Instance {
    directory: PathBuf,
    pipe: File,
    /// The start of a line whose end was not read yet.
    line: Vec<u8>,
}

impl Tracefs {
    /// Finds tracefs, or mounts it, and checks its contents.
    pub fn open() -> Result<Self, Cause> {
        let root = Path::new(TRACEFS);
        let mut mounted = false;
        if !root.join("instances").exists() {
            mount("tracefs", root, "tracefs", MountFlags::empty(), None).map_err(|e| match e {
                Errno::NODEV | Errno::NOENT => {
                    lacks("tracefs (CONFIG_TRACING), or keeps it from this container")
                }
                Errno::PERM | Errno::ACCESS => Cause::not_permitted(),
                e => Cause::io("mount tracefs", e),
            })?;
            mounted = true;
        }
        let opened = Self::open_mounted(root, mounted);
        if opened.is_err() && mounted {
            // Nobody else does this. If it is in use by now, it stays.
            unmount(root, UnmountFlags::empty()).ok();
        }
        opened
    }

    fn open_mounted(root: &Path, mounted: bool) -> Result<Self, Cause> {
        let instances = root.join("instances");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let lock = openat(CWD, &instances, flags, Mode::empty())
            .map_err(|e| Cause::io(format!("open {}", instances.display()), e))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|e| match e {
            Errno::WOULDBLOCK => {
                Cause::busy("another trace of the whole system is running; wait for its end")
            }
            e => Cause::io("lock tracefs", e),
        })?;
        let format = match fs::read_to_string(root.join(EVENT).join("format")) {
            Ok(format) => format,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(lacks(
                    "the event filemap:mm_filemap_add_to_page_cache (CONFIG_EVENT_TRACING)",
                ));
            }
            Err(e) => return Err(Cause::io("read the format of the event", e)),
        };
        if let Some(field) = missing_field(&format) {
            return Err(lacks(&format!(
                "the field {field} of the event filemap:mm_filemap_add_to_page_cache"
            )));
        }
        Ok(Self { lock, mounted })
    }

    /// The changes that [`Tracefs::open`] and [`Tracefs::instance`] make.
    pub(super) fn changes(&self) -> Vec<Change> {
        let mount = self.mounted.then(|| Change::Mount(TRACEFS.into()));
        let instance = Change::Directory(Path::new(TRACEFS).join(INSTANCE));
        mount.into_iter().chain([instance]).collect()
    }

    /// Makes the instance. It does not trace anything yet.
    pub fn instance(&self) -> Result<Instance, Cause> {
        let directory = Path::new(TRACEFS).join(INSTANCE);
        let failed = |step: &'static str| move |e: io::Error| Cause::io(step, e);
        if directory.exists() {
            // It comes from a trace that was killed with all its processes.
            fs::remove_dir(&directory).map_err(failed("remove an old instance of tracefs"))?;
        }
        fs::create_dir(&directory).map_err(failed("make an instance of tracefs"))?;
        let processors = thread_count();
        let kib = (BUFFER_KIB / processors).max(512).to_string();
        for (file, text, optional) in [
            ("buffer_size_kb", &*kib, true),
            ("trace_clock", "mono", false),
            ("options/event-fork", "1", false),
        ] {
            match fs::write(directory.join(file), text) {
                Err(_) if optional => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    return Err(lacks(&format!("{file} of tracefs (Linux 4.7)")));
                }
                result => result.map_err(failed("prepare an instance of tracefs"))?,
            }
        }
        let flags = OFlags::NONBLOCK | OFlags::CLOEXEC;
        let pipe = File::options()
            .read(true)
            .custom_flags(flags.bits().cast_signed())
            .open(directory.join("trace_pipe"))
            .map_err(failed("open the events"))?;
        Ok(Instance {
            directory,
            pipe,
            line: Vec::new(),
        })
    }
}

fn thread_count() -> usize {
    std::thread::available_parallelism().map_or(1, Into::into)
}

/// The first required field that is missing.
fn missing_field(format: &str) -> Option<&'static str> {
    ["i_ino", "index", "s_dev"].into_iter().find(|field| {
        let end = format!(" {field};");
        !format.lines().any(|line| line.contains(&end))
    })
}

impl Instance {
    /// Makes the instance write the events of this process and its descendants from now on, or those of all processes.
    pub fn follow(directory: &Path, all: bool) -> io::Result<()> {
        // While the list has no process, the events are those of all.
        if !all {
            let pid = std::process::id().to_string();
            fs::write(directory.join("set_event_pid"), pid)?;
        }
        let mut events = PROCESS_EVENTS.into_iter().chain([EVENT]);
        events.try_for_each(|event| fs::write(directory.join(event).join("enable"), "1"))?;
        // From this on, whoever watches look-ups knows where this process is. If it has no such directory, it is nowhere.
        std::env::current_dir()
            .and_then(std::env::set_current_dir)
            .ok();
        Ok(())
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(super) fn stop(&self) -> io::Result<()> {
        fs::write(self.directory.join("tracing_on"), "0")
    }

    /// Reads the events for which there is text. False if there is none at the moment.
    pub(super) fn read(&mut self, mut each: impl FnMut(Event)) -> io::Result<bool> {
        let mut text = [0; TEXT];
        let len = match self.pipe.read(&mut text) {
            Ok(len) => len,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return Ok(true),
            Err(e) => return Err(e),
        };
        for piece in text
            .get(..len)
            .unwrap_or_default()
            .split_inclusive(|b| *b == b'\n')
        {
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                if let Some(event) = parse(&String::from_utf8_lossy(&self.line)) {
                    each(event);
                }
                self.line.clear();
            }
        }
        Ok(len > 0)
    }

    /// How many events had no room, for all processors.
    pub(super) fn lost(&self) -> io::Result<u64> {
        let mut lost = 0u64;
        for entry in fs::read_dir(self.directory.join("per_cpu"))? {
            let stats = fs::read_to_string(entry?.path().join("stats"))?;
            for line in stats.lines() {
                if let Some(("overrun" | "dropped events", count)) = line.split_once(": ") {
                    lost = lost.saturating_add(count.trim().parse().unwrap_or(0));
                }
            }
        }
        Ok(lost)
    }
}

impl AsFd for Instance {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

/// Parses a line of the events' text, such as `name-12 [001] ..... 3.000004: sched_process_exec: filename=/bin/sh pid=12
/// old_pid=12`. Programs choose their own names, so only what follows the last name of an event counts.
fn parse(line: &str) -> Option<Event> {
    let line = line.trim_end();
    let split = |name: &str| line.rsplit_once(name);
    if let Some((front, fields)) = split(EVENT_NAME) {
        return parse_pages(time(front)?, fields).map(Event::Cached);
    }
    let process = match split(FORK_NAME) {
        Some((_, fields)) => fields.rsplit_once(" child_pid=")?.1,
        None => {
            let (fields, _) = split(EXEC_NAME)?.1.rsplit_once(" old_pid=")?;
            fields.rsplit_once(" pid=")?.1
        }
    };
    Some(Event::Begins(process.parse().ok()?))
}

/// The time at the end of what is before the name of an event.
fn time(front: &str) -> Option<Duration> {
    let (seconds, micros) = front.rsplit(' ').next()?.split_once('.')?;
    Duration::from_secs(seconds.parse().ok()?)
        .checked_add(Duration::from_micros(micros.parse().ok()?))
}

/// Parses the fields of a line such as `name-12 [001] ..... 3.000004: mm_filemap_add_to_page_cache: dev 254:0 ino 2e pfn=0x1
/// ofs=4096 order=0`. Orders other than 0 are shown since Linux 6.8.
fn parse_pages(at: Duration, fields: &str) -> Option<CachedPages> {
    let mut words = fields.split(' ');
    let (mut device, mut inode, mut offset, mut order) = (None, None, None, 0);
    while let Some(word) = words.next() {
        match (word, word.split_once('=')) {
            ("dev", _) => {
                let (major, minor) = words.next()?.split_once(':')?;
                device = Some((major.parse().ok()?, minor.parse().ok()?));
            }
            ("ino", _) => inode = Some(u64::from_str_radix(words.next()?, 16).ok()?),
            (_, Some(("ofs", text))) => offset = Some(text.parse().ok()?),
            (_, Some(("order", text))) => order = text.parse().ok()?,
            _ => {}
        }
    }
    Some(CachedPages {
        at,
        device: device?,
        inode: inode?,
        offset: offset?,
        order,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_several_kernels_are_read() {
        let event = |order| {
            Event::Cached(CachedPages {
                at: Duration::from_micros(12_000_034),
                device: (254, 1),
                inode: 0x2e,
                offset: 8192,
                order,
            })
        };
        for (line, found) in [
            (
                "  cat-7  [001] .....    12.000034: mm_filemap_add_to_page_cache: dev 254:1 ino 2e pfn=0x1c4 ofs=8192 order=2\n",
                Some(event(2)),
            ),
            // Linux 5.4, and a program whose name looks like an event.
            (
                " x: mm_filemap_add_to_page_cache: dev 1:1 ino 1 ofs=0-7 [001] .... 12.000034: mm_filemap_add_to_page_cache: dev 254:1 ino 2e page=000000004d3 pfn=1234 ofs=8192\n",
                Some(event(0)),
            ),
            (
                " sh-7 [001] ..... 12.000034: sched_process_fork: comm=sh child_pid=1 pid=7 child_comm=sh child_pid=8\n",
                Some(Event::Begins(8)),
            ),
            (
                " sh-8 [001] ..... 12.000034: sched_process_exec: filename=/a pid=1 old_pid=2 pid=8 old_pid=8\n",
                Some(Event::Begins(8)),
            ),
            (
                " sh-8 [001] ..... 12.000034: sched_process_exec: filename=/a\n",
                None,
            ),
            ("CPU:1 [LOST 5 EVENTS]\n", None),
            (
                "cat-7 [001] .... 12.000034: mm_filemap_add_to_page_cache: dev 254:1 ofs=8192\n",
                None,
            ),
        ] {
            assert_eq!(parse(line), found, "{line}");
        }
    }

    #[test]
    fn a_field_that_is_missing_is_named() {
        let format = "\tfield:unsigned long i_ino;\toffset:16;\n\tfield:dev_t s_dev;\toffset:32;\n";
        assert_eq!(missing_field(format), Some("index"));
        let format = format!("{format}\tfield:unsigned long index;\toffset:24;\n");
        assert_eq!(missing_field(&format), None);
    }
}
