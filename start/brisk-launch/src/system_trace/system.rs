/*!
Records what a launch reads of the whole system: each page that the kernel brings into the page cache for the
program's processes, or for all processes while the program runs. This needs root.

The page cache is emptied first, because pages that are in it cause no event. Read-ahead of the devices is lowered to
a page, because pages that the kernel reads ahead would cause events too. The kernel's events contain inodes
(`tracefs`); the names come from watching which files are opened (`opened_files`). A separate process restores
everything (`restorer`).

Looking up a name causes no event, so the profile has only names that were opened. Which processes are traced, the kernel's
events of processes tell, because a process may have ended when its names are read.
*/

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use brisk_image::profile::{Named, ProfileBuilder, Ready, Recorded, RootKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use super::opened_files::{Names, OpenedFiles};
use super::places::{Places, mount_of};
use super::restorer::{Change, Restorer};
use super::tracefs::{CachedPages, Event, Instance, Tracefs};
use crate::chosen_names::{self, ChosenNames};
use crate::error::{Advice, Cause, ErrorKind};
use crate::mount_table::{MountEntry, mounts};

/// The directory where the read-ahead of devices is set.
const DEVICES: &str = "/sys/class/bdi";

/// How many events are kept: 100 MB.
const MAX_EVENTS: usize = 2 << 20;

/// How long the reader waits for events before it checks whether the recording was cut.
const LOOK_EVERY: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};

/// Set in numbers of directories, clear in those of files.
const OF_DIRECTORIES: u64 = 1 << 63;

/// The number of the first PID namespace in the kernel (`PROC_PID_INIT_INO`).
const FIRST_PROCESSES: &str = "pid:[4026531836]";

/// How to record.
pub struct WholeSystem {
    /// Leaves the page cache as it is.
    pub keep_cache: bool,
    /// Records what any process reads.
    pub all_processes: bool,
}

/// It told nothing, or nothing that can be read.
pub fn tracer_lost() -> Cause {
    Cause::new(
        ErrorKind::Io,
        "the recording process ended before it could report; look for the reason in the system's log (out of memory, killed), \
         and try again",
    )
}

/// The system, prepared for a launch.
pub struct System {
    /// When the program may start, on the clock of the events.
    started: Duration,
    /// Whether every process is traced.
    all_processes: bool,
    reader: Reader,
    /// Dropped after the reader, because what is in use cannot be restored.
    _tracefs: Tracefs,
    _restorer: Restorer,
}

enum Reader {
    Ready(Box<(Instance, OpenedFiles)>),
    Running(Running),
    Done,
}

struct Running {
    is_cut: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<Collected>>,
}

/// The result of reading.
struct Collected {
    events: Vec<CachedPages>,
    lost: u64,
    names: Names,
}

/// What was recorded, and what is missing.
pub struct RecordedLaunch {
    /// The profile, and what is missing in it.
    pub recorded: Recorded,
    /// How many files are left out because they were written meanwhile.
    pub written: u64,
}

/// A file that had pages read.
struct ReadFile {
    /// The number of its mount.
    mount: usize,
    path: PathBuf,
    len: u64,
    written: bool,
}

