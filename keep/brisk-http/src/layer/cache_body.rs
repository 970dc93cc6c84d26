use std::fmt;
use std::io;
use std::mem;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll};
use std::time::Duration;

use brisk_cache::{FilePart, Hit};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Sleep, sleep};

use super::directory::Directory;
use super::fetch_error::{BoxError, FetchError};
use super::fetches::Interest;
use super::spool::SpoolReader;
use crate::body_name::BodyName;
use crate::storage::Storage;

/// The most bytes of a stored body in one piece: so many are checked before they are sent.
const PIECE: usize = 256 * 1024;

/// The body of a response of a [`CacheService`](super::CacheService).
///
/// That of a hit borrows from the cache's mapping and copies nothing ([`CacheBody::stored`]). That of a miss gives bytes
/// as they come from the origin. A body that broke off ends with an error, never as if it were whole.
#[derive(Debug, Default)]
pub struct CacheBody {
    inner: Inner,
    name: Option<BodyName>,
}

#[derive(Default)]
enum Inner {
    #[default]
    Empty,
    /// In memory, and checked.
    Copied(Bytes),
    Stored {
        hit: Hit,
        left: Range<usize>,
        /// Removes the entry if the body turns out to be damaged. A short body was looked at before.
        remove: Option<Remove>,
    },
    /// A fetch that others may read, too.
    Fetched {
        reader: SpoolReader,
        len: Option<u64>,
        _interest: Interest,
    },
    /// Straight from the origin.
    Direct(Direct),
}

/// Removes an entry. It may wait for the disk.
type Remove = Box<dyn FnOnce() + Send + Sync>;

impl From<Inner> for CacheBody {
    fn from(inner: Inner) -> Self {
        Self { inner, name: None }
    }
}

/// The body of an origin, which nobody else reads.
struct Direct {
    /// Never locked. It makes the body `Sync`, as some clients ask for.
    body: Mutex<Pin<Box<dyn Body<Data = Bytes, Error = BoxError> + Send>>>,
    is_end: bool,
    hint: SizeHint,
    expected: Option<u64>,
    found: u64,
    /// How long it may pause.
    most: Option<Duration>,
    /// When it will have paused too long. None while nobody waits for it.
    late: Option<Pin<Box<Sleep>>>,
}

impl CacheBody {
    pub(crate) fn empty() -> Self {
        Inner::Empty.into()
    }

    /// A range of a copy, which was checked when it was made.
    pub(crate) fn of_copy(copy: &Bytes, range: Range<usize>) -> Self {
        let end = range.end.min(copy.len());
        match range.start >= end {
            true => Self::empty(),
            false => Inner::Copied(copy.slice(range.start..end)).into(),
        }
    }

    /// `entry` names a long body, which is removed if it is damaged.
    pub(crate) fn of_hit(
        hit: Hit,
        range: Range<usize>,
        entry: Option<(Directory, String)>,
    ) -> Self {
        let remove = entry.map(|(directory, key)| -> Remove {
            Box::new(move || {
                let _noted: io::Result<()> = directory.remove_policies(&key);
            })
        });
        Self::of_range(hit, range, remove)
    }

    /// A value that a program keeps in a cache itself, such as one that it has made of another body. If the value turns out
    /// to be damaged when it is read, `remove` is called, on a thread that may wait.
    pub fn of_value(hit: Hit, remove: impl FnOnce() + Send + Sync + 'static) -> Self {
        let whole = 0..hit.len();
        match hit.try_into_copy() {
            Ok(copy) => Self::of_copy(&copy, whole),
            Err(hit) => Self::of_range(hit, whole, Some(Box::new(remove))),
        }
    }

    fn of_range(hit: Hit, range: Range<usize>, remove: Option<Remove>) -> Self {
        match range.start >= range.end {
            true => Self::empty(),
            false => Inner::Stored {
                hit,
                left: range,
                remove,
            }
            .into(),
        }
    }

    pub(crate) fn named(self, name: Option<BodyName>) -> Self {
        Self { name, ..self }
    }

    /// The name of the stored body, if this began as all of it. A program that has made something of that body need not read it
    /// again.
    pub fn name(&self) -> Option<BodyName> {
        self.name
    }

    pub(crate) fn of_spool(reader: SpoolReader, len: Option<u64>, interest: Interest) -> Self {
        Inner::Fetched {
            reader,
            len,
            _interest: interest,
        }
        .into()
    }

