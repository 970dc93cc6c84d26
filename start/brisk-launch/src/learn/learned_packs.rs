//! What brisk has learned of launches: a directory of the user.
//!
//! It is `$XDG_CACHE_HOME/brisk/hot`, else `~/.cache/brisk/hot`. Each launch has a [`Record`] there, `KEY.record`; of an image
//! there is a hot pack, too: `KEY.hot`. The modification time of the pack, or else of the record, is the time of its last use.
//! Each file is either complete or missing. Two launches that learn the same replace each other's files.
//!
//! KEY is a keyed digest of what tells launches apart, so that nobody can tell from a name with which arguments a program was
//! started. `secret` is the key. `limit` is how many bytes all of this may take, if the user has set that.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use brisk_image::Limits;
use brisk_image::hot_pack::HotPack;
use brisk_image::profile::{PAGE, Profile};
use brisk_io::ByteSource;
use rustix::fs::{
    AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, Timespec, Timestamps, UTIME_NOW,
    UTIME_OMIT, flock, futimens, linkat, openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::getpid;

use super::record::{LearnedOf, Record};
use super::rules::{Found, Known, LeftAlone, Look as Observation, SMALL, State};
use super::staging::{self, TEMPORARY};
use super::start_plan::StartPlan;
use crate::ObservationEnd;
use crate::error::{Action, Cause, Error, Result};
use crate::key::Key;
use crate::observe::Observed;
use crate::open::open_file;
use crate::owner::is_own;
use crate::private_directory::{cache_directory, make_cache_directory, open_private};
use crate::replay::{DiskCharge, Look, NextLaunch, Replay, ReplayEnd, Sample, StartReads};

/// The files of one key.
const KINDS: [&str; 2] = ["hot", "record"];

/// Kinds of files that earlier versions kept. They are removed.
const FORMER_KINDS: [&str; 8] = [
    "image", "more", "profile", "program", "sample", "settled", "small", "start",
];

/// The file with the limit that the user has set: a number of bytes.
const LIMIT: &str = "limit";

/// The file with the key of digests.
const SECRET: &str = "secret";

/// The age at which unfinished files count as abandoned.
const ABANDONED: Duration = Duration::from_secs(3600);

/// The hot packs that a user's sessions have learned.
///
/// 1. The directory belongs to the user, and nobody else may enter it, because the pages of a pack get into
///    the memory of programs.
#[derive(Debug)]
pub struct LearnedPacks {
    fd: Arc<OwnedFd>,
    /// The path, for messages.
    path: PathBuf,
}

/// One of [`LearnedPacks`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LearnedPack {
    /// The key, which no other pack has.
    pub key: String,
    /// What it was learned of.
    pub of: LearnedOf,
    /// Why the launch is left alone, if it is.
    pub left_alone: Option<LeftAlone>,
    /// Whether the next launch is observed, too.
    pub is_learning: bool,
    /// What the last start has read: from the disk, with a replay beside it, or from an image that was filled from the pack.
    pub last_start: Option<StartReads>,
    /// The image, the directory or the program, by its name when the pack was learned.
    pub image: Option<PathBuf>,
    /// Where the image was mounted.
    pub place: Option<PathBuf>,
    /// The program, with the script or the verb that tells its launches apart.
    pub command: Vec<OsString>,
    /// How many launches it was learned from.
    pub runs: Option<u32>,
    /// Pages of 4 KiB in the pack or the profile. None if it is damaged, or if the next launch will make it.
    pub pages: Option<u64>,
    /// Bytes of its files.
    pub bytes: u64,
    /// When a session last filled from it, or when it was made.
    pub used: SystemTime,
}

/// How a session without a hot pack learns one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Learning {
    /// The directory of the user's [`LearnedPacks`].
    pub packs: PathBuf,
    /// How many bytes all packs may take. Those that have been unused for the longest time are deleted first.
    pub limit: u64,
}

/// How many bytes all packs take at most, if nobody says otherwise.
pub const LEARNED_LIMIT: u64 = 1 << 30;

impl Learning {
    /// Keeps packs in the directory `packs`, which take `limit` bytes at most.
    pub fn new(packs: impl Into<PathBuf>, limit: u64) -> Self {
        Self {
            packs: packs.into(),
            limit,
        }
    }
}

/// An open record of a launch, with a profile to replay.
#[derive(Debug)]
pub struct LearnedLaunch {
    /// Its path, for messages.
    path: PathBuf,
    file: File,
    /// The byte at which the profile begins.
    at: u64,
    record: Record,
}

impl LearnedLaunch {
    /// Its path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What a file of this name was when the launch was looked up.
    ///
    /// # Errors
    ///
    /// `Io` if the system refuses to tell.
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.file.metadata()
    }

    /// Looks at a sample of it. None if there is none. The names are those that the launch had, so they mean something only in
    /// the same root directory.
    fn look(&self) -> Option<Look> {
        self.record.sample.as_ref().map(Sample::look)
    }

    /// Digests of documents that launches have read: see [`Observed::documents`].
    pub fn documents(&self) -> &[u64] {
        &self.record.documents
    }

    /// The number of the open directory.
    pub fn descriptor(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// The profile.
    ///
    /// # Errors
    ///
    /// As [`Profile::from_text`].
    pub fn profile(&self) -> brisk_image::Result<Profile> {
        Profile::from_reader(
            From {
                file: &self.file,
                at: self.at,
            },
            &Limits::of_profiles(),
        )
    }
}