impl System {
    /// Changes the system as the recording needs it.
    pub fn prepare(plan: &WholeSystem) -> Result<Self, Cause> {
        let processes = fs::read_link("/proc/self/ns/pid");
        if processes.is_ok_and(|name| name != Path::new(FIRST_PROCESSES)) {
            let cause = Cause::unsupported(
                "this is a container, and the kernel's events have other numbers for its processes; run it outside",
            );
            return Err(cause.advise(Advice::NameTrees));
        }
        let tracefs = Tracefs::open()?;
        let mut changes = tracefs.changes();
        let slow = read_aheads().map_err(|e| Cause::io("read the devices' read-ahead", e))?;
        changes.extend(slow.iter().cloned());
        let lock = tracefs.lock.try_clone();
        let restorer = lock
            .and_then(|lock| Restorer::start(changes, lock))
            .map_err(|e| Cause::io("start the process that puts the system back", e))?;
        let instance = tracefs.instance()?;
        let mut opened = OpenedFiles::watch()?;
        for change in &slow {
            if let Change::File { path, becomes, .. } = change {
                // If a device has disappeared meanwhile, nothing is read from it.
                fs::write(path, becomes).ok();
            }
        }
        if !plan.keep_cache {
            rustix::fs::sync();
            fs::write("/proc/sys/vm/drop_caches", "1")
                .map_err(|e| Cause::io("empty the page cache", e))?;
        }
        // What others have opened meanwhile is no part of the launch.
        let named = |e: Errno| Cause::io("read which files were opened", e);
        while opened.read(Duration::ZERO).map_err(named)? {}
        opened.settle(|_| false);
        Ok(Self {
            started: now(),
            all_processes: plan.all_processes,
            reader: Reader::Ready(Box::new((instance, opened))),
            _tracefs: tracefs,
            _restorer: restorer,
        })
    }

    /// The directory that [`Instance::follow`] needs in the program's process.
    pub fn directory(&self) -> PathBuf {
        match &self.reader {
            Reader::Ready(ready) => ready.0.directory().to_owned(),
            _ => PathBuf::new(),
        }
    }

    /// Starts reading, in a thread.
    pub fn start(&mut self) -> Result<(), Cause> {
        let Reader::Ready(ready) = std::mem::replace(&mut self.reader, Reader::Done) else {
            return Err(tracer_lost());
        };
        let (instance, opened) = *ready;
        let is_cut = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&is_cut);
        let all = self.all_processes;
        let thread = thread::Builder::new()
            .name("brisk-events".into())
            .spawn(move || collect(instance, opened, all, &seen))
            .map_err(|e| Cause::io("start a thread", e))?;
        self.reader = Reader::Running(Running { is_cut, thread });
        Ok(())
    }

    /// Cuts the recording, and makes a profile from it.
    pub fn cut(&mut self, command: Vec<OsString>, by: String) -> Result<RecordedLaunch, Cause> {
        let Reader::Running(running) = std::mem::replace(&mut self.reader, Reader::Done) else {
            return Err(tracer_lost());
        };
        let at = micros(now().saturating_sub(self.started));
        running.is_cut.store(true, Ordering::Release);
        let collected = running.thread.join().map_err(|_| tracer_lost())?;
        let collected = collected.map_err(|e| Cause::io("read the kernel's events", e))?;
        let mounts = mounts().map_err(|e| Cause::io("read /proc/self/mountinfo", e))?;
        collected.record(&mounts, self.started, command, Ready::new(by, at))
    }
}

impl Drop for System {
    fn drop(&mut self) {
        if let Reader::Running(running) = std::mem::replace(&mut self.reader, Reader::Done) {
            // What the reader has open cannot be restored, so it must end. Nobody needs what it has read.
            running.is_cut.store(true, Ordering::Release);
            running.thread.join().ok();
        }
    }
}

/// The changes that lower the read-ahead of disks to a page.
fn read_aheads() -> io::Result<Vec<Change>> {
    let page = rustix::param::page_size() >> 10;
    let mut changes = Vec::new();
    for entry in fs::read_dir(DEVICES)? {
        let entry = entry?;
        // Not the kernel's own file systems, those on networks, or those of other sessions.
        if entry.file_name().as_encoded_bytes().starts_with(b"0:") {
            continue;
        }
        let path = entry.path().join("read_ahead_kb");
        let Ok(was) = fs::read_to_string(&path) else {
            continue;
        };
        if was.trim().parse::<usize>().is_ok_and(|kib| kib > page) {
            changes.push(Change::File {
                path,
                was,
                becomes: page.to_string(),
            });
        }
    }
    Ok(changes)
}

