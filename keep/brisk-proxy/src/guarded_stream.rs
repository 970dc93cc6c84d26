//! The connection of a client: what it sends is judged before the server reads it, and waiting has an end.
//!
//! The server behind this (hyper) reads HTTP/1 leniently. So this reads each request first, and lets only bytes through
//! that everybody reads alike. In place of a request that is refused, the server gets one of [`REFUSED`], and the service
//! answers it with the reason that the [`Connection`] has. Requests before it are answered as if nothing were wrong, and
//! nothing behind it is read.
//!
//! Bytes of HTTP/2 pass unjudged: frames have one length, and the server refuses the fields of HTTP/1 there. A client that
//! sends bytes of HTTP/2 may do nothing with them, so there its requests and the pieces that it takes say that it is there.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http::StatusCode;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::chunks::Chunks;
use crate::request_head::{Framing, Refusal, check, head_len};

/// The method of the request that stands for a refused one.
pub const REFUSED: &str = "REFUSED-BY-BRISK";

/// What the server reads in place of a refused request.
const STAND_IN: &[u8] =
    b"REFUSED-BY-BRISK / HTTP/1.1\r\nhost: refused\r\nconnection: close\r\n\r\n";

/// With these bytes a client says that it speaks HTTP/2.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How many bytes are read at a time.
const PIECE: usize = 16 * 1024;

/// How long a client may take.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// From the first byte of a head to its last one.
    pub head: Duration,
    /// Between two requests.
    pub idle: Duration,
    /// Between two pieces of a body, and until it takes a piece of an answer.
    pub piece: Duration,
}

/// What is known of a client's connection.
#[derive(Debug)]
pub struct Connection {
    /// Who sends the requests.
    pub peer: SocketAddr,
    /// How long the client may take.
    pub patience: Patience,
    flights: Mutex<Flights>,
    /// Why the last request is refused.
    refusal: OnceLock<Refusal>,
}

/// The requests that have no whole answer yet.
#[derive(Debug)]
struct Flights {
    /// With each, since when it has a piece of its answer that the client has not taken.
    all: HashMap<u64, Option<Instant>>,
    next: u64,
    /// When the last of them ended.
    ended: Instant,
}

impl Connection {
    /// The connection of this peer, which may take so long.
    pub fn new(peer: SocketAddr, patience: Patience) -> Arc<Self> {
        Arc::new(Self {
            peer,
            patience,
            flights: Mutex::new(Flights {
                all: HashMap::new(),
                next: 0,
                ended: Instant::now(),
            }),
            refusal: OnceLock::new(),
        })
    }

    fn flights(&self) -> MutexGuard<'_, Flights> {
        // Each change is one entry, so a panic leaves the map whole.
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_busy(&self) -> bool {
        !self.flights().all.is_empty()
    }

    /// Until when a client of HTTP/2 may do nothing. One that waits for its answers may be silent.
    fn deadline(&self) -> Instant {
        let flights = self.flights();
        match flights.all.values().flatten().min() {
            Some(oldest) => *oldest + self.patience.piece,
            None if flights.all.is_empty() => flights.ended + self.patience.idle,
            None => Instant::now() + self.patience.idle,
        }
    }

    /// Why the last request is refused.
    pub fn refusal(&self) -> Option<&Refusal> {
        self.refusal.get()
    }
}

/// A request that has no whole answer yet.
#[derive(Debug)]
pub struct InFlight {
    connection: Arc<Connection>,
    number: u64,
}

impl InFlight {
    /// Counts a request until this is dropped.
    pub fn begin(connection: &Arc<Connection>) -> Self {
        let mut flights = connection.flights();
        let number = flights.next;
        flights.next += 1;
        flights.all.insert(number, None);
        drop(flights);
        Self {
            connection: Arc::clone(connection),
            number,
        }
    }

    /// The client has got a piece of its answer to take.
    pub fn gives(&self) {
        let now = Some(Instant::now());
        self.connection.flights().all.insert(self.number, now);
    }

    /// The client has taken all that it has got.
    pub fn is_taken(&self) {
        self.connection.flights().all.insert(self.number, None);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut flights = self.connection.flights();
        flights.all.remove(&self.number);
        flights.ended = Instant::now();
    }
}

