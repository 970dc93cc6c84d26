use std::fmt::{self, Write};
use std::io;
use std::path::{Path, PathBuf};

/// Why an operation on an image failed.
///
/// [`Error::kind`] says what a caller can do about it. The text names the field, where it is, what
/// was found and what is allowed. It does not repeat the cause: that is in
/// [`source`](std::error::Error::source).
///
/// # Conversion to `io::Error`
///
/// `?` turns an `Error` into an [`io::Error`] of the kind that the standard library uses for the
/// same fault:
///
/// | kind | `io::ErrorKind` |
/// |---|---|
/// | [`Io`](ErrorKind::Io) | the kind of the system's error |
/// | [`NotFound`](ErrorKind::NotFound) | `NotFound` |
/// | [`AlreadyExists`](ErrorKind::AlreadyExists) | `AlreadyExists` |
/// | [`Corrupt`](ErrorKind::Corrupt) | `InvalidData` |
/// | [`Unsupported`](ErrorKind::Unsupported) | `Unsupported` |
/// | [`Limit`](ErrorKind::Limit) | `QuotaExceeded` |
/// | [`SymlinkLoop`](ErrorKind::SymlinkLoop) | the kind of `ELOOP` |
/// | [`Input`](ErrorKind::Input) | `InvalidInput` |
/// | [`Cancelled`](ErrorKind::Cancelled) | `Other` |
///
/// The `Error` stays inside: [`io::Error::downcast`] gives it back.
///
/// ```
/// use std::io;
///
/// use brisk_image::{Error, Image};
///
/// fn len_of(image: &Image, path: &str) -> io::Result<u64> {
///     Ok(image.file_at(path)?.len())
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("app.img");
/// # let tree = brisk_image::TreeBuilder::new().finish();
/// # brisk_image::ImageWriter::new().write(&tree, &path)?;
/// let image = Image::open(&path)?;
/// let e = len_of(&image, "no/such/file").unwrap_err();
/// assert_eq!(e.kind(), io::ErrorKind::NotFound);
/// let e: Error = e.downcast()?;
/// assert_eq!(e.path(), Some(path.as_path()));
/// # Ok(())
/// # }
/// ```
pub struct Error(Box<Repr>);

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a caller can do about an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The system refused: permission, space, a failing disk. Trying again may help.
    Io,
    /// The file is not in the file system, or the path is not in the image or the tree.
    NotFound,
    /// The tree has an entry of that name already.
    AlreadyExists,
    /// The image, profile or hot pack breaks its format. Get another copy of it.
    Corrupt,
    /// The image or the request is valid, but this program cannot do it.
    Unsupported,
    /// Going on would pass a limit of [`Limits`](crate::Limits). Raise the limit if the image is
    /// trusted.
    Limit,
    /// The path leads through more symbolic links than Linux follows, such as two links that lead
    /// to each other.
    SymlinkLoop,
    /// What was given to be packed, or an option, cannot be used. Change it.
    Input,
    /// The callback that [`Work::progress`](crate::Work::progress) was given asked for the end.
    Cancelled,
}

struct Repr {
    path: Option<PathBuf>,
    cause: Cause,
}

enum Cause {
    Io {
        doing: &'static str,
        source: io::Error,
    },
    Corrupt {
        subject: &'static str,
        at: Location,
        what: Corrupt,
    },
    Unsupported(Unsupported),
    Limit(Limit),
    Missing(Missing),
    Exists,
    /// This path leads through more than `most` symbolic links.
    SymlinkLoop {
        path: PathBuf,
        most: usize,
    },
    Input(Input),
    Cancelled,
}

/// What is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Missing {
    /// What has this path in the image.
    InImage(PathBuf),
    /// The directory with this path in the tree, above what the error is about.
    Above(PathBuf),
    /// What the error is about, in the tree.
    InTree,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InImage(path) => write!(f, "there is no {path:?} in the image"),
            Self::Above(path) => write!(f, "there is no {path:?} in the tree; add it first"),
            Self::InTree => f.write_str("the tree has no such entry"),
        }
    }
}

