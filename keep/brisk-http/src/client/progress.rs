use std::fmt;
use std::sync::Arc;

use http::StatusCode;

/// What a [`Client`](super::Client) tells of a request that it sends. A hit sends none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress<'a> {
    /// The URL that is asked for.
    pub url: &'a str,
    /// What has happened.
    pub step: ProgressStep,
}

/// A step of a request: see [`Progress`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProgressStep {
    /// It is sent.
    Sent,
    /// The head of the response is there.
    Answered {
        /// Its status.
        status: StatusCode,
        /// The number of bytes of its body, if the head says it.
        len: Option<u64>,
    },
    /// So many bytes of the body have come, all in all.
    Received(u64),
    /// All of the body has come.
    Ended,
    /// The request failed, the body broke off, or nobody wants more of it.
    BrokenOff,
    /// It will be sent once more.
    Again {
        /// How often it was sent so far.
        tries: u32,
    },
}

/// Whom to tell.
#[derive(Clone)]
pub(crate) struct Hook(Arc<dyn Fn(&Progress<'_>) + Send + Sync>);

impl Hook {
    pub(crate) fn new(tell: impl Fn(&Progress<'_>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }

    pub(crate) fn tell(&self, url: &str, step: ProgressStep) {
        (self.0)(&Progress { url, step });
    }
}

impl Default for Hook {
    fn default() -> Self {
        Self::new(|_| ())
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook")
    }
}
