//! Looks up the names of a profile, so that the kernel has their directories and inodes in memory.
//!
//! The names of one directory are looked up together, when the first of them is due: they wait for the same blocks of the
//! disk. So several threads take several directories.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use brisk_image::profile::{Asked, LookUp, Profile};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, StatxFlags, openat2, statx};
use rustix::io::Errno;

use super::profile_files::beneath;

/// Threads that look up names. Each may wait for the disk.
pub(super) const LOOK_UP_THREADS: usize = 4;

/// The most names that a thread takes at once.
const AT_ONCE: usize = 64;

/// If so many names, spread over all, are in memory, all are.
const SAMPLES: usize = 16;

/// How often a paused thread checks whether the pause has ended.
const PAUSE: Duration = Duration::from_millis(5);

/// Pauses and ends the threads that look up names.
#[derive(Debug, Default)]
pub(super) struct LookUpSwitch {
    paused: AtomicBool,
    over: AtomicBool,
}

impl LookUpSwitch {
    pub(super) fn pause(&self, paused: bool) {
        self.paused.store(paused, Ordering::Relaxed);
    }

    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// Waits for the end of a pause. False if no more names must be looked up.
    fn goes_on(&self) -> bool {
        while self.paused.load(Ordering::Relaxed) && !self.over.load(Ordering::Relaxed) {
            thread::sleep(PAUSE);
        }
        !self.over.load(Ordering::Relaxed)
    }
}

/// The names of a profile that are looked up, and what was found.
#[derive(Debug)]
pub(super) struct LookUps {
    roots: Vec<Option<Arc<OwnedFd>>>,
    /// Names of one directory each, as numbers of steps of the profile, in the order in which the first of them are due.
    tasks: Vec<Vec<usize>>,
    /// The next task that nobody has taken.
    next: AtomicUsize,
    looked_up: AtomicU64,
    changed: AtomicU64,
}

impl LookUps {
    pub(super) fn new(profile: &Profile, roots: Vec<Option<Arc<OwnedFd>>>) -> Self {
        let mut tasks: Vec<Vec<usize>> = Vec::new();
        let mut last_of: HashMap<u32, usize> = HashMap::new();
        for (number, look_up) in look_ups(profile) {
            let last = last_of.get(&look_up.directory).copied();
            match last.and_then(|last| tasks.get_mut(last)) {
                Some(task) if task.len() < AT_ONCE => task.push(number),
                _ => {
                    last_of.insert(look_up.directory, tasks.len());
                    tasks.push(vec![number]);
                }
            }
        }
        Self {
            roots,
            tasks,
            next: AtomicUsize::new(0),
            looked_up: AtomicU64::new(0),
            changed: AtomicU64::new(0),
        }
    }

    /// How many names were looked up, and for how many the answer (found or absent) has changed since the recording.
    pub(super) fn counts(&self) -> (u64, u64) {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (of(&self.looked_up), of(&self.changed))
    }

    /// Whether all names seem to be in memory. The search ends at the first one that is not, so it costs little if there is
    /// work to do.
    pub(super) fn all_in_memory(&self, profile: &Profile) -> bool {
        let count = self.tasks.len();
        let samples = SAMPLES.min(count);
        let is_in_memory = |sample: usize| {
            // The middle first, because the program may have looked up the first ones by now.
            let at = (count / 2 + sample * count / samples) % count;
            let first = self.tasks.get(at)?.first()?;
            let (look_up, root, directory) = self.named(profile, *first)?;
            let path = directory.join(&look_up.name);
            is_in_memory(root, &path, ResolveFlags::BENEATH).then_some(())
        };
        count > 0 && (0..samples).all(|sample| is_in_memory(sample).is_some())
    }

    /// The name in this step, and where it is: its root, and the path of its directory.
    fn named<'a>(
        &'a self,
        profile: &'a Profile,
        step: usize,
    ) -> Option<(&'a LookUp, BorrowedFd<'a>, &'a Path)> {
        let Asked::LookUp(look_up) = &profile.steps().get(step)?.asked else {
            return None;
        };
        let directory = profile.directories().get(look_up.directory as usize)?;
        let root = self.roots.get(directory.root as usize)?.as_ref()?;
        Some((look_up, root.as_fd(), &directory.path))
    }

    /// Looks up names until none is left or `switch` ends it. Several threads call this.
    pub(super) fn work(&self, profile: &Profile, switch: &LookUpSwitch) {
        while let Some(task) = self.tasks.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            let mut directory = None;
            for &step in task {
                if !switch.goes_on() {
                    return;
                }
                let Some((look_up, root, path)) = self.named(profile, step) else {
                    continue;
                };
                let directory = directory.get_or_insert_with(|| open_directory(root, path));
                let found = match directory {
                    Ok(directory) => is_found(directory.as_fd(), look_up),
                    Err(error) => Err(*error),
                };
                let found = match found {
                    Ok(()) => Some(true),
                    Err(Errno::NOENT | Errno::NOTDIR) => Some(false),
                    Err(_) => None,
                };
                let changed = found.is_some_and(|found| found != look_up.found);
                self.looked_up.fetch_add(1, Ordering::Relaxed);
                self.changed
                    .fetch_add(u64::from(changed), Ordering::Relaxed);
            }
        }
    }
}