/// Reads a file from a byte on, and leaves its position to others.
struct From<'a> {
    file: &'a File,
    at: u64,
}

impl Read for From<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.file.read_bytes_at(self.at, buffer)?;
        self.at = self.at.saturating_add(len as u64);
        Ok(len)
    }
}

/// A launch that is observed.
#[derive(Debug, Clone)]
pub struct ObservedLaunch {
    /// The key of what is learned of it.
    pub key: String,
    /// What it is learned of.
    pub of: LearnedOf,
    /// The directory or the program, for people.
    pub name: PathBuf,
    /// The program, with the script or the verb that tells its launches apart, for people.
    pub command: Vec<OsString>,
    /// Whether what was known before does not count.
    pub is_anew: bool,
    /// What the disks charge, instead of what was measured.
    pub charge: DiskCharge,
}

/// The size of the files of one key, and when they were last used.
#[derive(Debug, Clone, Copy)]
struct Size {
    bytes: u64,
    used: SystemTime,
    /// The file that says when it was used, as an index into [`KINDS`].
    by: usize,
}

impl LearnedPacks {
    /// The directory of the calling user.
    ///
    /// # Errors
    ///
    /// `Place` if the environment names no directory for it.
    pub fn path_of_user() -> Result<PathBuf> {
        match cache_directory() {
            Ok(cache) => Ok(cache.join("hot")),
            Err(cause) => Err(Error::new(Action::Learn, cause)),
        }
    }

    /// Opens the directory at `path`, and makes it if it does not exist.
    ///
    /// # Errors
    ///
    /// `Io` if it cannot be made, and `Place` if others could write to it.
    pub fn open(path: &Path) -> Result<Self> {
        let parent = path.parent().unwrap_or(Path::new("/"));
        make_cache_directory(parent)
            .and_then(|()| Self::open_there(path))
            .map_err(|cause| Error::new(Action::Learn, cause))
    }

    fn open_there(path: &Path) -> Result<Self, Cause> {
        Ok(Self {
            fd: Arc::new(open_private(path)?),
            path: path.to_owned(),
        })
    }

    /// All packs, the last used one first.
    ///
    /// # Errors
    ///
    /// `Io` if the directory cannot be read.
    pub fn list(&self) -> Result<Vec<LearnedPack>> {
        let sizes = self.sizes().map_err(|e| self.failed("read", e))?;
        let mut packs: Vec<_> = sizes
            .into_iter()
            .map(|(key, Size { bytes, used, .. })| {
                let pack = self.pack(&key).map(|(_, file)| file);
                let pack = pack.and_then(|f| HotPack::from_source(f, &Limits::default()).ok());
                let launch = self.open_record(&key);
                let profile = launch.as_ref().and_then(|launch| launch.profile().ok());
                let record = launch.map(|launch| launch.record);
                let of = record.as_ref().map_or(LearnedOf::Image, |record| record.of);
                let state = record.as_ref().map(|record| record.known.state);
                let listed = profile.as_ref().filter(|_| of != LearnedOf::Image);
                let first = profile.as_ref().filter(|_| of == LearnedOf::Image);
                LearnedPack {
                    of,
                    left_alone: match state {
                        Some(State::LeftAlone(why)) => Some(why),
                        _ => None,
                    },
                    is_learning: state == Some(State::Learning),
                    last_start: record.as_ref().and_then(|record| record.last_start),
                    place: first.and_then(|p| Some(p.roots().first()?.path.clone())),
                    command: profile
                        .as_ref()
                        .map_or(Vec::new(), |p| p.command().to_vec()),
                    runs: profile.as_ref().map(Profile::runs),
                    pages: pack.map(|pack| pack.pages()).or(listed.map(pages_of)),
                    image: record.map(|record| record.name),
                    bytes,
                    used,
                    key,
                }
            })
            .collect();
        packs.sort_by(|a, b| b.used.cmp(&a.used).then_with(|| a.key.cmp(&b.key)));
        Ok(packs)
    }

    /// The key of launches from the directory `tree`, which must be canonical. `parts` tells them apart.
    ///
    /// # Errors
    ///
    /// `Io` if the number that makes keys of this user cannot be read or written.
    pub fn key_of_directory(&self, tree: &Path, parts: &[OsString]) -> Result<String> {
        self.key(|key| {
            key.add(b"directory");
            key.add_path(Some(tree));
            parts.iter().for_each(|part| key.add(part.as_bytes()));
        })
    }

    /// The key of launches without an image or a directory. `parts` tells them apart.
    ///
    /// # Errors
    ///
    /// As [`LearnedPacks::key_of_directory`].
    pub fn key_of_launch(&self, parts: &[OsString]) -> Result<String> {
        self.key(|key| {
            key.add(b"launch");
            parts.iter().for_each(|part| key.add(part.as_bytes()));
        })
    }