/// Where in an image a fault was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Location {
    /// At this byte of the image.
    Byte(u64),
    /// In the metadata block that is stored at byte `block`, at byte `offset` of its decoded form.
    Decoded { block: u64, offset: usize },
    /// In this entry of a list, counted from 0.
    Item { list: &'static str, index: usize },
    /// At this line and column of a text, counted from 1.
    Line { line: usize, column: usize },
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Byte(at) => write!(f, "byte {at}"),
            Self::Decoded { block, offset } => {
                write!(f, "byte {offset} of the metadata block at byte {block}")
            }
            Self::Item { list, index } => write!(f, "{list}[{index}]"),
            Self::Line { line, column } => write!(f, "line {line} column {column}"),
        }
    }
}

/// What a field may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Allowed {
    /// This value and no other.
    Only(u64),
    /// `from..=to`.
    Range(u64, u64),
    /// At most this.
    AtMost(u64),
    /// What cannot be said as numbers.
    Text(&'static str),
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Only(n) => write!(f, "{n}"),
            Self::Range(from, to) => write!(f, "{from} to {to}"),
            Self::AtMost(n) => write!(f, "at most {n}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// How an image breaks its format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Corrupt {
    /// The first bytes are not those of a SquashFS image, nor of a program that carries one.
    Magic { found: u32 },
    /// `what` needs `need` bytes where `have` are left.
    Truncated {
        what: &'static str,
        need: u64,
        have: u64,
    },
    /// A field holds a value that is never valid there.
    Field {
        field: &'static str,
        found: u64,
        allowed: Allowed,
    },
    /// The block size and its logarithm disagree.
    BlockSize { size: u32, log: u16 },
    /// A stored block does not decode.
    Decode {
        what: &'static str,
        codec: &'static str,
        reason: String,
    },
    /// A block decodes to a number of bytes that is not allowed there.
    DecodedLen {
        what: &'static str,
        found: usize,
        allowed: Allowed,
    },
    /// A name that no directory may hold.
    Name { name: Vec<u8>, why: &'static str },
    /// A directory is reached a second time, so the tree is not a tree.
    DirectoryLoop { inode_number: u32 },
    /// A listing is that of another directory, too.
    SharedListing { inode_number: u32 },
    /// The root is no directory.
    Root { inode: &'static str },
    /// An inode is of another type than the directory entry that led to it says.
    EntryType {
        entry: &'static str,
        inode: &'static str,
    },
    /// A text that is not what its format says, in the words of who read it.
    Text { reason: String },
    /// Block `number` of a file is not the one that its hash tree was made of.
    Digest {
        what: &'static str,
        number: u64,
        found: [u8; 32],
        expected: [u8; 32],
    },
}

/// The first bytes of a digest, which are enough to tell two apart.
struct Digest<'a>(&'a [u8; 32]);

impl fmt::Display for Digest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.0.iter().take(8);
        shown
            .into_iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("…")
    }
}

