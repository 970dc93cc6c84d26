//! Which files are inputs of a launch, and which of them may be named.
//!
//! An input is a file that was there before the launch, and that the launch does not change. What a program makes itself, such
//! as temporary files and its output, is other at each start.
//!
//! A name can say much about its user: that of a letter, of a patient, of a project. So a document is named only when a second
//! launch reads it, too. Until then, there is a keyed digest of its path. Documents are what lies in the directories that the
//! user has for them (`user-dirs.dirs` of xdg-user-dirs), and what an argument of the program names.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::hash::{DefaultHasher, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf, absolute};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{env, str};

use rustix::time::{ClockId, clock_gettime};

/// The directories of xdg-user-dirs, in the home directory, of a user who has chosen no others.
const USUAL: [&str; 8] = [
    "Desktop",
    "Documents",
    "Downloads",
    "Music",
    "Pictures",
    "Public",
    "Templates",
    "Videos",
];

/// The longest `user-dirs.dirs` that is read.
const LONGEST: u64 = 64 << 10;

/// How many digests of documents are kept at most.
const MOST: usize = 1 << 12;

/// What tells inputs from other files.
#[derive(Debug)]
pub(super) struct Inputs {
    /// When the launch began, as the system's files have it.
    began: SystemTime,
    documents: Vec<PathBuf>,
    /// What arguments name.
    named: Vec<PathBuf>,
    /// A number that nobody else has.
    secret: [u8; 32],
    /// Digests of documents that an earlier launch has read.
    earlier: HashSet<u64>,
    /// Of those that this launch reads, and no earlier one.
    met: HashSet<u64>,
}

impl Inputs {
    /// Of a launch that begins now, with these arguments that name data. `earlier`: what [`Inputs::met`] has given before.
    pub(super) fn new(arguments: &[OsString], secret: [u8; 32], earlier: &[u64]) -> Self {
        let named: Vec<_> = arguments.iter().flat_map(|a| named_by(a)).collect();
        let documents = user_directories().into_iter();
        Self {
            began: coarse_now(),
            documents: documents.chain(named.iter().cloned()).collect(),
            named,
            secret,
            earlier: earlier.iter().copied().collect(),
            met: HashSet::new(),
        }
    }

    /// Of a launch without arguments that begins later than anything that the test does.
    #[cfg(test)]
    pub(super) fn of_test() -> Self {
        Self {
            began: SystemTime::now() + Duration::from_secs(3600),
            ..Self::new(&[], [0; 32], &[])
        }
    }

    /// The directories of files that arguments name, and those above them: a script in `bin` reads others in `lib`.
    pub(super) fn named_directories(&self) -> impl Iterator<Item = PathBuf> {
        let above = self
            .named
            .iter()
            .flat_map(|path| path.ancestors().skip(1).take(2));
        above.map(Path::to_owned)
    }

    /// Whether a file was there before the launch, and has not changed since.
    pub(super) fn has(&self, found: &Metadata) -> bool {
        let before = |time: std::io::Result<SystemTime>| time.is_ok_and(|time| time < self.began);
        // Some filesystems do not know when a file was made.
        let is_old = found.created().map_or(true, |made| made < self.began);
        is_old && before(found.modified())
    }

    /// Whether the name of this file or directory may be kept.
    pub(super) fn may_name(&mut self, path: &Path) -> bool {
        if !self.documents.iter().any(|known| path.starts_with(known)) {
            return true;
        }
        let mut hasher = DefaultHasher::new();
        hasher.write(&self.secret);
        hasher.write(path.as_os_str().as_bytes());
        let digest = hasher.finish();
        if self.earlier.contains(&digest) {
            return true;
        }
        if self.met.len() < MOST {
            self.met.insert(digest);
        }
        false
    }

    /// Digests of the documents that no earlier launch has read.
    pub(super) fn met(&self) -> Vec<u64> {
        let mut met: Vec<_> = self.met.iter().copied().collect();
        met.sort_unstable();
        met
    }
}

