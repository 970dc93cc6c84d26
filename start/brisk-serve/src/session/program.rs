//! A program to start from images, and what it is to see.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use brisk_launch::Learning;
use brisk_launch::program::Variable;

use super::open_image::SessionImage;

/// How long a session stays after its last program has ended, if the caller does not say it.
const LINGER: Duration = Duration::from_secs(300);

/// A program to start from images, in a session.
///
/// The first run of an image makes the session: a mount namespace with a FUSE mount of the image, and three
/// processes that are nobody's children. The *guardian* holds the connection to the kernel and lets later
/// runs join. The *server* answers the kernel, and is replaced if it dies. The *watchdog* aborts the
/// connection if both die. Later runs join the namespace, and find in memory what the kernel has of the
/// image. In each run, the program takes the place of the calling process.
///
/// For an ordinary user, `fusermount3` mounts the image, and all programs of the user see it. A session that needs a place of
/// its own for the image, or shows more to its program, makes a user namespace instead: see [`Session::seen_by`]. Root needs
/// neither.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Session {
    /// The image to start the program from.
    pub image: SessionImage,
    /// More images, each with its own place.
    pub with: Vec<SessionImage>,
    /// Makes the image the program's root directory. The program also sees the system's `/proc`, `/sys`,
    /// `/dev`, `/run`, `/tmp`, `/home` and `/root`, and the files of `/etc` about users, network and time
    /// zone. [`SessionImage::at`] of `image` is ignored, and the other places are in the root.
    pub root: bool,
    /// Files and directories that the program also sees elsewhere.
    pub binds: Vec<Bind>,
    /// Lets the program write to the image's place. What it writes stays in memory, and is lost with the
    /// session, unless there is a [`Session::layer`].
    pub writable: bool,
    /// The directory that keeps what is written to the image's place, for later sessions. It is made if it does not exist.
    /// One session at a time uses it. Without [`Session::writable`] it is ignored.
    pub layer: Option<PathBuf>,
    /// How long the session stays after its last program has ended. The value of the latest run counts. Default:
    /// 5 minutes.
    pub linger: Duration,
    /// Who sees the image. `None` lets brisk choose: all programs of the user, unless the session needs a namespace, as root
    /// does not, or `fusermount3` cannot mount.
    pub seen_by: Option<SeenBy>,
    /// Fills from hot packs, if this run makes the session. A run that joins finds what is in memory.
    pub fill: Option<SessionFill>,
    /// The program and its arguments. An absolute path is taken as it is, a name with a slash is a path in
    /// the image (`bin/app`), and a bare name is looked up in `PATH`.
    pub command: Vec<OsString>,
    /// The directory that the program starts in, from the root of the image. `None` is the present one.
    pub directory: Option<PathBuf>,
    /// What is set in the environment of the program.
    pub variables: Vec<Variable>,
}

/// What a new session stores in the page cache before its programs ask for it: the pages of the images' hot
/// packs.
///
/// The pack of an image is the first usable one of these: `IMAGE.hot` beside it, the pack behind it, and a
/// learned one. A pack is not usable if it is damaged or belongs to another image. Anybody may have written the file
/// beside an image. So the session reads its pages from the image, and compares the pack with the image when the launch
/// is over. Later sessions of the user then use the pack itself. An image without a pack is served like any other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionFill {
    /// The pack of the session's first image, instead of those beside it and behind it.
    pub hot: Option<PathBuf>,
    /// Whether only the list of pages of that pack is used: its frames are not there, or nobody vouches for them.
    pub hot_is_list: bool,
    /// The most bytes to store for each image. Half of the free memory is always a limit.
    pub budget: Option<u64>,
    /// Threads that decode and store for each image, instead of [`Fill::threads`](crate::Fill::threads).
    pub threads: Option<NonZeroUsize>,
    /// A file to write a log to, about the session's first image: what was stored and asked for, and when. It
    /// is complete when the session has ended, and [`PageEvent::list`](brisk_launch::PageEvent::list) reads it.
    pub log: Option<PathBuf>,
    /// Learns a pack for each image that has no usable one, and makes a learned pack again when a launch asks
    /// for much that it lacks.
    pub learning: Option<Learning>,
}

/// Who sees the image that a program is started from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeenBy {
    /// Only the program and what it starts, in a mount namespace. Without root also in a user namespace, which has one user:
    /// root's files belong to nobody there, and setuid programs get no rights.
    Program,
    /// All programs of the user: `fusermount3` mounts it, and the program stays in the user's own world.
    User,
}

/// A file or directory of the system that a [`Session`] shows at another place.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bind {
    /// The file or directory.
    pub source: PathBuf,
    /// The path where it is shown. It must exist, except in a root directory or in a writable place.
    pub target: PathBuf,
    /// Whether it is read-only there.
    pub read_only: bool,
}

impl Bind {
    /// Shows `source` at `target`, where the program can write to it if the user can.
    pub fn new(source: impl Into<PathBuf>, target: impl Into<PathBuf>) -> Self {
        Self {
            source: source.into(),
            target: target.into(),
            read_only: false,
        }
    }
}

impl Session {
    /// A program from one image, without a fill.
    pub fn new(image: SessionImage, command: Vec<OsString>) -> Self {
        Self {
            image,
            with: Vec::new(),
            root: false,
            binds: Vec::new(),
            writable: false,
            layer: None,
            linger: LINGER,
            seen_by: None,
            fill: None,
            command,
            directory: None,
            variables: Vec::new(),
        }
    }
}