/// Bytes of a refused name that an error shows.
const NAME_SHOWN: usize = 256;

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic { found } => write!(
                f,
                "magic number is {found:#010x}, allowed is 0x73717368 (SquashFS, little-endian)"
            ),
            Self::Truncated { what, need, have } => {
                write!(f, "{what} needs {need} bytes, {have} are left")
            }
            Self::Field {
                field,
                found,
                allowed,
            } => {
                write!(f, "{field} is {found}, allowed is {allowed}")
            }
            Self::BlockSize { size, log } => write!(f, "block size is {size} but its log is {log}"),
            Self::Decode {
                what,
                codec,
                reason,
            } => {
                write!(f, "{what} does not decode as {codec}: {reason}")
            }
            Self::DecodedLen {
                what,
                found,
                allowed,
            } => {
                write!(f, "{what} decodes to {found} bytes, allowed is {allowed}")
            }
            Self::Name { name, why } => {
                // Hostile ones have no bound, and these suffice to find it.
                let shown = name.get(..NAME_SHOWN).unwrap_or(name);
                let more = if shown.len() < name.len() { "..." } else { "" };
                write!(f, "name \"{}{more}\" {why}", shown.escape_ascii())
            }
            Self::DirectoryLoop { inode_number } => write!(
                f,
                "directory with inode number {inode_number} is reached a second time, allowed is once"
            ),
            Self::SharedListing { inode_number } => write!(
                f,
                "directory with inode number {inode_number} has the listing of another one, \
                 allowed is one of its own"
            ),
            Self::Root { inode } => {
                write!(f, "root inode is a {inode}, allowed is a directory")
            }
            Self::EntryType { entry, inode } => {
                write!(f, "directory entry says {entry} but its inode is a {inode}")
            }
            Self::Text { reason } => Escaped(reason).fmt(f),
            Self::Digest {
                what,
                number,
                found,
                expected,
            } => write!(
                f,
                "{what} {number} has the sha256 {}, the verity tree says {}; the file was changed or is damaged: get \
                 another copy",
                Digest(found),
                Digest(expected)
            ),
        }
    }
}

/// What this program cannot do although it is valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unsupported {
    /// SquashFS of another version.
    Version { major: u16, minor: u16 },
    /// A compressor id this program has no codec for.
    Compressor { id: u16 },
    /// A codec whose decoder this build lacks, and the Cargo features that bring one.
    DecoderLeftOut {
        codec: &'static str,
        features: &'static str,
    },
    /// A codec whose encoder this build lacks, and the Cargo feature that brings it.
    EncoderLeftOut {
        codec: &'static str,
        feature: &'static str,
    },
    /// Something else, said whole.
    Other(String),
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version { major, minor } => write!(
                f,
                "SquashFS version {major}.{minor} is not supported, only 4.0 is; \
                 unpack it with the tool that made it and pack it again"
            ),
            Self::Compressor { id: 2 } => f.write_str(
                "compressor lzma (id 2) is not supported: no kernel since 2.6.38 reads it; \
                 repack the image with another codec",
            ),
            Self::Compressor { id } => write!(
                f,
                "compressor id {id} is not supported, only 1 (gzip), 3 (lzo), 4 (xz), 5 (lz4) and 6 (zstd) are"
            ),
            Self::DecoderLeftOut { codec, features } => write!(
                f,
                "this program was built without a decoder of {codec}; \
                 build it with the feature {features} of brisk-image"
            ),
            Self::EncoderLeftOut { codec, feature } => write!(
                f,
                "this program was built without an encoder of {codec}; \
                 build it with the feature {feature} of brisk-image, or choose another codec"
            ),
            Self::Other(text) => Escaped(text).fmt(f),
        }
    }
}

/// A limit that going on would pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) what: &'static str,
    pub(crate) needs: u64,
    pub(crate) limit: u64,
    /// Whether `Limits::names` or `Limits::contents` raises it.
    pub(crate) of_image: bool,
}

/// What cannot be packed, or an option that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Input {
    /// A source file is not what it was when the tree was listed.
    Changed {
        what: &'static str,
        was: u64,
        is: u64,
    },
    /// Something else, said whole.
    Other(String),
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed { what, was, is } => write!(
                f,
                "file changed while it was packed: its {what} was {was} and is {is}; \
                 stop what writes it, or pack a copy"
            ),
            Self::Other(text) => Escaped(text).fmt(f),
        }
    }
}

/// A text that may quote an image, without what a terminal would obey.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c.is_control() {
            true => write!(f, "{}", c.escape_default()),
            false => f.write_char(c),
        })
    }
}

impl Error {
    fn new(cause: Cause) -> Self {
        Self(Box::new(Repr { path: None, cause }))
    }

