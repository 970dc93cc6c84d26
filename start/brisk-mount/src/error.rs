use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::interpreter::Interpreter;

/// Why a mount, an unmount or a launch failed.
///
/// [`Error::kind`] says what a caller can do about it. The text says what was tried, why it failed and what
/// to do. The system's own error, if there is one, is in [`source`](std::error::Error::source) and not in the
/// text.
pub struct Error(Box<Repr>);

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a caller can do about an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The system failed for a reason of its own. Trying again may help.
    Io,
    /// The process lacks a right. Run it as root.
    NotPermitted,
    /// The kernel, the system or this program lacks a feature. Add it, or do without it. The text says how.
    Unsupported,
    /// The image cannot be mounted. Repair, pad or replace it.
    Image,
    /// The directory to mount on or to unmount cannot be used. Name another.
    Place,
    /// Something else uses the device or the mount. End it first.
    Busy,
    /// The process was in a wrong state for the call. This is a mistake of the calling program.
    State,
    /// The program to start does not exist.
    CommandNotFound,
    /// The program to start exists but cannot be executed.
    CommandNotExecutable,
}

impl ErrorKind {
    const ALL: [Self; 9] = [
        Self::Io,
        Self::NotPermitted,
        Self::Unsupported,
        Self::Image,
        Self::Place,
        Self::Busy,
        Self::State,
        Self::CommandNotFound,
        Self::CommandNotExecutable,
    ];

    /// See [`Error::exit_code`].
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Self::CommandNotFound => 127,
            Self::CommandNotExecutable => 126,
            _ => 125,
        }
    }

    /// A number for another process of this program.
    pub(crate) fn to_wire(self) -> u8 {
        Self::ALL
            .iter()
            .zip(0..)
            .find_map(|(kind, number)| (*kind == self).then_some(number))
            .unwrap_or(0)
    }

    /// None if no kind has this number.
    pub(crate) fn from_wire(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// What was tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Attach,
    Mount,
    Unmount,
    Isolate,
    Root,
    Run,
    Probe,
    Serve,
    Look,
    Wait,
    End,
    Fill,
    Trace,
    Learn,
    TraceSystem,
    Observe,
    Replay,
    Measure,
}

impl Action {
    fn phrase(self) -> &'static str {
        match self {
            Self::Attach => "attach a loop device",
            Self::Mount => "mount",
            Self::Unmount => "unmount",
            Self::Isolate => "enter a mount namespace",
            Self::Root => "make a root directory of",
            Self::Run => "run",
            Self::Probe => "find the read-ahead of",
            Self::Serve => "serve a FUSE file system",
            Self::Look => "look for sessions",
            Self::Wait => "wait for a window",
            Self::End => "end the session",
            Self::Fill => "fill from the hot pack of",
            Self::Trace => "trace a launch from",
            Self::Learn => "keep learned hot packs",
            Self::TraceSystem => "trace a launch from the whole system",
            Self::Observe => "observe a launch",
            Self::Replay => "replay",
            Self::Measure => "measure disks",
        }
    }
}

struct Repr {
    action: Action,
    path: Option<PathBuf>,
    cause: Cause,
}