/// What the next bytes of a client are.
#[derive(Debug)]
enum Expected {
    /// Of the first head, or of HTTP/2.
    Start,
    /// Of a head.
    Head,
    /// Of a body: so many are left.
    Length(u64),
    /// Of a body in chunks.
    Chunks(Chunks),
    /// Of HTTP/2.
    Http2,
    /// Of nobody's interest: a request was refused.
    Nothing,
    /// The same, but the server has the head of that request already, so its body must break off.
    Break,
}

/// What a deadline is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    Idle,
    Head,
    Body,
    Http2,
}

/// The connection of a client, as the server reads and writes it.
pub struct GuardedStream<S> {
    inner: S,
    connection: Arc<Connection>,
    expected: Expected,
    /// What has been read. The first `judged` bytes of it may go to the server.
    read: Vec<u8>,
    judged: usize,
    reading: Option<(Wait, Pin<Box<Sleep>>)>,
    writing: Option<Pin<Box<Sleep>>>,
}

impl<S> GuardedStream<S> {
    /// Guards a connection.
    pub fn new(inner: S, connection: Arc<Connection>) -> Self {
        Self {
            inner,
            connection,
            expected: Expected::Start,
            read: Vec::new(),
            judged: 0,
            reading: None,
            writing: None,
        }
    }

    /// Judges what has been read and not been judged.
    fn judge(&mut self) -> Result<(), Refusal> {
        while let Some(new) = self.read.get(self.judged..).filter(|new| !new.is_empty()) {
            let step = match &mut self.expected {
                Expected::Start => {
                    if new.starts_with(HTTP2_PREFACE) {
                        self.expected = Expected::Http2;
                    } else if HTTP2_PREFACE.starts_with(new) {
                        return Ok(());
                    } else {
                        self.expected = Expected::Head;
                    }
                    continue;
                }
                Expected::Head => {
                    // An empty line before a request is no mistake (RFC 9112, section 2.2).
                    if new.starts_with(b"\r\n") {
                        self.read.drain(self.judged..self.judged.saturating_add(2));
                        continue;
                    }
                    let Some(length) = head_len(new)? else {
                        return Ok(());
                    };
                    match check(new.get(..length).unwrap_or_default())? {
                        Framing::Length(0) => {}
                        Framing::Length(length) => self.expected = Expected::Length(length),
                        Framing::Chunked => self.expected = Expected::Chunks(Chunks::new()),
                    }
                    length
                }
                Expected::Length(left) => {
                    let step = usize::try_from(*left).map_or(new.len(), |left| left.min(new.len()));
                    *left = left.saturating_sub(step as u64);
                    if *left == 0 {
                        self.expected = Expected::Head;
                    }
                    step
                }
                Expected::Chunks(chunks) => {
                    let step = chunks.take(new)?;
                    if *chunks == Chunks::Done {
                        self.expected = Expected::Head;
                    }
                    step
                }
                Expected::Http2 => new.len(),
                Expected::Nothing | Expected::Break => {
                    self.read.truncate(self.judged);
                    return Ok(());
                }
            };
            self.judged = self.judged.saturating_add(step);
        }
        Ok(())
    }

    /// Refuses the request at hand. What was judged before still goes to the server.
    fn refuse(&mut self, refusal: Refusal) {
        // Only the first refusal counts: nothing is read after it.
        self.connection.refusal.get_or_init(|| refusal);
        self.read.truncate(self.judged);
        self.expected = match self.expected {
            Expected::Length(_) | Expected::Chunks(_) => Expected::Break,
            _ => {
                self.read.extend_from_slice(STAND_IN);
                self.judged = self.read.len();
                Expected::Nothing
            }
        };
    }

    /// What the client is waited for, and how long. None: it is not waited for.
    fn wait(&self) -> Option<(Wait, Duration)> {
        let begun = self.read.len() > self.judged;
        let patience = self.connection.patience;
        match self.expected {
            Expected::Length(_) | Expected::Chunks(_) => Some((Wait::Body, patience.piece)),
            Expected::Start | Expected::Head if begun => Some((Wait::Head, patience.head)),
            Expected::Start | Expected::Head => Some((Wait::Idle, patience.idle)),
            Expected::Http2 => Some((Wait::Http2, patience.idle.min(patience.piece))),
            Expected::Nothing | Expected::Break => None,
        }
    }

