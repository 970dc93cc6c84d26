//! Why something failed.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why a mount, an unmount or a launch failed.
///
/// [`Error::kind`] says what a caller can do about it. The text says what was tried, why it failed and how the system can be
/// changed. What a command can do has other words in each command, so that is an [`Advice`]. The system's own error, if there
/// is one, is in [`source`](std::error::Error::source) and not in the text.
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
    pub fn exit_code(self) -> u8 {
        match self {
            Self::CommandNotFound => 127,
            Self::CommandNotExecutable => 126,
            _ => 125,
        }
    }

    /// A number for another process of this program.
    pub fn to_wire(self) -> u8 {
        self as u8
    }

    /// None if no kind has this number.
    pub fn from_wire(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// What the one who called can do, for a command to say in its own words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Advice {
    /// Pack the image with another codec.
    OtherCodec,
    /// Look which sessions and mounts there are.
    ListMounts,
    /// End the programs that use the mount, or let it end with the last of them.
    EndPrograms,
    /// Let the system allow user namespaces.
    AllowNamespaces,
    /// Let all programs of the user see the image, or do without what only one program can see.
    ChooseWhoSees,
    /// Unmount what is there, or name another directory.
    Unmount,
    /// Name a directory to mount on.
    NamePlace,
    /// Name a directory to mount each further image on.
    NamePlaces,
    /// Name another directory for the program to start in.
    NameDirectory,
    /// Keep what is written in memory, or in another directory.
    OtherLayer,
    /// Wait for the end of a session, end it, or keep what is written in another directory.
    LayerTaken,
    /// Make the hot pack again.
    PackAgain,
    /// Name what to trace.
    NameTrees,
    /// Do not make the system's root directory the root directory.
    LeaveOutRoot,
    /// Name a command.
    NameCommand,
}

impl Advice {
    const ALL: [Self; 15] = [
        Self::OtherCodec,
        Self::ListMounts,
        Self::EndPrograms,
        Self::AllowNamespaces,
        Self::ChooseWhoSees,
        Self::Unmount,
        Self::NamePlace,
        Self::NamePlaces,
        Self::NameDirectory,
        Self::OtherLayer,
        Self::LayerTaken,
        Self::PackAgain,
        Self::NameTrees,
        Self::LeaveOutRoot,
        Self::NameCommand,
    ];

    /// As [`ErrorKind::to_wire`].
    pub fn to_wire(self) -> u8 {
        self as u8
    }

    /// As [`ErrorKind::from_wire`].
    pub fn from_wire(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// What was tried, as far as this crate tries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// To become a program.
    Run,
    /// To wait until a program is ready.
    Wait,
    /// To keep what was learned.
    Learn,
    /// To observe a launch.
    Observe,
    /// To replay a profile.
    Replay,
    /// To measure disks.
    Measure,
}

impl From<Action> for &'static str {
    fn from(action: Action) -> Self {
        match action {
            Action::Run => "run",
            Action::Wait => "wait for a window",
            Action::Learn => "keep learned hot packs",
            Action::Observe => "observe a launch",
            Action::Replay => "replay",
            Action::Measure => "measure disks",
        }
    }
}

struct Repr {
    /// A verb phrase.
    action: &'static str,
    path: Option<PathBuf>,
    cause: Cause,
}

/// Why it failed.
#[derive(Debug)]
pub struct Cause {
    kind: ErrorKind,
    /// For whoever goes another way then.
    name: Option<Named>,
    text: Cow<'static, str>,
    /// Whether the text is a whole message, with what was tried.
    is_whole: bool,
    advice: Option<Advice>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// The name of a cause that leads a caller another way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Named(pub &'static str);

impl Cause {
    /// A text goes on after "cannot do this: ".
    pub fn new(kind: ErrorKind, text: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind,
            name: None,
            text: text.into(),
            is_whole: false,
            advice: None,
            source: None,
        }
    }

