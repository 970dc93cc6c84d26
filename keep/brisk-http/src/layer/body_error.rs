use std::error::Error;
use std::fmt;

use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderMap, StatusCode};

use super::fetch_error::FetchError;

/// The most characters of a field that a message shows.
const MOST_SHOWN: usize = 100;

/// Why a response gives no bytes, text or value.
#[derive(Debug)]
#[non_exhaustive]
pub enum BodyError {
    /// The body broke off, or what is stored of it is damaged.
    Fetch(FetchError),
    /// The response is no success (2xx), so its body is not what was asked for. `bytes()` gives it.
    Status(StatusCode),
    /// The body has more bytes than allowed. `at_most()` allows more.
    TooLong {
        /// The most bytes allowed.
        most: u64,
    },
    /// The body is coded, for example compressed, as this Content-Encoding says.
    Coding(String),
    /// The body is in this charset, which is not UTF-8.
    Charset(String),
    /// The body is said to be UTF-8, or says nothing, and is not.
    NotUtf8 {
        /// The number of bytes in front of the first one that is wrong.
        at: usize,
        /// The Content-Type, if there is one.
        content_type: Option<String>,
    },
    /// The body is no JSON, or not of the type that was asked for.
    #[cfg(feature = "json")]
    Json {
        /// What is wrong, with line and column.
        error: serde_json::Error,
        /// The Content-Type, if there is one.
        content_type: Option<String>,
    },
}

/// What a field says, as far as a message shows it.
pub(crate) fn shown(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let value = String::from_utf8_lossy(headers.get(name)?.as_bytes()).into_owned();
    Some(value.chars().take(MOST_SHOWN).collect())
}

impl BodyError {
    pub(crate) fn not_utf8(at: usize, headers: &HeaderMap) -> Self {
        Self::NotUtf8 {
            at,
            content_type: shown(headers, &CONTENT_TYPE),
        }
    }

    #[cfg(feature = "json")]
    pub(crate) fn json(error: serde_json::Error, headers: &HeaderMap) -> Self {
        Self::Json {
            error,
            content_type: shown(headers, &CONTENT_TYPE),
        }
    }
}

impl From<FetchError> for BodyError {
    fn from(e: FetchError) -> Self {
        Self::Fetch(e)
    }
}

/// The type of a body, behind what is wrong with it.
struct Type<'a>(&'a Option<String>);

impl fmt::Display for Type<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(content_type) => write!(f, "its Content-Type is {content_type:?}"),
            None => f.write_str("it has no Content-Type"),
        }
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fetch(e) => e.fmt(f),
            Self::Status(status) => write!(
                f,
                "the answer is {status}, and only a success (2xx) is read as text or JSON; read this one with bytes()"
            ),
            Self::TooLong { most } => write!(
                f,
                "the body has more than the {most} bytes that are allowed; allow more with at_most()"
            ),
            Self::Coding(coding) => write!(
                f,
                "the body has the Content-Encoding {coding:?}, and only one without is read as text or JSON; send no \
                 Accept-Encoding, or decode what bytes() gives"
            ),
            Self::Charset(charset) => write!(
                f,
                "the body has the charset {charset:?}, and only UTF-8 is read as text or JSON; decode what bytes() gives"
            ),
            Self::NotUtf8 { at, content_type } => write!(
                f,
                "the body is not UTF-8 from byte {at} on, and {}; read it with bytes()",
                Type(content_type)
            ),
            #[cfg(feature = "json")]
            Self::Json {
                error,
                content_type,
            } => write!(
                f,
                "the body is not the JSON that was asked for: {error}; {}",
                Type(content_type)
            ),
        }
    }
}

impl Error for BodyError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Fetch(e) => e.source(),
            #[cfg(feature = "json")]
            Self::Json { error, .. } => error.source(),
            _ => None,
        }
    }
}