    fn key(&self, add: impl FnOnce(&mut Key)) -> Result<String> {
        let mut key = Key::of_launches();
        key.add(&self.secret()?);
        add(&mut key);
        Ok(key.name())
    }

    /// A number that nobody else has, from which digests are made. The first call makes it.
    ///
    /// # Errors
    ///
    /// `Io` if it cannot be read or written.
    pub fn secret(&self) -> Result<[u8; 32]> {
        let read = || {
            let mut secret = [0; 32];
            let mut file = open_file(&self.reach(SECRET))?;
            file.read_exact(&mut secret).map(|()| secret)
        };
        let get = || match read() {
            Ok(secret) => Ok(secret),
            Err(e) => {
                // After a crash it may be too short.
                if e.kind() == io::ErrorKind::UnexpectedEof {
                    self.unlink(SECRET)?;
                }
                self.make_secret()?;
                read()
            }
        };
        get().map_err(|e| self.failed("write to", e))
    }

    fn make_secret(&self) -> io::Result<()> {
        let mut secret = [0; 32];
        File::open("/dev/urandom")?.read_exact(&mut secret)?;
        let new = format!("{TEMPORARY}{SECRET}-{}", getpid());
        self.write_new(&new, &secret)?;
        // Another process may have made one meanwhile.
        let made = match linkat(&self.fd, &new, &self.fd, SECRET, AtFlags::empty()) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(e) => Err(e.into()),
        };
        self.unlink(&new)?;
        made
    }

    /// What a start with this key of `program` does. The program is looked at to see when it was installed. `has_names`: whether
    /// the names that earlier launches had mean the same here, as in the same root directory. Records that what is known is used
    /// now.
    pub fn plan_start(&self, key: &str, program: &Path, has_names: bool) -> StartPlan {
        let launch = self.open_record(key);
        let known = launch.as_ref().map(|launch| launch.record.known);
        let installed = fs::metadata(program).and_then(|found| found.modified());
        let installed = installed.ok().map(since_1970);
        let start = Known::start(known, since_1970(SystemTime::now()), installed);
        StartPlan::of(start, launch, |launch| {
            // It can be used even if its time cannot be set.
            Self::touch(&launch.file).ok();
            has_names.then(|| launch.look()).flatten()
        })
    }

    /// The record with this [`LearnedPack::key`]. None if there is none, or if it is damaged. It does not count as used.
    pub fn open_record(&self, key: &str) -> Option<LearnedLaunch> {
        let name = format!("{key}.record");
        let file = open_file(&self.reach(&name)).ok()?;
        let mut from = From { file: &file, at: 0 };
        let record = Record::read(&mut from).ok()?;
        let at = from.at;
        Some(LearnedLaunch {
            path: self.path.join(name),
            at,
            file,
            record,
        })
    }

    /// The profile with this [`LearnedPack::key`]. None if there is none, or if it is damaged. It does not count as used.
    pub fn profile_of(&self, key: &str) -> Option<Profile> {
        self.open_record(key)?.profile().ok()
    }

    /// Notes for this key what its replay has found. Does nothing if `used` is no longer its record, because another launch has
    /// made a new one meanwhile.
    ///
    /// # Errors
    ///
    /// `Io` if its files cannot be examined, written or removed.
    pub fn after_replay(&self, key: &str, used: &Metadata, end: ReplayEnd) -> Result<()> {
        let note = || -> io::Result<()> {
            let Some(launch) = self.open_record(key) else {
                return Ok(());
            };
            let now = launch.metadata()?;
            if (now.dev(), now.ino()) != (used.dev(), used.ino()) {
                return Ok(());
            }
            let Ok(profile) = launch.profile() else {
                return self.remove(key);
            };
            let mut record = launch.record.clone();
            // With most of it in memory, a start says nothing about one from the disk.
            if let Some(reads) = end.reads.filter(|reads| reads.all() >= SMALL) {
                record.last_start = Some(reads);
            }
            let found = Found {
                are_others: end.next == NextLaunch::RecordsAnew,
                own: match end.next {
                    NextLaunch::RecordsMore { own } => own,
                    _ => 0,
                },
                bytes: pages_of(&profile).saturating_mul(PAGE),
                runs: profile.runs(),
            };
            let now = since_1970(SystemTime::now());
            record.known = record.known.after_replay(found, now);
            match record == launch.record {
                true => Ok(()),
                false => self.write(key, &record, &profile.to_text()),
            }
        };
        note().map_err(|e| self.failed("write to", e))
    }

    /// Notes what was filled from the pack of this key, and what the program asked for by itself. Does nothing if there is no
    /// pack.
    ///
    /// # Errors
    ///
    /// `Io` if it cannot be written.
    pub fn note_fill(&self, key: &str, reads: StartReads) -> Result<()> {
        let note = || -> io::Result<()> {
            if !self.reach(&format!("{key}.hot")).exists() {
                return Ok(());
            }
            let Some(launch) = self.open_record(key) else {
                return Ok(());
            };
            let mut record = launch.record.clone();
            record.last_start = Some(reads);
            let mut profile = Vec::new();
            From {
                file: &launch.file,
                at: launch.at,
            }
            .read_to_end(&mut profile)?;
            self.write(key, &record, &profile)
        };
        note().map_err(|e| self.failed("write to", e))
    }

    /// What a process keeps open while it observes a launch, so that [`LearnedPacks::wait_for_observers`] waits for it.
    ///
    /// # Errors
    ///
    /// `Io` if the directory cannot be opened or locked.
    pub fn observing(&self) -> Result<OwnedFd> {
        self.locked(FlockOperation::NonBlockingLockShared)
            .map_err(|e| self.failed("lock", e))
    }

    /// Says that what was observed is kept: nobody waits any more for who has this lock.
    pub fn has_observed(observing: &OwnedFd) {
        // If this fails, others wait a little longer.
        flock(observing, FlockOperation::Unlock).ok();
    }

    /// Waits until no launch is observed any more, but not for longer than `at_most`. Returns whether one still is, as far as
    /// is known: where nothing can be locked, nobody knows.
    pub fn wait_for_observers(&self, at_most: Duration) -> bool {
        let since = Instant::now();
        loop {
            match self.locked(FlockOperation::NonBlockingLockExclusive) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                _ => return false,
            }
            if since.elapsed() >= at_most {
                return true;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// The directory, opened anew: a lock belongs to what was opened at once.
    fn locked(&self, operation: FlockOperation) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(&self.fd, ".", flags, Mode::empty())?;
        flock(&directory, operation)?;
        Ok(directory)
    }

    /// Keeps what was observed of a launch, merged with what is known of earlier ones, unless that does not count any more.
    /// Everything that was learned may take `limit` bytes.
    ///
    /// # Errors
    ///
    /// `Io` if it cannot be written.
    pub fn keep_launch(
        &self,
        launch: &ObservedLaunch,
        observed: &Observed,
        limit: u64,
    ) -> Result<()> {
        let keep = || -> io::Result<()> {
            let before = self.open_record(&launch.key);
            let counts = before.as_ref().filter(|_| !launch.is_anew);
            let earlier = counts.and_then(|before| before.profile().ok());
            let merged =
                earlier.and_then(|earlier| Profile::merge_newer(earlier, &observed.profile).ok());
            let is_anew = merged.is_none();
            let (profile, kept) = merged.unwrap_or_else(|| (observed.profile.clone(), 0));
            let profile = profile.of_command(launch.command.clone());
            let pages = pages_of(&profile);
            let listed = pages.saturating_mul(PAGE);
            let is_whole = observed.read.is_none()
                && observed.end != ObservationEnd::Suspended
                && observed.end != ObservationEnd::Tracer;
            let read = observed.read.unwrap_or(0);
            // Too little of what is read may be known to say how long the disk takes for it.
            let time = || disk_time(&profile, launch.charge);
            let observation = Observation {
                is_anew,
                is_whole,
                pages,
                added: pages.saturating_sub(kept),
                bytes: listed.max(read),
                disk: (read <= listed).then(time).flatten(),
            };
            let known = before.as_ref().map(|before| before.record.known);
            let mut documents = counts.map_or(Vec::new(), |before| before.documents().to_vec());
            documents.extend(&observed.documents);
            let record = Record {
                of: launch.of,
                known: Known::after_look(known, observation, since_1970(SystemTime::now())),
                last_start: before.as_ref().and_then(|before| before.record.last_start),
                name: launch.name.clone(),
                sample: Some(Sample::of(&profile)),
                documents,
            };
            self.write(&launch.key, &record, &profile.to_text())?;
            self.keep_within(limit)
        };
        keep().map_err(|e| self.failed("write to", e))
    }

    /// Writes a record with this text of its profile.
    fn write(&self, key: &str, record: &Record, profile: &[u8]) -> io::Result<()> {
        let bytes = [&record.to_bytes()[..], profile].concat();
        self.put(&format!("{key}.record"), bytes)
    }

    /// Writes the record of an image, with the text of its profile from this file, which anybody may have written.
    pub fn write_of_image(&self, key: &str, image: &Path, profile: File) -> io::Result<()> {
        let before = self.open_record(key);
        let record = Record {
            of: LearnedOf::Image,
            known: Known {
                state: State::Learned,
                looks: 1,
                again: 0,
                since: since_1970(SystemTime::now()),
            },
            last_start: before.and_then(|before| before.record.last_start),
            name: image.to_owned(),
            sample: None,
            documents: Vec::new(),
        };
        let mut text = Vec::new();
        let most = Limits::of_profiles().memory;
        profile.take(most).read_to_end(&mut text)?;
        self.write(key, &record, &text)
    }

    /// How many bytes all packs may take, if the user has set that.
    ///
    /// # Errors
    ///
    /// `Io` if it cannot be read, or if the file does not have a number.
    pub fn limit(&self) -> Result<Option<u64>> {
        let text = match fs::read_to_string(self.reach(LIMIT)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(|e| self.failed("read the limit in", e))?,
        };
        text.trim_end().parse().map(Some).map_err(|_| {
            let found: String = text.chars().take(20).collect();
            let name = self.path.join(LIMIT);
            let message = format!("{found:?} is no number of bytes; remove {}", name.display());
            let error = io::Error::new(io::ErrorKind::InvalidData, message);
            self.failed("read the limit in", error)
        })
    }

    /// Sets how many bytes all packs may take from now on. With None, nobody has set that. What is too much goes at once.
    ///
    /// # Errors
    ///
    /// `Io` if it cannot be written, or if packs cannot be removed.
    pub fn set_limit(&self, limit: Option<u64>) -> Result<()> {
        let set = || match limit {
            None => self.unlink(LIMIT),
            Some(limit) => {
                self.put(LIMIT, format!("{limit}\n"))?;
                self.keep_within(limit)
            }
        };
        set().map_err(|e| self.failed("write to", e))
    }

    /// Removes the pack with this [`LearnedPack::key`].
    ///
    /// # Errors
    ///
    /// `Io` if its files cannot be removed.
    pub fn forget(&self, key: &str) -> Result<()> {
        self.remove(key)
            .map_err(|e| self.failed("remove a pack from", e))
    }

    fn failed(&self, what: &str, e: io::Error) -> Error {
        let step = format!("{what} {}", self.path.display());
        Error::new(Action::Learn, Cause::io(step, e))
    }

    /// The descriptor that it needs, for a process that keeps only some: see [`Observe::held`](crate::Observe::held).
    pub fn handle(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.fd)
    }

    /// The open directory.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The path of a file in the directory, through the descriptor, because something may be mounted over the
    /// directory's own path.
    pub fn reach(&self, name: &str) -> PathBuf {
        format!("/proc/self/fd/{}/{name}", self.fd.as_raw_fd()).into()
    }

    /// `text` with the directory's own name instead of the path by which a process reaches `directory`, which is this one
    /// or one in it.
    pub fn named(&self, text: &str, directory: BorrowedFd<'_>) -> String {
        let own = self.path.display().to_string();
        text.replace(&format!("/proc/self/fd/{}", directory.as_raw_fd()), &own)
    }

    /// The pack with this [`LearnedPack::key`], and its path. None if there is none that belongs to this user.
    pub fn pack(&self, key: &str) -> Option<(PathBuf, File)> {
        let name = format!("{key}.hot");
        let file = open_file(&self.reach(&name)).ok()?;
        let metadata = file.metadata().ok()?;
        let ours = metadata.is_file() && is_own(metadata.uid());
        ours.then(|| (self.path.join(name), file))
    }

    /// Records that the pack in `file` is used now.
    pub fn touch(file: &File) -> io::Result<()> {
        let at = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
        let times = Timestamps {
            last_access: at(UTIME_OMIT),
            last_modification: at(UTIME_NOW),
        };
        Ok(futimens(file, &times)?)
    }

    /// Removes the pack of this key, but not the profile of its launches.
    pub fn remove_pack(&self, key: &str) -> io::Result<()> {
        self.unlink(&format!("{key}.hot"))
    }

    /// Forgets what has this key.
    pub fn remove(&self, key: &str) -> io::Result<()> {
        for kind in KINDS {
            self.unlink(&format!("{key}.{kind}"))?;
        }
        Ok(())
    }

    /// Writes a small file in one step, for whoever reads it meanwhile. After a crash it may be empty.
    fn put(&self, name: &str, content: impl AsRef<[u8]>) -> io::Result<()> {
        let new = format!("{TEMPORARY}{name}-{}", getpid());
        self.write_new(&new, content.as_ref())?;
        Ok(renameat(&self.fd, &new, &self.fd, name)?)
    }

    /// Writes a file that gets its name later. On a full disk, nothing of it stays.
    fn write_new(&self, new: &str, content: &[u8]) -> io::Result<()> {
        write_private(&self.reach(new), content).or_else(|e| {
            self.unlink(new)?;
            Err(e)
        })
    }

    fn unlink(&self, name: &str) -> io::Result<()> {
        match unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// The size of each key's files. Removes abandoned files on the way.
    fn sizes(&self) -> io::Result<BTreeMap<String, Size>> {
        let mut sizes: BTreeMap<String, Size> = BTreeMap::new();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // A descriptor of its own, because reading must begin at the start of the directory.
        let directory = openat(&self.fd, ".", flags, Mode::empty())?;
        for entry in Dir::read_from(&directory)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let Ok(stat) = statat(&self.fd, &name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            let seconds = u64::try_from(stat.st_mtime).unwrap_or(0);
            let changed = Duration::new(seconds, u32::try_from(stat.st_mtime_nsec).unwrap_or(0));
            let changed = SystemTime::UNIX_EPOCH + changed;
            let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            if name.starts_with(TEMPORARY) {
                let is_abandoned = changed.elapsed().is_ok_and(|age| age > ABANDONED);
                match (is_abandoned, is_directory) {
                    (true, true) => staging::remove(self.fd(), &name)?,
                    (true, false) => self.unlink(&name)?,
                    (false, _) => {}
                }
                continue;
            }
            if is_directory {
                continue;
            }
            let Some((key, kind)) = name.rsplit_once('.').filter(|(key, _)| is_key(key)) else {
                continue;
            };
            if FORMER_KINDS.contains(&kind) {
                self.unlink(&name)?;
            }
            if !KINDS.contains(&kind) {
                continue;
            }
            let size = sizes.entry(key.to_owned()).or_insert(Size {
                bytes: 0,
                used: SystemTime::UNIX_EPOCH,
                by: KINDS.len(),
            });
            size.bytes = size
                .bytes
                .saturating_add(u64::try_from(stat.st_size).unwrap_or(0));
            // The time of the pack counts, or that of the record if there is no pack.
            let by = KINDS.iter().position(|known| *known == kind);
            if let Some(by) = by.filter(|by| *by < size.by) {
                (size.used, size.by) = (changed, by);
            }
        }
        Ok(sizes)
    }

    /// Removes packs until the others take at most `limit` bytes. First goes the one that has been unused
    /// for the longest time.
    pub fn keep_within(&self, limit: u64) -> io::Result<()> {
        let mut sizes: Vec<_> = self.sizes()?.into_iter().collect();
        sizes.sort_by_key(|(_, size)| size.used);
        let mut sum = sizes
            .iter()
            .map(|(_, size)| size.bytes)
            .fold(0, u64::saturating_add);
        for (key, size) in sizes {
            if sum <= limit {
                break;
            }
            self.remove(&key)?;
            sum = sum.saturating_sub(size.bytes);
        }
        Ok(())
    }
}

