use std::error::Error;
use std::fmt;
use std::io;
use std::marker::PhantomData;

use brisk_cache::{Hit, Stored};
use http::HeaderMap;

use super::cache_body::CacheBody;
use super::fetch_error::FetchError;
use crate::engine::Found;

/// What [`CacheService::get_as`](super::CacheService::get_as) found or fetched.
pub enum TableAnswer<T: Stored> {
    /// The table of a 200.
    Table(TableOf<T>),
    /// A response with another status, as [`CacheService`](super::CacheService) gives it: no table is made of it. A 504 with
    /// no body also says that nobody may be asked.
    Response(http::Response<CacheBody>),
}

impl<T: Stored> fmt::Debug for TableAnswer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Table(table) => table.fmt(f),
            Self::Response(response) => response.fmt(f),
        }
    }
}

/// A table that was made of the body of a response.
pub struct TableOf<T: Stored> {
    head: Head,
    table: Table,
    source: TableSource,
    layout: PhantomData<fn() -> T>,
}

/// Where a table came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TableSource {
    /// It was stored. Its response was used without asking, or is stale and stands in for an origin that fails.
    Stored,
    /// It was stored, and the origin said that its response still holds.
    Validated,
    /// It was made now, of a body that was stored.
    Body,
    /// It was made now, of a response that came now.
    Fetched,
}

pub(crate) enum Head {
    /// As it is stored. Nothing is made of it until somebody asks.
    Found(Found<Hit>),
    Fields(HeaderMap),
}

pub(crate) enum Table {
    Stored(Hit),
    Made(Vec<u8>),
}

impl<T: Stored> TableOf<T> {
    pub(crate) fn new(head: Head, table: Table, source: TableSource) -> Self {
        Self {
            head,
            table,
            source,
            layout: PhantomData,
        }
    }

    /// A look at the table. What is not checked yet is checked as [`Stored::view_parts`] says.
    ///
    /// # Errors
    ///
    /// As [`Hit::part`]: then who asks again finds nothing, and the response is fetched anew. And
    /// [`io::ErrorKind::InvalidData`] if the bytes are no such table.
    pub fn view(&self) -> io::Result<T::View<'_>> {
        let (parts, len) = match &self.table {
            Table::Stored(hit) => (hit.parts(), hit.len()),
            Table::Made(table) => (table.as_slice().into(), table.len()),
        };
        T::view_parts(parts)?.ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "a table of {len} bytes is not of the layout {:016x}; fetch it again",
                    T::FINGERPRINT
                ),
            )
        })
    }

    /// The stored value. None if the table was made now.
    pub fn hit(&self) -> Option<&Hit> {
        match &self.table {
            Table::Stored(hit) => Some(hit),
            Table::Made(_) => None,
        }
    }

    /// Where it came from.
    pub fn source(&self) -> TableSource {
        self.source
    }

    /// The fields of the response. They are made when this is called. If a stored response was used without asking, they
    /// have neither `Age` nor `Cache-Status`.
    pub fn headers(&self) -> HeaderMap {
        match &self.head {
            Head::Fields(headers) => headers.clone(),
            Head::Found(found) => found
                .policy()
                .map(|policy| policy.headers(false))
                .unwrap_or_default(),
        }
    }
}

impl<T: Stored> fmt::Debug for TableOf<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = match &self.table {
            Table::Stored(hit) => hit.len(),
            Table::Made(table) => table.len(),
        };
        f.debug_struct("TableOf")
            .field("source", &self.source)
            .field("len", &len)
            .finish_non_exhaustive()
    }
}

/// Why there is no table.
#[derive(Debug)]
#[non_exhaustive]
pub enum TableError<E> {
    /// The response did not come, and none that is stored may stand in.
    Fetch(FetchError),
    /// No table could be made of the response. Nothing of it was stored, and what was stored before stays.
    Make(E),
    /// What was made is no table of the layout. Nothing was stored.
    Layout {
        /// The number of bytes that were made.
        len: usize,
        /// The layout.
        fingerprint: u64,
    },
    /// The body has more bytes than allowed. Nothing was stored.
    TooLong {
        /// The most bytes allowed.
        most: u64,
    },
}

impl<E> From<FetchError> for TableError<E> {
    fn from(e: FetchError) -> Self {
        Self::Fetch(e)
    }
}

impl<E: fmt::Display> fmt::Display for TableError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fetch(e) => e.fmt(f),
            Self::Make(e) => e.fmt(f),
            Self::Layout { len, fingerprint } => write!(
                f,
                "what was made of a response has {len} bytes and is not of the layout {fingerprint:016x}; build it as that \
                 layout says"
            ),
            Self::TooLong { most } => {
                write!(
                    f,
                    "the body of a response has more than the {most} bytes that are allowed"
                )
            }
        }
    }
}

impl<E: Error + 'static> Error for TableError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Fetch(e) => e.source(),
            Self::Make(e) => e.source(),
            Self::Layout { .. } | Self::TooLong { .. } => None,
        }
    }
}