/// The time that the kernel gives to files that are written now. It is some milliseconds behind that of clocks.
fn coarse_now() -> SystemTime {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    UNIX_EPOCH + Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// The files that an argument may name: as a whole, or behind `=`.
fn named_by(argument: &OsStr) -> impl Iterator<Item = PathBuf> {
    let bytes = argument.as_bytes();
    let behind = bytes.iter().position(|byte| *byte == b'=');
    let behind = behind.and_then(|at| bytes.get(at + 1..));
    let names = [Some(bytes), behind].into_iter().flatten();
    let names = names.filter(|name| !name.is_empty());
    names.flat_map(|name| {
        let path = absolute(OsStr::from_bytes(name)).ok();
        let path = path.filter(|path| path.symlink_metadata().is_ok_and(|found| !found.is_dir()));
        let real = path.as_ref().and_then(|path| path.canonicalize().ok());
        path.into_iter().chain(real)
    })
}

/// The directories that the user has for documents.
fn user_directories() -> Vec<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from);
    let Some(home) = absolute("HOME").filter(|home| home.is_absolute()) else {
        return Vec::new();
    };
    let settings = absolute("XDG_CONFIG_HOME").filter(|path| path.is_absolute());
    let settings = settings.unwrap_or_else(|| home.join(".config"));
    let file = settings.join("user-dirs.dirs");
    let is_short = |found: Metadata| found.is_file() && found.len() <= LONGEST;
    let text = match fs::metadata(&file).is_ok_and(is_short) {
        true => fs::read(&file).unwrap_or_default(),
        false => Vec::new(),
    };
    chosen_directories(&text, &home)
}

/// The directories that `user-dirs.dirs` names, and else the usual ones. The home directory itself stands for none.
fn chosen_directories(text: &[u8], home: &Path) -> Vec<PathBuf> {
    let mut directories: Vec<_> = USUAL.iter().map(|name| home.join(name)).collect();
    for line in text.split(|byte| *byte == b'\n') {
        let Some(value) = str::from_utf8(line).ok().and_then(|line| {
            let (name, value) = line.trim().strip_prefix("XDG_")?.split_once("_DIR=")?;
            let is_name = name.bytes().all(|byte| byte.is_ascii_uppercase());
            is_name.then(|| value.trim_matches('"'))
        }) else {
            continue;
        };
        let directory = match value.strip_prefix("$HOME/") {
            Some(inside) => home.join(inside),
            None => PathBuf::from(value),
        };
        if directory.is_absolute() && !home.starts_with(&directory) {
            directories.push(directory);
        }
    }
    directories
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_launch_makes_or_changes_is_no_input() {
        let home = tempfile::tempdir().expect("room");
        let path = |name: &str| home.path().join(name);
        let old = SystemTime::now() - Duration::from_secs(60);
        for name in ["old", "changed"] {
            fs::write(path(name), name).expect("room");
        }
        std::thread::sleep(Duration::from_millis(20));
        let inputs = Inputs::new(&[], [0; 32], &[]);
        fs::write(path("changed"), "again").expect("room");
        fs::write(path("made"), "made").expect("room");
        // As `cp -p` does: only the time of its making tells.
        let made = fs::File::options().write(true).open(path("made"));
        made.expect("ours").set_modified(old).expect("ours");
        let has = |name: &str| inputs.has(&fs::metadata(path(name)).expect("there"));
        assert_eq!(
            (has("old"), has("changed"), has("made")),
            (true, false, false)
        );
    }

    #[test]
    fn a_document_is_named_when_a_second_launch_reads_it() {
        let home = tempfile::tempdir().expect("room");
        let letter = home.path().join("letter");
        fs::write(&letter, "").expect("room");
        let arguments = |name: &Path| [OsString::from(format!("--in={}", name.display()))];
        let mut first = Inputs::new(&arguments(&letter), [1; 32], &[]);
        assert!(!first.may_name(&letter));
        assert!(first.may_name(&home.path().join("other")));
        let met = first.met();
        assert_eq!(met.len(), 1);
        let mut second = Inputs::new(&arguments(&letter), [1; 32], &met);
        assert!(second.may_name(&letter));
        assert_eq!(second.met(), [] as [u64; 0]);
        // Nobody can tell without the number of the user which document it is.
        let mut other = Inputs::new(&arguments(&letter), [2; 32], &met);
        assert!(!other.may_name(&letter));
    }

    #[test]
    fn documents_are_where_the_user_has_them() {
        let home = Path::new("/home/a");
        let usual = USUAL.map(|name| home.join(name));
        assert_eq!(chosen_directories(b"", home), usual);
        let text = b"# chosen\nXDG_DOCUMENTS_DIR=\"$HOME/papers\"\nXDG_MUSIC_DIR=\"/music\"\n\
            XDG_DESKTOP_DIR=\"$HOME/\"\nXDG_X_DIR=\"relative\"\nXDG_VIDEOS_DIR=\"/home\"\n\xff\n";
        let expected: Vec<_> = usual
            .into_iter()
            .chain([home.join("papers"), "/music".into()])
            .collect();
        assert_eq!(chosen_directories(text, home), expected);
    }
}