/// Reads until the recording is cut, and then everything that is left.
fn collect(
    mut instance: Instance,
    mut opened: OpenedFiles,
    all_processes: bool,
    is_cut: &AtomicBool,
) -> io::Result<Collected> {
    let mut events = Vec::new();
    let mut dropped = 0u64;
    let own = std::process::id().cast_signed();
    let mut followed = HashSet::new();
    // The event of a process comes before anything that it does.
    let is_traced = |followed: &HashSet<i32>, process| match all_processes {
        true => process != own,
        false => followed.contains(&process),
    };
    loop {
        let was_cut = is_cut.load(Ordering::Acquire);
        if was_cut {
            instance.stop()?;
        }
        loop {
            // Names first, because the events of a file come after it was opened.
            let some_opened = opened.read(now())?;
            let some_read = instance.read(|event| match event {
                Event::Begins(process) => _ = followed.insert(process),
                Event::Cached(pages) if events.len() < MAX_EVENTS => events.push(pages),
                Event::Cached(_) => dropped = dropped.saturating_add(1),
            })?;
            // Others may open files without a pause. Which processes are traced is known when all events are read.
            if !(some_read || was_cut && some_opened) {
                break;
            }
        }
        opened.settle(|process| is_traced(&followed, process));
        if was_cut {
            return Ok(Collected {
                events,
                lost: instance.lost()?.saturating_add(dropped),
                names: opened.into_names(),
            });
        }
        let mut fds = [
            PollFd::new(&opened, PollFlags::IN),
            PollFd::new(&instance, PollFlags::IN),
        ];
        // A signal makes this fail. Everything is checked again.
        poll(&mut fds, Some(&LOOK_EVERY)).ok();
    }
}

impl Collected {
    fn record(
        self,
        mounts: &[MountEntry],
        started: Duration,
        command: Vec<OsString>,
        ready: Ready,
    ) -> Result<RecordedLaunch, Cause> {
        let began = wall_clock().saturating_sub(now().saturating_sub(started));
        let files = files(&self.names.of_files, mounts, began);
        let own_path = fs::read_link("/proc/self/exe").ok();
        let own = own_path.as_deref().and_then(|path| own_file(path, mounts));
        let builder = ProfileBuilder::new();
        let mut roots = HashMap::new();
        let mut numbers = HashMap::new();
        let mut read = Vec::new();
        let mut written = HashSet::new();
        let mut unnamed = 0u64;
        let page = rustix::param::page_size() as u64;
        for event in &self.events {
            let key = (event.device, event.inode);
            if own == Some(key) || is_metadata(event, mounts) {
                continue;
            }
            let Some(file) = files.get(&key) else {
                unnamed += 1;
                continue;
            };
            if file.written {
                written.insert(key);
                continue;
            }
            let Some(mount) = mounts.get(file.mount) else {
                continue;
            };
            let root = *roots
                .entry(&*mount.target)
                .or_insert_with(|| builder.add_root(&mount.target, RootKind::System));
            let number = *numbers.entry(key).or_insert_with(|| {
                read.push((&mount.target, file));
                read.len() as u64 - 1
            });
            let len = page.checked_shl(event.order).unwrap_or(page);
            let at = event.at.saturating_sub(started);
            builder.range(root, number, event.offset, len, at);
        }
        // A replay of a file's pages looks up its name.
        let of_pages = read.iter().map(|(_, file)| &*file.path);
        let of_written = files.values().filter(|file| file.written);
        let passed_over: HashSet<&Path> = of_pages
            .chain(of_written.map(|file| &*file.path))
            .chain(own_path.as_deref())
            .collect();
        let mut places = Places::new(mounts, began);
        let mut chosen = ChosenNames::default();
        let mut noted = HashSet::new();
        let mut directories = Vec::new();
        let mut numbers = HashMap::new();
        for name in self.names.opened {
            let Some(place) = places.of(&name) else {
                continue;
            };
            let path = place.directory.join(&place.name);
            let digest = chosen_names::digest(&path, true);
            if passed_over.contains(&*path)
                || !noted.insert(digest)
                || !chosen.chooses(place.directory.clone(), &path, true, digest)
            {
                continue;
            }
            let root = *roots
                .entry(place.mount)
                .or_insert_with(|| builder.add_root(place.mount, RootKind::System));
            let number = *numbers.entry(place.directory.clone()).or_insert_with(|| {
                directories.push((place.mount, place.directory));
                OF_DIRECTORIES | (directories.len() as u64 - 1)
            });
            let at = name.at.saturating_sub(started);
            builder.look_up(root, number, &place.name, true, at);
        }
        let recorded = builder.finish(command, Some(ready), |_, number| {
            if number & OF_DIRECTORIES != 0 {
                let number = usize::try_from(number & !OF_DIRECTORIES).ok()?;
                let (root, path) = directories.get(number)?;
                return Some(Named::new(path.strip_prefix(root).ok()?.to_owned(), 0));
            }
            let (root, file) = read.get(usize::try_from(number).ok()?)?;
            Some(Named::new(
                file.path.strip_prefix(root).ok()?.to_owned(),
                file.len,
            ))
        });
        let mut recorded =
            recorded.map_err(|e| Cause::io("make a profile", io::Error::other(e)))?;
        recorded.unnamed = recorded.unnamed.saturating_add(unnamed);
        recorded.dropped = recorded.dropped.saturating_add(self.lost);
        Ok(RecordedLaunch {
            recorded,
            written: written.len() as u64,
        })
    }
}