/// Writes a file that only its user can read.
fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut options = File::options();
    let options = options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path)?.write_all(content)
}

/// Whether a name is that of a [`Key`]. Nothing else in the directory is removed.
fn is_key(name: &str) -> bool {
    name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn since_1970(time: SystemTime) -> Duration {
    // In whole seconds, as records have it.
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Duration::from_secs(since.as_secs())
}

/// How long the disks take for what a profile lists. None if nobody knows.
fn disk_time(profile: &Profile, charge: DiskCharge) -> Option<Duration> {
    let replay = Replay::new(profile.clone(), &[], charge).ok()?;
    replay.disk_time()
}

/// How many pages a profile lists.
fn pages_of(profile: &Profile) -> u64 {
    let demand = profile.demand_by_root().into_iter();
    let pages = demand.map(|demand| demand.pages);
    pages.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use brisk_image::profile::{Named, ProfileBuilder, RootKind};
    use std::os::unix::fs::PermissionsExt;

    const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
    const C: &str = "cccccccccccccccccccccccccccccccc";

    fn packs() -> (tempfile::TempDir, LearnedPacks) {
        let dir = tempfile::tempdir().expect("a directory");
        let packs = LearnedPacks::open(&dir.path().join("a/hot")).expect("room");
        (dir, packs)
    }

    fn put(packs: &LearnedPacks, name: &str, bytes: usize, used: u64) {
        let path = packs.path.join(name);
        fs::write(&path, vec![0; bytes]).expect("room");
        let used = SystemTime::UNIX_EPOCH + Duration::from_secs(used);
        File::open(path)
            .expect("made")
            .set_modified(used)
            .expect("ours");
    }

    fn keys(packs: &LearnedPacks) -> Vec<String> {
        let list = packs.list().expect("a list");
        list.into_iter().map(|pack| pack.key).collect()
    }

    fn names(packs: &LearnedPacks) -> Vec<String> {
        let entries = fs::read_dir(&packs.path).expect("ours");
        let name = |entry: io::Result<fs::DirEntry>| entry.expect("read").file_name();
        let mut names: Vec<_> = entries
            .map(|entry| name(entry).to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn the_least_recently_used_go_first() {
        let (_dir, packs) = packs();
        put(&packs, &format!("{A}.hot"), 100, 30);
        // Newer, but the time of the pack counts.
        put(&packs, &format!("{A}.record"), 10, 90);
        put(&packs, &format!("{B}.hot"), 100, 10);
        put(&packs, &format!("{C}.record"), 100, 20);
        put(&packs, "other.record", 1000, 1);
        packs.keep_within(310).expect("ours");
        assert_eq!(keys(&packs), [A, C, B]);
        packs.keep_within(309).expect("ours");
        assert_eq!(keys(&packs), [A, C]);
        packs.keep_within(109).expect("ours");
        assert_eq!(names(&packs), ["other.record"]);
    }

    #[test]
    fn what_nobody_finishes_and_what_earlier_versions_kept_is_removed() {
        let (_dir, packs) = packs();
        put(&packs, ".brisk-old", 100, 30);
        fs::write(packs.path.join(".brisk-new"), "").expect("room");
        for kind in FORMER_KINDS {
            put(&packs, &format!("{A}.{kind}"), 1, 1);
            // Whatever that is, it is not brisk's.
            put(&packs, &format!("mine.{kind}"), 1, 1);
        }
        assert_eq!(keys(&packs), [] as [&str; 0]);
        let kept = FORMER_KINDS.map(|kind| format!("mine.{kind}"));
        let expected: Vec<_> = std::iter::once(".brisk-new".to_owned())
            .chain(kept)
            .collect();
        assert_eq!(names(&packs), expected);
    }

    #[test]
    fn a_pack_that_is_no_file_is_none() {
        let (_dir, packs) = packs();
        fs::create_dir(packs.path.join(format!("{A}.hot"))).expect("room");
        assert!(packs.pack(A).is_none());
        put(&packs, &format!("{B}.hot"), 1, 1);
        assert!(packs.pack(B).is_some());
    }

    #[test]
    fn keys_are_of_one_user_and_tell_launches_apart() {
        let ((_one, first), (_two, second)) = (packs(), packs());
        let parts = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let key = |packs: &LearnedPacks, words: &[&str]| {
            let key = packs.key_of_launch(&parts(words)).expect("room");
            assert!(is_key(&key), "{key}");
            key
        };
        let known = key(&first, &["/bin/sh", "-c"]);
        assert_eq!(known, key(&first, &["/bin/sh", "-c"]));
        assert_ne!(known, key(&first, &["/bin/sh", "-", "c"]));
        assert_ne!(known, key(&second, &["/bin/sh", "-c"]));
        let of_tree = first.key_of_directory(Path::new("/t"), &parts(&["/bin/sh", "-c"]));
        assert_ne!(known, of_tree.expect("room"));
        let mode = fs::metadata(first.path.join(SECRET)).expect("made").mode();
        assert_eq!(mode & 0o077, 0, "{mode:o}");
        // After a crash.
        fs::write(first.path.join(SECRET), "short").expect("ours");
        let anew = key(&first, &["/bin/sh", "-c"]);
        assert_ne!(known, anew);
        assert_eq!(names(&first), [SECRET]);
    }

    /// An observed launch that read all of these files of `/app`.
    fn observed(files: &[(&str, u64)]) -> Observed {
        let builder = ProfileBuilder::new();
        let root = builder.add_root("/app", RootKind::Directory);
        for (number, (_, len)) in (0..).zip(files) {
            builder.range(root, number, 0, *len, Duration::ZERO);
        }
        let name = |_, number| {
            let (name, len) = files[usize::try_from(number).expect("few")];
            Some(Named::new(name, len))
        };
        let built = builder.finish(Vec::new(), None, name).expect("a profile");
        Observed {
            profile: built.profile,
            end: ObservationEnd::Ended,
            read: Some(0),
            documents: Vec::new(),
        }
    }

    fn launch(is_anew: bool) -> ObservedLaunch {
        ObservedLaunch {
            key: A.to_owned(),
            of: LearnedOf::Program,
            name: "/usr/bin/app".into(),
            command: vec!["/usr/bin/app".into()],
            is_anew,
            charge: DiskCharge::default(),
        }
    }

    fn keep(packs: &LearnedPacks, is_anew: bool, observed: &Observed) {
        packs
            .keep_launch(&launch(is_anew), observed, 1 << 20)
            .expect("room");
    }

    fn plan_of(packs: &LearnedPacks) -> StartPlan {
        packs.plan_start(A, Path::new("/none"), false)
    }

    #[test]
    fn what_is_observed_adds_to_what_is_known() {
        let (_dir, packs) = packs();
        assert!(matches!(plan_of(&packs), StartPlan::Observe));
        let large = ("0", SMALL * 4);
        keep(&packs, true, &observed(&[large]));
        let StartPlan::ReplayAndObserve(known, _) = plan_of(&packs) else {
            panic!("one look is not enough");
        };
        assert_eq!(known.profile().expect("whole").files().len(), 1);
        keep(&packs, false, &observed(&[large, ("1", PAGE)]));
        let StartPlan::Replay(known, _) = plan_of(&packs) else {
            panic!("nothing more comes");
        };
        let profile = known.profile().expect("whole");
        assert_eq!((profile.files().len(), profile.runs()), (2, 2));
        assert_eq!(profile.command(), ["/usr/bin/app"]);
        // What is learned is the user's own affair.
        let mode = known.metadata().expect("open").mode();
        assert_eq!(mode & 0o077, 0, "{mode:o}");
        // What is begun anew forgets the rest.
        keep(&packs, true, &observed(&[("2", SMALL)]));
        let profile = packs.profile_of(A).expect("whole");
        assert_eq!((profile.files().len(), profile.runs()), (1, 1));
        packs.forget(A).expect("ours");
        assert_eq!(names(&packs), [] as [&str; 0]);
    }

    #[test]
    fn documents_are_known_by_digests_to_the_next_launch() {
        let (_dir, packs) = packs();
        let met = |documents: &[u64]| Observed {
            documents: documents.to_vec(),
            ..observed(&[("0", SMALL)])
        };
        keep(&packs, true, &met(&[1, 2]));
        keep(&packs, false, &met(&[3]));
        let known = packs.open_record(A).expect("kept");
        assert_eq!(known.documents(), [1, 2, 3]);
    }

    fn end(next: NextLaunch, reads: Option<(u64, u64)>) -> ReplayEnd {
        let reads = reads.map(|(ahead, own)| StartReads { ahead, own });
        ReplayEnd { next, reads }
    }

    #[test]
    fn a_replay_notes_what_it_found_in_the_record_that_it_used() {
        let (_dir, packs) = packs();
        let large = observed(&[("0", SMALL * 4)]);
        keep(&packs, true, &large);
        keep(&packs, false, &large);
        let used = || {
            packs
                .open_record(A)
                .expect("kept")
                .metadata()
                .expect("open")
        };
        let first = used();
        let note = |used: &Metadata, next, reads| {
            packs.after_replay(A, used, end(next, reads)).expect("ours");
            let list = packs.list().expect("a list");
            list.first().and_then(|pack| pack.last_start)
        };
        let start = |ahead, own| Some(StartReads { ahead, own });
        // Nearly everything was in memory.
        let warm = Some((SMALL - 2, 1));
        assert_eq!(note(&first, NextLaunch::Replays, warm), None);
        let cold = Some((SMALL - 1, 1));
        assert_eq!(note(&first, NextLaunch::Replays, cold), start(SMALL - 1, 1));
        // Another launch has written a record meanwhile.
        let more = NextLaunch::RecordsMore { own: 1 << 30 };
        assert_eq!(note(&first, more, Some((7, SMALL))), start(SMALL - 1, 1));
        assert!(matches!(plan_of(&packs), StartPlan::Replay(..)));
        assert_eq!(note(&used(), more, Some((7, SMALL))), start(7, SMALL));
        assert!(matches!(plan_of(&packs), StartPlan::ReplayAndObserve(..)));
        // What cannot be read goes.
        let path = packs.path.join(format!("{A}.record"));
        let bytes = fs::read(&path).expect("kept");
        fs::write(&path, &bytes[..bytes.len() - 9]).expect("ours");
        packs
            .after_replay(A, &used(), end(NextLaunch::RecordsAnew, None))
            .expect("ours");
        assert_eq!(names(&packs), [] as [&str; 0]);
        packs
            .after_replay(A, &first, end(NextLaunch::RecordsAnew, None))
            .expect("nothing to do");
    }

    #[test]
    fn a_program_that_was_installed_since_is_learned_anew() {
        let (dir, packs) = packs();
        let program = dir.path().join("app");
        fs::write(&program, "").expect("room");
        let file = File::options().write(true).open(&program).expect("ours");
        let installed = |at| file.set_modified(at).expect("ours");
        installed(SystemTime::now() - Duration::from_secs(5));
        keep(&packs, true, &observed(&[("0", 1)]));
        let found = packs.plan_start(A, &program, false);
        assert!(
            matches!(found, StartPlan::LeaveAlone(LeftAlone::Small)),
            "{found:?}"
        );
        installed(SystemTime::now() + Duration::from_secs(5));
        let found = packs.plan_start(A, &program, false);
        assert!(matches!(found, StartPlan::Observe), "{found:?}");
    }

    #[test]
    fn a_program_that_the_disk_gives_in_a_short_time_is_left_alone() {
        let (_dir, packs) = packs();
        // A profile of what is not there takes no time, so its root has to be.
        let builder = ProfileBuilder::new();
        let id = builder.add_root(&packs.path, RootKind::Directory);
        builder.range(id, 0, 0, 4 * SMALL, Duration::ZERO);
        let built = builder.finish(Vec::new(), None, |_, _| Some(Named::new("app", 4 * SMALL)));
        let profile = built.expect("a profile").profile;
        let left_alone = |milliseconds: u64, read| {
            let number = std::num::NonZeroU64::new;
            let charge = DiskCharge {
                bytes_per_second: number(4 * SMALL * 1000 / milliseconds),
                operations_per_second: number(u64::MAX),
            };
            let launch = ObservedLaunch {
                charge,
                ..launch(true)
            };
            let observed = Observed {
                profile: profile.clone(),
                read: Some(read),
                ..observed(&[])
            };
            // The second adds nothing.
            let second = ObservedLaunch {
                is_anew: false,
                ..launch.clone()
            };
            for launch in [launch, second] {
                let kept = packs.keep_launch(&launch, &observed, 1 << 20);
                kept.expect("room");
            }
            packs.list().expect("a list")[0].left_alone
        };
        assert_eq!(left_alone(14, 0), Some(LeftAlone::Short));
        assert_eq!(left_alone(16, 0), None);
        // More was read than is known.
        assert_eq!(left_alone(14, 4 * SMALL + 1), None);
    }

    #[test]
    fn a_directory_of_others_is_refused() {
        let (dir, packs) = packs();
        fs::set_permissions(&packs.path, fs::Permissions::from_mode(0o755)).expect("ours");
        let refused = LearnedPacks::open(&dir.path().join("a/hot")).expect_err("refused");
        assert_eq!(
            refused.to_string(),
            format!(
                "cannot keep learned hot packs: {} can be entered by others, allowed is a directory \
                 of yours with mode 0700; move it away",
                packs.path.display()
            )
        );
    }
}