/// Whether the kernel knows in memory what this name is, or that it is absent. `within` limits where links lead. The kernel
/// refuses with AGAIN what is not in memory (Linux 5.12). If it does not know how, nobody knows.
pub(super) fn is_in_memory(root: BorrowedFd<'_>, path: &Path, within: ResolveFlags) -> bool {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = openat2(
        root,
        path,
        flags,
        Mode::empty(),
        within | ResolveFlags::CACHED,
    );
    matches!(opened, Ok(_) | Err(Errno::NOENT | Errno::NOTDIR))
}

/// The look-ups of a profile, with the numbers of their steps.
pub(super) fn look_ups(profile: &Profile) -> impl Iterator<Item = (usize, &LookUp)> {
    let steps = profile.steps().iter().enumerate();
    steps.filter_map(|(number, step)| match &step.asked {
        Asked::LookUp(look_up) => Some((number, look_up)),
        _ => None,
    })
}

fn open_directory(root: BorrowedFd<'_>, path: &Path) -> rustix::io::Result<OwnedFd> {
    match path.as_os_str().is_empty() {
        true => Ok(root.try_clone_to_owned().map_err(|_| Errno::MFILE)?),
        false => beneath(root, path),
    }
}

/// Looks up a name, which is not followed if it is a link.
fn is_found(directory: BorrowedFd<'_>, look_up: &LookUp) -> rustix::io::Result<()> {
    // Of a network's file, the kernel asks nothing that it knows already.
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    statx(directory, &look_up.name, flags, StatxFlags::TYPE).map(drop)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use brisk_image::Limits;

    use super::super::disk::open_root;
    use super::*;

    /// A profile of a launch that looked up these names in the directories `a` and `b`.
    fn profile(root: &Path, names: &[(&str, u32, &str)]) -> Profile {
        let steps = names.iter().map(|(answer, directory, name)| {
            format!(r#"["{answer}", {directory}, "{name}", 1, 1]"#)
        });
        let text = format!(
            r#"{{"brisk_profile": 1, "brisk": "0.1.0", "command": ["app"], "runs": 1,
"roots": [["{}", "directory"]], "directories": [[0, "a"], [0, "b"]], "files": [],
"steps": [{}]}}"#,
            root.display(),
            steps.collect::<Vec<_>>().join(", ")
        );
        Profile::from_text(text.as_bytes(), &Limits::of_profiles()).expect("a profile")
    }

    fn look_ups_of(root: &Path, profile: &Profile) -> LookUps {
        let fd = open_root(root).expect("there");
        LookUps::new(profile, vec![Some(Arc::new(fd))])
    }

    #[test]
    fn names_of_a_directory_are_looked_up_together() {
        let home = tempfile::tempdir().expect("a directory");
        fs::create_dir(home.path().join("a")).expect("room");
        for name in ["1", "2", "was-absent"] {
            fs::write(home.path().join("a").join(name), "").expect("room");
        }
        let profile = profile(
            home.path(),
            &[
                ("found", 0, "1"),
                ("absent", 1, "none"),
                ("found", 0, "2"),
                ("absent", 0, "was-absent"),
                ("found", 1, "was-there"),
                ("found", 0, "removed"),
                ("absent", 0, "absent"),
            ],
        );
        let look_ups = look_ups_of(home.path(), &profile);
        assert_eq!(look_ups.tasks, [vec![0, 2, 3, 5, 6], vec![1, 4]]);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| look_ups.work(&profile, &LookUpSwitch::default()));
            }
        });
        assert_eq!(look_ups.counts(), (7, 3));
    }

    #[test]
    fn a_thread_takes_so_many_names_at_once() {
        let names: Vec<_> = (0..AT_ONCE + 1).map(|n| n.to_string()).collect();
        let names: Vec<_> = names.iter().map(|name| ("found", 0, &**name)).collect();
        let home = tempfile::tempdir().expect("a directory");
        let profile = profile(home.path(), &names);
        let tasks = look_ups_of(home.path(), &profile).tasks;
        assert_eq!(tasks, [(0..AT_ONCE).collect(), vec![AT_ONCE]]);
    }

    #[test]
    fn names_that_nobody_has_looked_up_are_not_in_memory() {
        // On a disk: elsewhere all names are in memory.
        let program = std::env::current_exe().expect("this");
        let home = tempfile::tempdir_in(program.parent().expect("a directory")).expect("room");
        fs::create_dir(home.path().join("a")).expect("room");
        fs::write(home.path().join("a/1"), "").expect("room");
        let profile = profile(home.path(), &[("found", 0, "1"), ("absent", 0, "none")]);
        let look_ups = look_ups_of(home.path(), &profile);
        // The only task's first name.
        assert!(look_ups.all_in_memory(&profile));
        let absent = self::profile(home.path(), &[("absent", 0, "new")]);
        let look_ups = look_ups_of(home.path(), &absent);
        assert!(!look_ups.all_in_memory(&absent));
        look_ups.work(&absent, &LookUpSwitch::default());
        // Now the kernel knows that there is none.
        assert!(look_ups.all_in_memory(&absent));
        let nothing = self::profile(home.path(), &[]);
        assert!(!look_ups_of(home.path(), &nothing).all_in_memory(&nothing));
    }

    #[test]
    fn what_has_ended_looks_up_nothing() {
        let home = tempfile::tempdir().expect("a directory");
        let profile = profile(home.path(), &[("found", 0, "1")]);
        let look_ups = look_ups_of(home.path(), &profile);
        let switch = LookUpSwitch::default();
        switch.end();
        look_ups.work(&profile, &switch);
        assert_eq!(look_ups.counts(), (0, 0));
    }
}