    /// The system's `source`, which came while `doing` (a verb phrase: "read the superblock"). If a verified file refused
    /// to give bytes that differ from its hash tree, its own error says more.
    pub(crate) fn io(doing: &'static str, source: io::Error) -> Self {
        match source.downcast::<Self>() {
            Ok(error) if error.is_of_verity() => error,
            Ok(error) => {
                let source = error.into();
                Self::new(Cause::Io { doing, source })
            }
            Err(source) => Self::new(Cause::Io { doing, source }),
        }
    }

    fn is_of_verity(&self) -> bool {
        let Cause::Corrupt { what, .. } = &self.0.cause else {
            return false;
        };
        matches!(what, Corrupt::Digest { .. })
    }

    /// A source of bytes could not give them.
    pub fn of_source(source: io::Error) -> Self {
        Self::io("read the image", source)
    }

    pub(crate) fn corrupt(at: Location, what: Corrupt) -> Self {
        let subject = "image";
        Self::new(Cause::Corrupt { subject, at, what })
    }

    /// The same error in something else than an image: a profile or a hot pack.
    #[must_use]
    pub(crate) fn about(mut self, name: &'static str) -> Self {
        if let Cause::Corrupt { subject, .. } = &mut self.0.cause {
            *subject = name;
        }
        self
    }

    /// A field at `at` that holds `found` where only `allowed` is valid.
    pub(crate) fn field(
        at: Location,
        field: &'static str,
        found: impl Into<u64>,
        allowed: Allowed,
    ) -> Self {
        let found = found.into();
        Self::corrupt(
            at,
            Corrupt::Field {
                field,
                found,
                allowed,
            },
        )
    }

    pub(crate) fn unsupported(what: Unsupported) -> Self {
        Self::new(Cause::Unsupported(what))
    }

    pub(crate) fn limit(what: &'static str, needs: u64, limit: u64) -> Self {
        Self::new(Cause::Limit(Limit {
            what,
            needs,
            limit,
            of_image: false,
        }))
    }

    /// As [`Error::limit`], of one that is in proportion to the image unless the caller says otherwise.
    pub(crate) fn limit_of_image(what: &'static str, needs: u64, limit: u64) -> Self {
        Self::new(Cause::Limit(Limit {
            what,
            needs,
            limit,
            of_image: true,
        }))
    }

    pub(crate) fn changed(what: &'static str, was: u64, is: u64) -> Self {
        Self::new(Cause::Input(Input::Changed { what, was, is }))
    }

    /// An option or a file to be packed cannot be used, for the reason that `text` says whole.
    pub(crate) fn input(text: impl Into<String>) -> Self {
        Self::new(Cause::Input(Input::Other(text.into())))
    }

    pub(crate) fn cancelled() -> Self {
        Self::new(Cause::Cancelled)
    }

    pub(crate) fn missing(what: Missing) -> Self {
        Self::new(Cause::Missing(what))
    }

    /// The tree has an entry where another is to be.
    pub(crate) fn exists() -> Self {
        Self::new(Cause::Exists)
    }