#[derive(Debug)]
pub(crate) enum Cause {
    /// An error of the system, its `source`, during `step` (a verb phrase: "open the image").
    Io {
        step: String,
        source: io::Error,
    },
    NotPermitted,
    NoLoopDevices,
    NoLoopNode {
        device: PathBuf,
    },
    LoopContended {
        tries: u32,
    },
    NoSquashfs,
    NoCodec {
        codec: String,
        instead: &'static str,
    },
    NotSquashfs {
        found: u32,
    },
    Truncated {
        need: u64,
        have: u64,
    },
    Unpadded {
        len: u64,
        block: u32,
    },
    NotAFile,
    /// The processes that serve the files of the program have ended.
    NobodyServes {
        source: io::Error,
    },
    KernelRefused {
        said: String,
        source: io::Error,
    },
    DeviceBusy,
    TargetMissing {
        target: PathBuf,
    },
    TargetNotDirectory {
        target: PathBuf,
    },
    /// The place of an image does not exist, and cannot be made in a namespace either.
    PlaceNotMade {
        place: PathBuf,
        why: String,
        source: Option<io::Error>,
    },
    NotMounted,
    NothingThere,
    OtherFilesystem {
        found: String,
    },
    MountBusy,
    /// There is no `fusermount3`.
    NoFusermount,
    FusermountRefused {
        said: String,
    },
    /// There is neither a user namespace nor `fusermount3`.
    NeitherWay {
        source: io::Error,
    },
    /// Without a namespace all programs see an image, so it cannot be mounted at several places.
    SharedElsewhere {
        option: &'static str,
    },
    /// The caller wants all programs of the user to see the image.
    OnlyInNamespaces {
        option: &'static str,
    },
    SharedAlready {
        place: PathBuf,
    },
    /// In the words of the guardian.
    Unmountable {
        said: String,
    },
    Threads {
        count: usize,
    },
    RootNotMountPoint,
    NoDefaultPlace {
        place: PathBuf,
        why: &'static str,
    },
    WorkingDirectory {
        cwd: PathBuf,
        source: io::Error,
    },
    /// The directory that a program should start in.
    StartDirectory {
        directory: PathBuf,
        source: io::Error,
    },
    /// A connection without a channel.
    NoChannel,
    FuseVersion {
        major: u32,
        minor: u32,
    },
    NoFuse,
    /// Another device stands at `/dev/fuse`.
    NotFuse,
    FuseClosed {
        source: io::Error,
    },
    NoUserNamespaces {
        source: io::Error,
    },
    MountRefused {
        source: io::Error,
    },
    NoOverlay {
        source: io::Error,
    },
    /// What is written cannot be kept in this directory.
    NoLastingLayer {
        directory: PathBuf,
        source: io::Error,
    },
    LayerRefused {
        directory: PathBuf,
        why: String,
    },
    /// A session of this image has it.
    LayerInUse {
        directory: PathBuf,
        image: PathBuf,
    },
    NoPlace {
        image: PathBuf,
    },
    PlacesOverlap {
        one: PathBuf,
        other: PathBuf,
    },
    BindSource {
        source_path: PathBuf,
        source: io::Error,
    },
    BindTarget {
        target: PathBuf,
        source: io::Error,
    },
    OpenToOthers {
        directory: PathBuf,
        found: &'static str,
    },
    /// Its own message.
    GuardianFailed {
        said: String,
    },
    SessionLost {
        tries: u32,
    },
    /// The reason is in `source`.
    HotPack {
        source: brisk_image::Error,
    },
    HotPackOfAnother,
    HotPackDiffers {
        frames: u64,
    },
    /// The files of a session cannot be made.
    NoRoomForSession {
        source: io::Error,
    },
    HotPackLarge {
        pages: u64,
        allowed: u64,
    },
    /// The environment names no directory for what is learned.
    NoCacheDirectory,
    /// Root would leave files there that their owner could not remove.
    CacheOfAnother {
        directory: PathBuf,
        owner: u32,
    },
    /// A directory that should stand for a root of a profile. The reason is in `source`.
    ReplayPlace {
        source: brisk_image::Error,
    },
    NoSession,
    SessionBusy {
        programs: Vec<String>,
    },
    NothingToTrace,
    NoTracing {
        source: io::Error,
    },
    TracedRoot,
    /// The system's root directory, in place of another directory.
    RootOfSystem,
    /// What the kernel lacks: a noun, and where it comes from.
    TracingLacks {
        what: String,
    },
    /// The kernel's events have the process numbers of the outermost namespace, not of this one.
    TracedInContainer,
    TracedAlready,
    /// It is impossible to wait for a window. The message depends on how this crate was built.
    NoWindow {
        kind: ErrorKind,
        text: String,
        source: Option<io::Error>,
    },
    /// The recording process reported nothing, or something unreadable.
    TracerLost,
    /// A complete error message, from the recording process.
    Told {
        kind: ErrorKind,
        text: String,
    },
    NoCommand,
    CommandMissing,
    /// Neither the directory that was named nor the working directory has it.
    CommandInNeither,
    CommandNotInPath {
        /// What the program could be in, with a path.
        tree: Option<&'static str>,
    },
    CommandNotExecutable {
        why: &'static str,
    },
    /// The program that should run it does not exist.
    NoInterpreter {
        missing: Interpreter,
    },
}

impl Cause {
    pub(crate) fn io(step: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Io {
            step: step.into(),
            source: source.into(),
        }
    }

    fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { .. } | Self::NoRoomForSession { .. } | Self::NobodyServes { .. } => {
                ErrorKind::Io
            }
            Self::NotPermitted | Self::FusermountRefused { .. } => ErrorKind::NotPermitted,
            Self::NoLoopDevices
            | Self::NoLoopNode { .. }
            | Self::NoSquashfs
            | Self::NoCodec { .. }
            | Self::FuseVersion { .. }
            | Self::RootNotMountPoint
            | Self::NoFuse
            | Self::NoTracing { .. }
            | Self::NotFuse
            | Self::FuseClosed { .. }
            | Self::NoUserNamespaces { .. }
            | Self::NoFusermount
            | Self::NeitherWay { .. }
            | Self::SharedElsewhere { .. }
            | Self::OnlyInNamespaces { .. }
            | Self::NoOverlay { .. }
            | Self::NoLastingLayer { .. }
            | Self::LayerRefused { .. }
            | Self::TracingLacks { .. }
            | Self::TracedInContainer
            | Self::MountRefused { .. } => ErrorKind::Unsupported,
            Self::NotSquashfs { .. }
            | Self::Truncated { .. }
            | Self::Unpadded { .. }
            | Self::HotPack { .. }
            | Self::HotPackOfAnother
            | Self::HotPackDiffers { .. }
            | Self::HotPackLarge { .. }
            | Self::NotAFile
            | Self::KernelRefused { .. } => ErrorKind::Image,
            Self::LoopContended { .. }
            | Self::DeviceBusy
            | Self::TracedAlready
            | Self::MountBusy
            | Self::SessionLost { .. }
            | Self::SharedAlready { .. }
            | Self::LayerInUse { .. }
            | Self::Unmountable { .. }
            | Self::SessionBusy { .. } => ErrorKind::Busy,
            Self::TargetMissing { .. }
            | Self::TargetNotDirectory { .. }
            | Self::PlaceNotMade { .. }
            | Self::NotMounted
            | Self::NothingThere
            | Self::OtherFilesystem { .. }
            | Self::NoDefaultPlace { .. }
            | Self::OpenToOthers { .. }
            | Self::NoCacheDirectory
            | Self::CacheOfAnother { .. }
            | Self::NoSession
            | Self::ReplayPlace { .. }
            | Self::TracedRoot
            | Self::RootOfSystem
            | Self::NoPlace { .. }
            | Self::PlacesOverlap { .. }
            | Self::BindSource { .. }
            | Self::BindTarget { .. }
            | Self::StartDirectory { .. }
            | Self::WorkingDirectory { .. } => ErrorKind::Place,
            Self::Threads { .. } | Self::NoChannel | Self::NoCommand | Self::NothingToTrace => {
                ErrorKind::State
            }
            Self::TracerLost | Self::GuardianFailed { .. } => ErrorKind::Io,
            Self::Told { kind, .. } | Self::NoWindow { kind, .. } => *kind,
            Self::CommandMissing | Self::CommandInNeither | Self::CommandNotInPath { .. } => {
                ErrorKind::CommandNotFound
            }
            Self::CommandNotExecutable { .. } | Self::NoInterpreter { .. } => {
                ErrorKind::CommandNotExecutable
            }
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { step, .. } => write!(f, "the system could not {step}"),
            Self::NotPermitted => f.write_str(
                "this needs root (CAP_SYS_ADMIN); run it as root, for example with sudo",
            ),
            Self::NoLoopDevices => f.write_str(
                "there is no /dev/loop-control; load loop devices with modprobe loop, \
                 or give a container the host's /dev",
            ),
            Self::NoLoopNode { device } => write!(
                f,
                "the kernel offers {} but there is no such device node; \
                 give a container the host's /dev",
                Shown(device)
            ),
            Self::LoopContended { tries } => write!(
                f,
                "other processes took {tries} free loop devices first; try again"
            ),
            Self::NoSquashfs => f.write_str(
                "the kernel has no SquashFS; load it with modprobe squashfs, \
                 or use a kernel built with CONFIG_SQUASHFS",
            ),
            Self::NoCodec { codec, instead } => write!(
                f,
                "the kernel was built without the {} decompressor; repack it with --codec {instead}",
                Text(codec)
            ),
            Self::NotSquashfs { found } => write!(
                f,
                "magic number is {found:#010x}, allowed is 0x73717368 (SquashFS, little-endian)"
            ),
            Self::Truncated { need, have } => write!(
                f,
                "the image needs {need} bytes, but there are only {have}; get a complete copy of it"
            ),
            Self::Unpadded { len, block } => write!(
                f,
                "the image ends at {len} bytes, inside a block of {block}, and the kernel cannot \
                 read such a last block; pad the file to a multiple of 4096 bytes \
                 (truncate -s %4096 FILE)"
            ),
            Self::NobodyServes { .. } => f.write_str(
                "the processes that serve its files have ended; the last log in the directory of sessions \
                 ($XDG_RUNTIME_DIR/brisk, /run/brisk or /tmp/brisk-UID) says why",
            ),
            Self::NotAFile => f.write_str(
                "it is neither a regular file nor a block device; name the image's file",
            ),
            Self::KernelRefused { said, .. } => {
                write!(f, "the kernel refused the image: {}", Text(said))
            }
            Self::DeviceBusy => {
                f.write_str("the block device is in use; unmount it, or end the programs that use it")
            }
            Self::TargetMissing { target } => write!(
                f,
                "{} does not exist; make the directory first",
                Shown(target)
            ),
            Self::TargetNotDirectory { target } => write!(
                f,
                "{} is not a directory; name a directory to mount on",
                Shown(target)
            ),
            Self::PlaceNotMade { place, why, .. } => write!(
                f,
                "{} does not exist, and brisk cannot show it to the program alone: {}; make the directory first",
                Shown(place),
                Text(why)
            ),
            Self::NothingThere => f.write_str("there is nothing of this name; brisk stat lists sessions and mounts"),
            Self::NotMounted => f.write_str("it is not a mount point; brisk stat lists sessions and mounts"),
            Self::OtherFilesystem { found } => write!(
                f,
                "the mount there is {}, not squashfs; unmount it with umount",
                Text(found)
            ),
            Self::MountBusy => f.write_str(
                "a program still uses it; end that program (fuser -vm shows it), \
                 or unmount with --lazy",
            ),
            Self::NoFusermount => {
                f.write_str("there is no fusermount3; install the package fuse3, or run it as root")
            }
            Self::FusermountRefused { said } => write!(f, "fusermount3 says: {}", Text(said)),
            Self::NeitherWay { .. } => f.write_str(
                "the system refuses user namespaces to this user and has no fusermount3; \
                 install the package fuse3, or run brisk doctor, which says how to allow namespaces",
            ),
            Self::SharedElsewhere { option } => write!(
                f,
                "{option} needs a user namespace, which the system refuses to this user; \
                 brisk doctor says how to allow it"
            ),
            Self::OnlyInNamespaces { option } => write!(
                f,
                "{option} shows the image to the program alone; leave out --seen-by user, or {option}"
            ),
            Self::SharedAlready { place } => write!(
                f,
                "an image is mounted on {} already; end it with brisk umount, or name another \
                 directory",
                Shown(place)
            ),
            Self::Unmountable { said } => f.write_str(said),
            Self::GuardianFailed { said } => {
                write!(f, "its server could not start: {}", Text(said))
            }
            Self::Threads { count } => write!(
                f,
                "the process has {count} threads, allowed is 1; enter before starting threads"
            ),
            Self::RootNotMountPoint => f.write_str(
                "the root directory is not a mount point, so mounts would be visible outside; \
                 in a chroot, bind its root onto itself first",
            ),
            Self::NoDefaultPlace { place, why } => write!(
                f,
                "it would be mounted on {}, which {why}, and neither /media nor /srv is free; \
                 name a place with --at DIR",
                Shown(place)
            ),
            Self::WorkingDirectory { cwd, .. } => write!(
                f,
                "the image hides the working directory {} and has no such directory; \
                 start from another directory",
                Shown(cwd)
            ),
            Self::StartDirectory { directory, .. } => write!(
                f,
                "it should start in {}, which cannot be entered; name another directory with --chdir",
                Shown(directory)
            ),
            Self::NoChannel => f.write_str("0 channels were passed, allowed is at least 1"),
            Self::FuseVersion { major, minor } => write!(
                f,
                "the kernel speaks version {major}.{minor} of the FUSE protocol, allowed is 7.31 \
                 and later; use Linux 5.4 or later"
            ),
            Self::NoFuse => f.write_str(
                "there is no /dev/fuse; load it with modprobe fuse, or give a container \
                 /dev/fuse (--device /dev/fuse)",
            ),
            Self::NotFuse => f.write_str(
                "/dev/fuse is not the FUSE device; a sandbox has put another file there: give it the real one \
                 (--device /dev/fuse)",
            ),
            Self::FuseClosed { .. } => f.write_str(
                "this user may not open /dev/fuse; allow it with chmod 666 /dev/fuse, \
                 as udev does",
            ),
            Self::NoUserNamespaces { .. } => f.write_str(
                "the system refuses user namespaces to this user, and mounting without root needs \
                 them; brisk doctor says how to allow them, or run it as root",
            ),
            Self::MountRefused { .. } => f.write_str(
                "the system allows a user namespace but no mount in it; allow brisk to mount \
                 (AppArmor, seccomp), or run it as root",
            ),
            Self::NoOverlay { .. } => f.write_str(
                "the system could not mount an overlay, which --writable and --root need; use \
                 Linux 5.11 or later, load it with modprobe overlay, or start without them",
            ),
            Self::NoLastingLayer { directory, .. } => write!(
                f,
                "the system could not mount an overlay that writes to {}; use Linux 5.11 or later and a directory on a local \
                 disk (ext4, XFS, Btrfs), load it with modprobe overlay, or name no directory with --writable, which keeps \
                 what is written in memory",
                Shown(directory)
            ),
            Self::LayerRefused { directory, why } => {
                write!(f, "what is written cannot be kept in {}: {why}", Shown(directory))
            }
            Self::LayerInUse { directory, image } => write!(
                f,
                "another session keeps in {} what is written to {image}; end it with brisk umount {image}, wait for its end, \
                 or name another directory with --writable=DIR",
                Shown(directory),
                image = Shown(image)
            ),
            Self::NoPlace { image } => write!(
                f,
                "{} does not record a directory to mount it on; name one with --with IMAGE@DIR",
                Shown(image)
            ),
            Self::PlacesOverlap { one, other } => write!(
                f,
                "one of {} and {} is inside the other; name separate places",
                Shown(one),
                Shown(other)
            ),
            Self::BindSource { source_path, .. } => {
                write!(f, "cannot bind {}; name another file or directory", Shown(source_path))
            }
            Self::BindTarget { target, .. } => write!(
                f,
                "cannot bind to {}; name an existing place of the same kind",
                Shown(target)
            ),
            Self::OpenToOthers { directory, found } => write!(
                f,
                "{} {found}, allowed is a directory of yours with mode 0700; move it away",
                Shown(directory)
            ),
            Self::SessionLost { tries } => write!(
                f,
                "its session ended {tries} times just before this run could join it; try again"
            ),
            Self::HotPack { .. } => f.write_str("it cannot be read; make it again with brisk hot"),
            Self::NoRoomForSession { source } => write!(
                f,
                "the directory of sessions has no room ({source}); free space or inodes there, or set XDG_RUNTIME_DIR \
                 to another directory"
            ),
            Self::HotPackDiffers { frames } => write!(
                f,
                "{frames} of its frames have other contents than the image, so brisk reads its pages from the image; \
                 make it again with brisk hot"
            ),
            Self::HotPackOfAnother => {
                f.write_str("it belongs to another image; make it again with brisk hot")
            }
            Self::HotPackLarge { pages, allowed } => {
                write!(f, "it has {pages} pages, allowed are {allowed}")
            }
            Self::NoCacheDirectory => f.write_str(
                "neither XDG_CACHE_HOME nor HOME is the absolute path of a directory; set one of \
                 them",
            ),
            Self::CacheOfAnother { directory, owner } => write!(
                f,
                "the caches of root would be in {}, which belongs to the user {owner}; set HOME or XDG_CACHE_HOME to a \
                 directory of root (sudo -H does)",
                Shown(directory)
            ),
            Self::ReplayPlace { .. } => {
                f.write_str("the profile's files cannot be found there")
            }
            Self::NoSession => f.write_str("there is none; brisk stat lists all sessions"),
            Self::SessionBusy { programs } => write!(
                f,
                "programs still run in it: {}; end them, or use --lazy to end it with the last of them",
                Text(&programs.join(", "))
            ),
            Self::NoTracing { .. } => f.write_str(
                "the system does not let one process trace another; in a container allow ptrace, and elsewhere set \
                 kernel.yama.ptrace_scope to 0 or 1",
            ),
            Self::NothingToTrace => f.write_str(
                "there is neither an image nor a tree to trace; name an image, or a directory \
                 with --tree, or run it as root, which traces the whole system",
            ),
            Self::TracedRoot => f.write_str(
                "the root directory cannot be traced as a tree; name the directories that the \
                 program starts from, each with --tree, or as root none, for the whole system",
            ),
            Self::RootOfSystem => {
                f.write_str("it is the root directory of the system; leave out --root")
            }
            Self::TracingLacks { what } => write!(
                f,
                "the kernel lacks {}, which tracing the whole system needs; name an image, or \
                 directories with --tree",
                Text(what)
            ),
            Self::TracedInContainer => f.write_str(
                "this is a container, and the kernel's events have other numbers for its processes; \
                 run it outside, or name an image, or directories with --tree",
            ),
            Self::TracedAlready => {
                f.write_str("another trace of the whole system is running; wait for its end")
            }
            Self::TracerLost => f.write_str(
                "the recording process ended before it could report; look for the reason in \
                 the system's log (out of memory, killed), and try again",
            ),
            Self::Told { text, .. } | Self::NoWindow { text, .. } => write!(f, "{}", Text(text)),
            Self::NoCommand => f.write_str("there is no command to run; name one after --"),
            Self::CommandMissing => f.write_str("no such file"),
            Self::CommandInNeither => f.write_str(
                "no such file, neither in the directory that was named nor from the working directory",
            ),
            Self::CommandNotInPath { tree: None } => f.write_str("not found in PATH"),
            Self::CommandNotInPath { tree: Some(tree) } => write!(
                f,
                "not found in PATH; to name a program of the {tree}, use its path in the {tree}, with a slash"
            ),
            Self::CommandNotExecutable { why } => f.write_str(why),
            Self::NoInterpreter { missing } => missing.fmt(f),
        }
    }
}