/// The files that still have the names by which they were opened, by the file system's numbers and the inode.
fn files(
    names: &HashMap<(u64, u64), PathBuf>,
    mounts: &[MountEntry],
    began: Duration,
) -> HashMap<((u32, u32), u64), ReadFile> {
    let mut files = HashMap::new();
    for ((device, inode), path) in names {
        let same = |m: &fs::Metadata| m.is_file() && (m.dev(), m.ino()) == (*device, *inode);
        let Some(metadata) = path.symlink_metadata().ok().filter(same) else {
            continue;
        };
        let Some((mount, numbers)) = mount_of(path, mounts) else {
            continue;
        };
        let file = ReadFile {
            mount,
            path: path.clone(),
            len: metadata.len(),
            // The modification time can be set to its old value, but this time cannot.
            written: time(metadata.ctime(), metadata.ctime_nsec()) >= began,
        };
        // Subvolumes use the same numbers again, and an event does not distinguish them.
        files
            .entry((numbers, *inode))
            .and_modify(|known| *known = None)
            .or_insert(Some(file));
    }
    let known = files
        .into_iter()
        .filter_map(|(key, file)| Some((key, file?)));
    known.collect()
}

/// The file of this program, which runs until it becomes the other one.
fn own_file(path: &Path, mounts: &[MountEntry]) -> Option<((u32, u32), u64)> {
    let inode = path.metadata().ok()?.ino();
    Some((mount_of(path, mounts)?.1, inode))
}

/// Whether the pages belong to a device itself: a file system reads its own tables in this way. Then the
/// inode has the number of the device.
fn is_metadata(event: &CachedPages, mounts: &[MountEntry]) -> bool {
    event.device.0 == 0
        && mounts
            .iter()
            .filter_map(MountEntry::device_numbers)
            .any(|(major, minor)| {
                // The kernel's `MKDEV`.
                major != 0 && event.inode == (u64::from(major) << 20) | u64::from(minor)
            })
}

fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::try_from(now).unwrap_or_default()
}

/// The clock of the times of files.
fn wall_clock() -> Duration {
    let now = clock_gettime(ClockId::Realtime);
    time(now.tv_sec, now.tv_nsec)
}

/// 1970 for everything before that.
fn time(seconds: i64, nanoseconds: i64) -> Duration {
    let seconds = u64::try_from(seconds).unwrap_or(0);
    Duration::new(seconds, u32::try_from(nanoseconds).unwrap_or(0))
}

fn micros(at: Duration) -> u64 {
    u64::try_from(at.as_micros()).unwrap_or(u64::MAX)
}