    /// `expected` is the length that the head announces, and `most` is how long the body may pause.
    pub(crate) fn direct<B>(body: B, expected: Option<u64>, most: Option<Duration>) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (is_end, hint) = (body.is_end_stream(), body.size_hint());
        Inner::Direct(Direct {
            body: Mutex::new(Box::pin(Converted(Box::pin(body)))),
            is_end,
            hint,
            expected,
            found: 0,
            most,
            late: None,
        })
        .into()
    }

    /// Takes at most `most` of the bytes that are still to come, as a part of the file that has them, for a server that has
    /// the kernel send it (`sendfile`). They are checked as [`Hit::part_in_file`] says, and come in no frame any more.
    /// None if no file has them as they are.
    ///
    /// # Errors
    ///
    /// [`FetchError`], if they are damaged. Then there is no more.
    pub fn take_in_file(&mut self, most: usize) -> Option<Result<FilePart, FetchError>> {
        let Inner::Stored { hit, left, remove } = &mut self.inner else {
            return None;
        };
        let piece = left.start..left.end.min(left.start.saturating_add(most));
        let end = piece.end;
        let taken = match hit.part_in_file(piece) {
            Ok(part) => Ok(part?),
            Err(e) => {
                remove.take().into_iter().for_each(forget);
                Err(FetchError::stored(e))
            }
        };
        left.start = end;
        if taken.is_err() || left.start >= left.end {
            self.inner = Inner::Empty;
        }
        Some(taken)
    }

    /// The stored value and the bytes of it that are still to come, if this is the body of a hit. A server can send them
    /// without looking at them. They are checked when they are read: [`Hit::part`].
    pub fn stored(&self) -> Option<(&Hit, Range<usize>)> {
        match &self.inner {
            Inner::Stored { hit, left, .. } => Some((hit, left.clone())),
            _ => None,
        }
    }
}

impl Body for CacheBody {
    type Data = Bytes;
    type Error = FetchError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, FetchError>>> {
        let polled = match &mut self.inner {
            Inner::Empty => Poll::Ready(None),
            Inner::Copied(bytes) => {
                let bytes = mem::take(bytes);
                self.inner = Inner::Empty;
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            Inner::Stored { hit, left, remove } => {
                let piece = left.start..left.end.min(left.start.saturating_add(PIECE));
                left.start = piece.end;
                match hit.part_bytes(piece) {
                    Ok(bytes) if left.start >= left.end => {
                        self.inner = Inner::Empty;
                        return Poll::Ready(Some(Ok(Frame::data(bytes))));
                    }
                    Ok(bytes) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                    Err(e) => {
                        remove.take().into_iter().for_each(forget);
                        Poll::Ready(Some(Err(FetchError::stored(e))))
                    }
                }
            }
            Inner::Fetched { reader, .. } => {
                let next = reader.poll_next(context);
                next.map(|next| next.map(|bytes| bytes.map(Frame::data)))
            }
            Inner::Direct(direct) => direct.poll_frame(context),
        };
        // After an error, there is no more.
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.inner = Inner::Empty;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Inner::Empty => true,
            Inner::Copied(_) | Inner::Stored { .. } => false,
            Inner::Fetched { reader, .. } => reader.is_at_end(),
            Inner::Direct(direct) => direct.is_end,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Empty => SizeHint::with_exact(0),
            Inner::Copied(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Inner::Stored { left, .. } => SizeHint::with_exact(left.len() as u64),
            Inner::Fetched { reader, len, .. } => match len {
                Some(len) => SizeHint::with_exact(len.saturating_sub(reader.position())),
                None => SizeHint::default(),
            },
            Inner::Direct(direct) => direct.hint,
        }
    }
}

impl Direct {
    fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, FetchError>>> {
        let Ok(body) = self.body.get_mut() else {
            return Poll::Ready(Some(Err(FetchError::ended())));
        };
        let polled = body.as_mut().poll_frame(context);
        (self.is_end, self.hint) = (body.is_end_stream(), body.size_hint());
        let Poll::Ready(frame) = polled else {
            return self.poll_late(context);
        };
        self.late = None;
        let expected = self.expected;
        Poll::Ready(match frame {
            Some(Ok(frame)) => {
                let len = frame.data_ref().map_or(0, Bytes::len) as u64;
                self.found = self.found.saturating_add(len);
                match expected.filter(|expected| self.found > *expected) {
                    Some(expected) => Some(Err(FetchError::length(expected, self.found))),
                    None => {
                        // A body that ends too early must not end at once.
                        self.is_end &= expected.is_none_or(|expected| self.found == expected);
                        Some(Ok(frame))
                    }
                }
            }
            Some(Err(e)) => Some(Err(FetchError::upstream(e))),
            None => expected
                .filter(|expected| self.found < *expected)
                .map(|expected| Err(FetchError::length(expected, self.found))),
        })
    }

    /// An error if nothing has come for too long, while somebody waited.
    fn poll_late(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, FetchError>>> {
        let Some(most) = self.most else {
            return Poll::Pending;
        };
        let late = self.late.get_or_insert_with(|| Box::pin(sleep(most)));
        let polled = late.as_mut().poll(context);
        polled.map(|()| Some(Err(FetchError::no_more(most))))
    }
}

/// A body whose errors are boxed.
struct Converted<B>(Pin<Box<B>>);

impl<B> Body for Converted<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let polled = self.0.as_mut().poll_frame(context);
        polled.map(|frame| frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

/// Removes an entry whose body is damaged, so that the next request fetches it.
fn forget(remove: Remove) {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn_blocking(remove)),
        Err(_) => remove(),
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("Empty"),
            Self::Copied(bytes) => f.debug_tuple("Copied").field(&bytes.len()).finish(),
            Self::Stored { hit, left, .. } => {
                f.debug_tuple("Stored").field(hit).field(left).finish()
            }
            Self::Fetched { len, .. } => f.debug_tuple("Fetched").field(len).finish(),
            Self::Direct(direct) => f.debug_tuple("Direct").field(&direct.expected).finish(),
        }
    }
}