/// A path as a message shows it. Characters that a terminal would obey are escaped.
pub(crate) struct Shown<'a>(pub(crate) &'a Path);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.0.display().to_string();
        if shown.chars().any(char::is_control) {
            write!(f, "{:?}", self.0)
        } else {
            f.write_str(&shown)
        }
    }
}

/// Text from outside. Characters that a terminal would obey are escaped.
struct Text<'a>(&'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            if c.is_control() {
                write!(f, "{}", c.escape_default())?;
            } else {
                write!(f, "{c}")?;
            }
        }
        Ok(())
    }
}

impl Error {
    pub(crate) fn new(action: Action, cause: Cause) -> Self {
        Self(Box::new(Repr {
            action,
            path: None,
            cause,
        }))
    }

    pub(crate) fn into_cause(self) -> Cause {
        self.0.cause
    }

    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        self.0.cause.kind()
    }

    /// The image, mount point or program that the error is about.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// The exit status of a program such as `env` or `timeout` that could not start another program: 127 if
    /// it does not exist, 126 if it cannot be executed, 125 for everything else.
    pub fn exit_code(&self) -> u8 {
        self.kind().exit_code()
    }

    /// The same error, for the file at `path`, unless it has a path already.
    #[must_use]
    pub(crate) fn with_path(mut self, path: impl Into<PathBuf>) -> Self {
        self.0.path.get_or_insert_with(|| path.into());
        self
    }

    /// The same cause, as an error of `action` with `path`.
    #[must_use]
    pub(crate) fn within(mut self, action: Action, path: &Path) -> Self {
        self.0.action = action;
        self.0.path = Some(path.to_owned());
        self
    }
}