    /// Whether a client that sends nothing has been waited for long enough.
    fn is_out_of_time(&mut self, cx: &mut Context<'_>) -> Option<Wait> {
        let Some((wait, patience)) = self.wait() else {
            self.reading = None;
            return None;
        };
        loop {
            let sleep = match &mut self.reading {
                Some((armed, sleep)) if *armed == wait => sleep,
                _ => {
                    let sleep = Box::pin(tokio::time::sleep(patience));
                    &mut self.reading.insert((wait, sleep)).1
                }
            };
            if sleep.as_mut().poll(cx).is_pending() {
                return None;
            }
            let now = Instant::now();
            let deadline = match wait {
                // A client that waits for its answer may be silent.
                Wait::Idle if self.connection.is_busy() => now + patience,
                Wait::Http2 => self.connection.deadline(),
                Wait::Idle | Wait::Head | Wait::Body => now,
            };
            if deadline <= now {
                return Some(wait);
            }
            sleep.as_mut().reset(deadline);
        }
    }
}

impl<S: AsyncRead + Unpin> GuardedStream<S> {
    /// Reads more. Ready with 0: the client has closed its side.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let start = self.read.len();
        self.read.resize(start.saturating_add(PIECE), 0);
        let mut piece = ReadBuf::new(self.read.get_mut(start..).unwrap_or_default());
        let polled = Pin::new(&mut self.inner).poll_read(cx, &mut piece);
        let come = piece.filled().len();
        self.read.truncate(start.saturating_add(come));
        polled.map_ok(|()| come)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for GuardedStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if this.judged > 0 {
                let step = this.judged.min(buf.remaining());
                buf.put_slice(this.read.get(..step).unwrap_or_default());
                this.read.drain(..step);
                this.judged = this.judged.saturating_sub(step);
                if this.read.is_empty() && this.read.capacity() > PIECE {
                    // A connection that waits holds no memory.
                    this.read = Vec::new();
                }
                return Poll::Ready(Ok(()));
            }
            match this.expected {
                // The server answers, and then closes.
                Expected::Nothing => return Poll::Pending,
                Expected::Break => {
                    let reason = this.connection.refusal().map(Refusal::to_string);
                    let reason = reason.unwrap_or_default();
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, reason)));
                }
                _ => {}
            }
            match this.poll_more(cx) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Ok(())),
                Poll::Ready(Ok(_)) => {
                    if let Some((Wait::Idle | Wait::Body, _)) = this.reading {
                        this.reading = None;
                    }
                    if let Err(refusal) = this.judge() {
                        this.refuse(refusal);
                    }
                    if matches!(this.expected, Expected::Head) && this.judged > 0 {
                        this.reading = None;
                    }
                }
                Poll::Ready(Err(e)) => return Poll::Ready(Err(e)),
                Poll::Pending => {
                    if this.read.is_empty() {
                        this.read = Vec::new();
                    }
                    match this.is_out_of_time(cx) {
                        None => return Poll::Pending,
                        Some(Wait::Idle | Wait::Http2) => return Poll::Ready(Ok(())),
                        Some(Wait::Head | Wait::Body) => this.refuse(Refusal::new(
                            StatusCode::REQUEST_TIMEOUT,
                            "the request did not come in time",
                        )),
                    }
                }
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> GuardedStream<S> {
    /// Gives a client that takes nothing only so much time.
    fn guard_write<T>(
        &mut self,
        cx: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.writing = None;
            return polled;
        }
        let patience = self.connection.patience.piece;
        let sleep = self
            .writing
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        sleep.as_mut().poll(cx).map(|()| {
            Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the client did not take its answer in time",
            ))
        })
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for GuardedStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.inner).poll_write(cx, buf);
        this.guard_write(cx, polled)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.inner).poll_write_vectored(cx, bufs);
        this.guard_write(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}