    pub(crate) fn symlink_loop(path: impl Into<PathBuf>, most: usize) -> Self {
        let path = path.into();
        Self::new(Cause::SymlinkLoop { path, most })
    }

    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match &self.0.cause {
            Cause::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                ErrorKind::NotFound
            }
            Cause::Io { .. } => ErrorKind::Io,
            Cause::Missing(_) => ErrorKind::NotFound,
            Cause::Exists => ErrorKind::AlreadyExists,
            Cause::SymlinkLoop { .. } => ErrorKind::SymlinkLoop,
            Cause::Corrupt { .. } => ErrorKind::Corrupt,
            Cause::Unsupported(_) => ErrorKind::Unsupported,
            Cause::Limit(_) => ErrorKind::Limit,
            Cause::Input(_) => ErrorKind::Input,
            Cause::Cancelled => ErrorKind::Cancelled,
        }
    }

    /// The file that the error is about, if one was opened by path.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// True if [`Limits::names`](crate::Limits::names) or
    /// [`Limits::contents`](crate::Limits::contents) raises the limit that the error is about.
    pub fn is_image_limit(&self) -> bool {
        matches!(&self.0.cause, Cause::Limit(limit) if limit.of_image)
    }

    /// Where a fault is, and what: to be said again without looking again.
    pub(crate) fn as_corrupt(&self) -> Option<(Location, &Corrupt)> {
        match &self.0.cause {
            Cause::Corrupt { at, what, .. } => Some((*at, what)),
            _ => None,
        }
    }

    /// The byte of the image at which a fault was found, or at which the metadata block with the
    /// fault is stored.
    pub fn image_offset(&self) -> Option<u64> {
        match &self.0.cause {
            Cause::Corrupt {
                subject: "image",
                at: Location::Byte(at) | Location::Decoded { block: at, .. },
                ..
            } => Some(*at),
            _ => None,
        }
    }

    /// The same error about the file at `path`, unless it has a path already.
    #[must_use]
    pub fn with_path(mut self, path: impl Into<PathBuf>) -> Self {
        self.0.path.get_or_insert_with(|| path.into());
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.0.path {
            // Debug escapes what a terminal would obey; a plain name looks the same without.
            let shown = path.display().to_string();
            if shown.chars().any(char::is_control) {
                write!(f, "{path:?}: ")?;
            } else {
                write!(f, "{shown}: ")?;
            }
        }
        match &self.0.cause {
            Cause::Io { doing, .. } => write!(f, "cannot {doing}"),
            Cause::Corrupt { subject, at, what } => {
                write!(f, "corrupt {subject} at {at}: {what}")
            }
            Cause::Unsupported(what) => what.fmt(f),
            Cause::Limit(Limit {
                what, needs, limit, ..
            }) => {
                write!(f, "{what} needs {needs}, which passes the limit of {limit}")
            }
            Cause::Missing(what) => what.fmt(f),
            Cause::Exists => {
                f.write_str("the tree has such an entry already; replace it, or remove it first")
            }
            Cause::SymlinkLoop { path, most } => write!(
                f,
                "{path:?} leads through more than {most} symbolic links, which is the most that \
                 are followed; look for links that lead to each other"
            ),
            Cause::Input(what) => what.fmt(f),
            Cause::Cancelled => f.write_str("cancelled by the caller"),
        }
    }
}