/// An error and its reasons, in one line.
pub fn with_reasons(error: &(dyn std::error::Error + 'static)) -> String {
    let reasons = std::iter::successors(Some(error), |error| error.source());
    let reasons: Vec<_> = reasons.map(ToString::to_string).collect();
    reasons.join(": ")
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Cause::Told { .. } = self.0.cause {
            return self.0.cause.fmt(f);
        }
        let phrase = self.0.action.phrase();
        match &self.0.path {
            Some(path) => write!(f, "cannot {phrase} {}", Shown(path))?,
            None => {
                let phrase = phrase.trim_end_matches(" from").trim_end_matches(" of");
                write!(f, "cannot {phrase}")?;
            }
        }
        write!(f, ": {}", self.0.cause)
    }
}

/// With all reasons. A `main` that returns the error prints this.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind(), with_reasons(self))
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0.cause {
            Cause::Io { source, .. }
            | Cause::KernelRefused { source, .. }
            | Cause::FuseClosed { source }
            | Cause::NoUserNamespaces { source }
            | Cause::MountRefused { source }
            | Cause::NeitherWay { source }
            | Cause::NoOverlay { source }
            | Cause::NoLastingLayer { source, .. }
            | Cause::NobodyServes { source }
            | Cause::NoTracing { source }
            | Cause::BindSource { source, .. }
            | Cause::BindTarget { source, .. }
            | Cause::StartDirectory { source, .. }
            | Cause::WorkingDirectory { source, .. } => Some(source),
            Cause::PlaceNotMade { source, .. } | Cause::NoWindow { source, .. } => {
                source.as_ref().map(|source| source as _)
            }
            Cause::HotPack { source } | Cause::ReplayPlace { source } => Some(source),
            _ => None,
        }
    }
}