    /// An error of the system during `step` (a verb phrase: "open the image").
    pub fn io(step: impl fmt::Display, source: impl Into<io::Error>) -> Self {
        let text = format!("the system could not {step}");
        Self::new(ErrorKind::Io, text).because(source.into())
    }

    /// The process lacks a right that root has.
    pub fn not_permitted() -> Self {
        Self::new(
            ErrorKind::NotPermitted,
            "this needs root (CAP_SYS_ADMIN); run it as root, for example with sudo",
        )
    }

    /// Something lacks a feature.
    pub fn unsupported(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Unsupported, text)
    }

    /// The image cannot be used.
    pub fn image(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Image, text)
    }

    /// A directory cannot be used.
    pub fn place(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Place, text)
    }

    /// Something else uses it.
    pub fn busy(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Busy, text)
    }

    /// The caller names no program.
    pub fn no_command() -> Self {
        let cause = Self::new(ErrorKind::State, "there is no command to run");
        cause.advise(Advice::NameCommand)
    }

    /// Another process has sent this.
    pub fn told(kind: ErrorKind, text: String, advice: Option<Advice>) -> Self {
        Self {
            is_whole: true,
            advice,
            ..Self::new(kind, text)
        }
    }

    /// The same in other words.
    #[must_use]
    pub fn worded(mut self, text: &'static str) -> Self {
        self.text = text.into();
        self
    }

    /// The reason, which the messages say after it.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What the one who called can do.
    #[must_use]
    pub fn advise(mut self, advice: Advice) -> Self {
        self.advice = Some(advice);
        self
    }

    /// For whoever goes another way then.
    #[must_use]
    pub fn named(mut self, name: Named) -> Self {
        self.name = Some(name);
        self
    }

    /// Whether it has this name.
    pub fn is(&self, name: Named) -> bool {
        self.name == Some(name)
    }

    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What the one who called can do.
    pub fn advice(&self) -> Option<Advice> {
        self.advice
    }

    /// The system's error.
    pub fn io_error(&self) -> Option<&io::Error> {
        self.source.as_deref()?.downcast_ref()
    }

    /// The same.
    pub fn into_io_error(self) -> Option<io::Error> {
        Some(*self.source?.downcast().ok()?)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Text(&self.text).fmt(f)
    }
}

/// A path as a message shows it. Characters that a terminal would obey are escaped.
pub struct Shown<'a>(pub &'a Path);

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
    /// Why `action`, a verb phrase, failed.
    pub fn new(action: impl Into<&'static str>, cause: Cause) -> Self {
        Self(Box::new(Repr {
            action: action.into(),
            path: None,
            cause,
        }))
    }

    /// Why it failed, without what was tried.
    pub fn into_cause(self) -> Cause {
        self.0.cause
    }

    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        self.0.cause.kind
    }

    /// What else the one who called can do.
    pub fn advice(&self) -> Option<Advice> {
        self.0.cause.advice
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
    pub fn with_path(mut self, path: impl Into<PathBuf>) -> Self {
        self.0.path.get_or_insert_with(|| path.into());
        self
    }

    /// The same cause, as an error of `action` with `path`.
    #[must_use]
    pub fn within(mut self, action: impl Into<&'static str>, path: &Path) -> Self {
        self.0.action = action.into();
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
        if self.0.cause.is_whole {
            return self.0.cause.fmt(f);
        }
        let phrase = self.0.action;
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
        let source = self.0.cause.source.as_deref();
        source.map(|source| source as &(dyn std::error::Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_process_sends_is_what_it_meant() {
        for kind in ErrorKind::ALL {
            assert_eq!(ErrorKind::from_wire(kind.to_wire()), Some(kind));
        }
        for advice in Advice::ALL {
            assert_eq!(Advice::from_wire(advice.to_wire()), Some(advice));
        }
        assert_eq!(Advice::from_wire(u8::MAX), None);
    }
}