/// With all reasons: what a `main` that returns the error prints.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.kind())?;
        let mut source = std::error::Error::source(self);
        while let Some(error) = source {
            write!(f, ": {error}")?;
            source = error.source();
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0.cause {
            Cause::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match &error.0.cause {
            Cause::Io { source, .. } => source.kind(),
            Cause::Missing(_) => io::ErrorKind::NotFound,
            Cause::Exists => io::ErrorKind::AlreadyExists,
            Cause::Corrupt { .. } => io::ErrorKind::InvalidData,
            Cause::Unsupported(_) => io::ErrorKind::Unsupported,
            Cause::Limit(_) => io::ErrorKind::QuotaExceeded,
            // The standard library gives this kind, and has no stable name for it.
            Cause::SymlinkLoop { .. } => io::Error::from(rustix::io::Errno::LOOP).kind(),
            Cause::Input(_) => io::ErrorKind::InvalidInput,
            // Not `Interrupted`: readers and writers try again after that.
            Cause::Cancelled => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}

/// A path as it stands in messages: from the root of the tree, and "." for the root itself.
pub(crate) fn shown(path: &Path) -> &Path {
    if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_field_location_found_and_allowed() {
        let e = Error::corrupt(
            Location::Byte(12),
            Corrupt::BlockSize {
                size: 131_072,
                log: 11,
            },
        );
        assert_eq!(
            e.to_string(),
            "corrupt image at byte 12: block size is 131072 but its log is 11"
        );
        let at = Location::Decoded {
            block: 4096,
            offset: 32,
        };
        let e = Error::field(at, "inode type", 77u16, Allowed::Range(1, 14)).with_path("app.img");
        assert_eq!(
            e.to_string(),
            "app.img: corrupt image at byte 32 of the metadata block at byte 4096: \
             inode type is 77, allowed is 1 to 14"
        );
        assert_eq!(e.kind(), ErrorKind::Corrupt);
        assert_eq!(e.image_offset(), Some(4096));
    }

    #[test]
    fn the_first_path_stays_and_cannot_drive_a_terminal() {
        let e = Error::limit("the block list", 10, 5)
            .with_path("a\u{1b}[2J")
            .with_path("b");
        assert_eq!(
            e.to_string(),
            "\"a\\u{1b}[2J\": the block list needs 10, which passes the limit of 5"
        );
    }

    #[test]
    fn what_an_image_says_cannot_drive_a_terminal() {
        let e = Error::input("pattern \u{1b}[2J\n\u{9b} cannot be used");
        assert_eq!(e.to_string(), "pattern \\u{1b}[2J\\n\\u{9b} cannot be used");
        let e = Error::unsupported(Unsupported::Other("field `\u{7}`".to_owned()));
        assert_eq!(e.to_string(), "field `\\u{7}`");
    }

    #[test]
    fn the_cause_is_said_once() {
        let e = Error::io("read the superblock", io::Error::other("disk on fire"));
        assert_eq!(e.to_string(), "cannot read the superblock");
        let source = std::error::Error::source(&e).map(ToString::to_string);
        assert_eq!(source.as_deref(), Some("disk on fire"));
    }
    #[test]
    fn an_io_error_has_the_kind_that_std_uses() {
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        let at = Location::Byte(0);
        let table = [
            (Error::io("read", denied()), io::ErrorKind::PermissionDenied),
            (Error::missing(Missing::InTree), io::ErrorKind::NotFound),
            (Error::exists(), io::ErrorKind::AlreadyExists),
            (
                Error::corrupt(at, Corrupt::Root { inode: "file" }),
                io::ErrorKind::InvalidData,
            ),
            (
                Error::unsupported(Unsupported::Compressor { id: 2 }),
                io::ErrorKind::Unsupported,
            ),
            (Error::limit("a", 2, 1), io::ErrorKind::QuotaExceeded),
            (Error::input("a"), io::ErrorKind::InvalidInput),
            (Error::cancelled(), io::ErrorKind::Other),
        ];
        for (error, kind) in table {
            let text = error.to_string();
            let io = io::Error::from(error);
            assert_eq!((io.kind(), io.to_string()), (kind, text));
        }
        let io = io::Error::from(Error::symlink_loop("a", 40));
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("a", dir.path().join("a")).unwrap();
        let of_the_system = std::fs::read(dir.path().join("a")).unwrap_err();
        assert_eq!(io.kind(), of_the_system.kind());
    }

    #[test]
    fn an_io_error_keeps_the_error_and_its_source() {
        let disk = io::Error::other("disk on fire");
        let io = io::Error::from(Error::io("read the superblock", disk).with_path("app.img"));
        // `source` of an `io::Error` is that of the error in it.
        let source = std::error::Error::source(&io).map(ToString::to_string);
        assert_eq!(source.as_deref(), Some("disk on fire"));
        let error = io.downcast::<Error>().unwrap();
        assert_eq!(error.path(), Some(Path::new("app.img")));
    }

    #[test]
    fn not_found_is_a_kind_whoever_says_it() {
        let absent = Error::io("open the image", io::ErrorKind::NotFound.into());
        assert_eq!(absent.kind(), ErrorKind::NotFound);
        let missing = Error::missing(Missing::InImage("usr/a\u{1b}b".into())).with_path("app.img");
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        assert_eq!(
            missing.to_string(),
            "app.img: there is no \"usr/a\\u{1b}b\" in the image"
        );
    }
}
