/*!
Records what a launch reads of the whole system: each page that the kernel brings into the page cache for the
program's processes, or for all processes while the program runs. This needs root.

The page cache is emptied first, because pages that are in it cause no event. Read-ahead of the devices is lowered to
a page, because pages that the kernel reads ahead would cause events too. The kernel's events contain inodes
([`tracefs`]); the names come from watching which files are opened ([`opened_files`]). A separate process restores
everything ([`restorer`]).

Looking up a name causes no event. So the profile has only look-ups of names that were found and opened, as far as the process
that opened them still lived when that was noticed, or was known before.
*/

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use brisk_image::profile::{Named, ProfileBuilder, Ready, Recorded, RootKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use super::WholeSystem;
use super::opened_files::{Names, OpenedFiles, is_watched};
use super::restorer::{Change, Restorer};
use super::tracefs::{CachedPages, Instance, Tracefs};
use crate::error::Cause;
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

/// The system, prepared for a launch.
pub(super) struct System {
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
    Ready(Instance, OpenedFiles),
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
    pub(super) fn prepare(plan: &WholeSystem) -> Result<Self, Cause> {
        let processes = fs::read_link("/proc/self/ns/pid");
        if processes.is_ok_and(|name| name != Path::new(FIRST_PROCESSES)) {
            return Err(Cause::TracedInContainer);
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
        while opened.read(Duration::ZERO, |_| false).map_err(named)? {}
        Ok(Self {
            started: now(),
            all_processes: plan.all_processes,
            reader: Reader::Ready(instance, opened),
            _tracefs: tracefs,
            _restorer: restorer,
        })
    }

    /// The directory that [`Instance::follow`] needs in the program's process.
    pub(super) fn directory(&self) -> PathBuf {
        match &self.reader {
            Reader::Ready(instance, _) => instance.directory().to_owned(),
            _ => PathBuf::new(),
        }
    }

    /// Starts reading, in a thread.
    pub(super) fn start(&mut self) -> Result<(), Cause> {
        let Reader::Ready(instance, opened) = std::mem::replace(&mut self.reader, Reader::Done)
        else {
            return Err(Cause::TracerLost);
        };
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

    /// Cuts the recording, and makes a profile from it. Also returns how many files are left out because they
    /// were written meanwhile.
    pub(super) fn cut(
        &mut self,
        command: Vec<OsString>,
        by: String,
    ) -> Result<(Recorded, u64), Cause> {
        let Reader::Running(running) = std::mem::replace(&mut self.reader, Reader::Done) else {
            return Err(Cause::TracerLost);
        };
        let at = micros(now().saturating_sub(self.started));
        running.is_cut.store(true, Ordering::Release);
        let collected = running.thread.join().map_err(|_| Cause::TracerLost)?;
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
    // All that were seen, because one that has ended may have opened something just before.
    let mut followed = HashSet::new();
    loop {
        let was_cut = is_cut.load(Ordering::Acquire);
        if was_cut {
            instance.stop()?;
        }
        loop {
            // Names first, because the events of a file come after it was opened.
            let mut is_fresh = false;
            let is_traced = |pid| {
                if all_processes {
                    return pid != own;
                }
                // Read behind the event, so that a process which has just begun is in it.
                if !followed.contains(&pid) && !is_fresh {
                    followed.extend(instance.followed());
                    is_fresh = true;
                }
                followed.contains(&pid)
            };
            let some_opened = opened.read(now(), is_traced)?;
            let some_read = instance.read(|event| match events.len() < MAX_EVENTS {
                true => events.push(event),
                false => dropped = dropped.saturating_add(1),
            })?;
            if !some_opened && !some_read {
                break;
            }
        }
        if was_cut {
            let lost = instance.lost()?.saturating_add(dropped);
            let names = opened.into_names();
            return Ok(Collected {
                events,
                lost,
                names,
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
    ) -> Result<(Recorded, u64), Cause> {
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
        let opened = self.names.opened.iter();
        let opened = opened.filter(|opened| !passed_over.contains(&*opened.path));
        let mut directories = Vec::new();
        let mut numbers = HashMap::new();
        for (opened, place) in
            opened.filter_map(|one| Some((one, Place::of(&one.path, mounts, began)?)))
        {
            let root = *roots
                .entry(place.mount)
                .or_insert_with(|| builder.add_root(place.mount, RootKind::System));
            let number = *numbers.entry(place.directory).or_insert_with(|| {
                directories.push((place.mount, place.directory));
                OF_DIRECTORIES | (directories.len() as u64 - 1)
            });
            let at = opened.at.saturating_sub(started);
            builder.look_up(root, number, place.name, true, at);
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
        Ok((recorded, written.len() as u64))
    }
}

/// Where a name is that was looked up.
struct Place<'a> {
    /// Where its mount is.
    mount: &'a Path,
    directory: &'a Path,
    name: &'a OsStr,
}

impl<'a> Place<'a> {
    /// None if it was removed meanwhile or made since `began`, or if its mount is not watched or begins there.
    fn of(path: &'a Path, mounts: &'a [MountEntry], began: Duration) -> Option<Self> {
        let mount = &*mounts.get(mount_of(path, mounts)?.0)?.target;
        let place = Self {
            mount,
            directory: path.parent()?,
            name: path.file_name()?,
        };
        // Not all file systems know when it was made.
        let made = path.symlink_metadata().ok()?.created();
        let is_new = made.is_ok_and(|made| made >= SystemTime::UNIX_EPOCH + began);
        (path != mount && !is_new).then_some(place)
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

/// The number and the device of the mount of `path`, if it is watched.
fn mount_of(path: &Path, mounts: &[MountEntry]) -> Option<(usize, (u32, u32))> {
    // The last mount on a place hides the others.
    let (number, mount) = mounts
        .iter()
        .enumerate()
        .filter(|(_, mount)| path.starts_with(&mount.target))
        .max_by_key(|(number, mount)| (mount.target.as_os_str().len(), *number))?;
    is_watched(mount).then(|| Some((number, mount.device_numbers()?)))?
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
