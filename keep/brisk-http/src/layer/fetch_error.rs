use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// An error of any type, as tower's.
pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

/// Why there is no response, or why its body ends too early.
///
/// Several requests that waited for one fetch get the same error, so it can be cloned.
#[derive(Debug, Clone)]
pub struct FetchError(Arc<Cause>);

/// What a caller can do about a [`FetchError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FetchErrorKind {
    /// The origin could not be reached, or its connection broke: [`source`](Error::source) says why. Try again.
    Upstream,
    /// The origin did not answer in time. Try again later.
    TimedOut,
    /// The body has more or fewer bytes than its head says. Nothing of it was stored. Try again.
    Length,
    /// The stored body is damaged or cannot be read. It is no longer used. Try again.
    Stored,
    /// The origin sends from one URL to the next without an end.
    Redirects,
    /// The task of a fetch ended without an answer, because its runtime ends or because it panicked.
    Ended,
}

#[derive(Debug)]
enum Cause {
    Upstream(BoxError),
    Head(Duration),
    Body(Duration),
    Length {
        expected: u64,
        found: u64,
    },
    Stored(std::io::Error),
    #[cfg(feature = "reqwest")]
    Redirects(u32),
    Ended,
}

impl FetchError {
    pub(crate) fn upstream(error: impl Into<BoxError>) -> Self {
        match error.into().downcast::<Self>() {
            // The origin is a cache in front of another one.
            Ok(own) => *own,
            Err(error) => Self(Arc::new(Cause::Upstream(error))),
        }
    }

    /// No head came.
    pub(crate) fn no_head(after: Duration) -> Self {
        Self(Arc::new(Cause::Head(after)))
    }

    /// Nothing more of a body came.
    pub(crate) fn no_more(after: Duration) -> Self {
        Self(Arc::new(Cause::Body(after)))
    }

    pub(crate) fn length(expected: u64, found: u64) -> Self {
        Self(Arc::new(Cause::Length { expected, found }))
    }

    pub(crate) fn stored(error: std::io::Error) -> Self {
        Self(Arc::new(Cause::Stored(error)))
    }

    #[cfg(feature = "reqwest")]
    pub(crate) fn redirects(most: u32) -> Self {
        Self(Arc::new(Cause::Redirects(most)))
    }

    pub(crate) fn ended() -> Self {
        Self(Arc::new(Cause::Ended))
    }

    /// What a caller can do about it.
    pub fn kind(&self) -> FetchErrorKind {
        match &*self.0 {
            Cause::Upstream(_) => FetchErrorKind::Upstream,
            Cause::Head(_) | Cause::Body(_) => FetchErrorKind::TimedOut,
            Cause::Length { .. } => FetchErrorKind::Length,
            Cause::Stored(_) => FetchErrorKind::Stored,
            #[cfg(feature = "reqwest")]
            Cause::Redirects(_) => FetchErrorKind::Redirects,
            Cause::Ended => FetchErrorKind::Ended,
        }
    }
}

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Cause::Upstream(_) => f.write_str("the origin gave no whole answer"),
            Cause::Head(after) => write!(
                f,
                "the origin sent no answer for {:.1} s",
                after.as_secs_f64()
            ),
            Cause::Body(after) => write!(
                f,
                "the origin sent nothing more of a body for {:.1} s",
                after.as_secs_f64()
            ),
            Cause::Length { expected, found } if found > expected => write!(
                f,
                "a body has more than the {expected} bytes that its Content-Length says"
            ),
            Cause::Length { expected, found } => write!(
                f,
                "a body ended after {found} bytes, but its Content-Length is {expected}"
            ),
            Cause::Stored(_) => f.write_str("a stored body cannot be read; fetch it again"),
            #[cfg(feature = "reqwest")]
            Cause::Redirects(most) => {
                write!(f, "more than {most} redirects, which is what is allowed")
            }
            Cause::Ended => f.write_str("a fetch ended without an answer"),
        }
    }
}

impl Error for FetchError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &*self.0 {
            Cause::Upstream(error) => Some(&**error),
            Cause::Stored(error) => Some(error),
            _ => None,
        }
    }
}
