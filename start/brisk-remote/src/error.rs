use std::fmt;
use std::io;

use brisk_launch::error::Cause;

/// Why an image on the network cannot be used.
///
/// The text says what was tried, what was found, what is allowed, and what to do. The system's own error, if there is one, is in
/// [`source`](std::error::Error::source) and not in the text.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    text: String,
    source: Option<io::Error>,
}

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a caller can do about an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The system failed for a reason of its own.
    Io,
    /// The name is not that of an image on the network. Write another.
    Name,
    /// The server does not give the image, or gave something else.
    Server,
    /// Nobody whom the user trusts vouches for what the server says.
    Untrusted,
    /// The directory of images cannot be used.
    Place,
    /// Another version of brisk has written this.
    Format,
    /// The process that asks the network cannot be reached.
    Fetcher,
}

impl Error {
    /// With this text.
    pub fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self {
            kind,
            text: text.into(),
            source: None,
        }
    }

    /// That the system did not let brisk do this.
    pub fn io(doing: impl fmt::Display, source: impl Into<io::Error>) -> Self {
        Self {
            kind: ErrorKind::Io,
            text: format!("cannot {doing}"),
            source: Some(source.into()),
        }
    }

    pub(crate) fn place(cause: Cause) -> Self {
        Self {
            kind: ErrorKind::Place,
            text: cause.to_string(),
            source: cause.into_io_error(),
        }
    }

    /// The same, with what it is about in front.
    #[must_use]
    pub fn about(self, what: impl fmt::Display) -> Self {
        Self {
            text: format!("{what}: {}", self.text),
            ..self
        }
    }

    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|e| e as _)
    }
}
