//! Long bodies go to a client without being read: the kernel sends them from the cache's files.
//!
//! The HTTP server (hyper) writes bytes of memory and nothing else. So the body of an answer gives it a [`Piece`] in place
//! of a part of a file. As bytes, a piece has those of a region of memory that nobody looks at. The [`FileStream`] below
//! the server knows this region by its address, and there has the kernel send the part (`sendfile`).
//!
//! 1. Parts are sent in the order in which their pieces were made: over HTTP/1, one answer follows the other. Answers over
//!    HTTP/2 have no such pieces.
//! 2. The server says of each piece how many of its bytes it has got rid of. That must never be more than were sent.
//!    Otherwise the server has copied bytes of the region, and the connection breaks before they go to the client.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use brisk_cache::FilePart;
use bytes::{Buf, Bytes};
use rustix::fs::sendfile;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// The most bytes of a piece.
pub const MOST: usize = 2 << 20;

/// The region. It is never read, so it takes no memory.
static REGION: [u8; MOST] = [0; MOST];

/// Whether bytes are of the region.
fn is_of_region(bytes: &[u8]) -> bool {
    !bytes.is_empty() && REGION.as_ptr_range().contains(&bytes.as_ptr())
}

/// A piece of a body.
#[derive(Debug)]
pub enum Piece {
    /// In memory.
    Bytes(Bytes),
    /// In a file: so many bytes are left.
    InFile(usize, Arc<Files>),
}

impl From<Bytes> for Piece {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::InFile(left, _) => *left,
        }
    }

    fn chunk(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::InFile(left, _) => REGION.get(..*left).unwrap_or(&REGION),
        }
    }

    fn advance(&mut self, count: usize) {
        match self {
            Self::Bytes(bytes) => bytes.advance(count),
            Self::InFile(left, files) => {
                *left = left.saturating_sub(count);
                files.done(count);
            }
        }
    }
}

/// The parts of files that go to a client.
#[derive(Debug, Default)]
pub struct Files(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Each with the number of its bytes that have gone.
    parts: VecDeque<(FilePart, usize)>,
    /// Bytes that have gone, and that the server has not got rid of.
    sent: usize,
    /// The server has copied bytes of the region.
    is_broken: bool,
}

impl Files {
    /// The piece that stands for a part, which is the next one to be sent.
    pub fn piece(self: &Arc<Self>, part: FilePart) -> Piece {
        let piece = Piece::InFile(part.len(), Arc::clone(self));
        if !part.is_empty() {
            self.state().parts.push_back((part, 0));
        }
        piece
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn done(&self, count: usize) {
        let mut state = self.state();
        match state.sent.checked_sub(count) {
            Some(left) => state.sent = left,
            None => state.is_broken = true,
        }
    }
}

/// The socket of a client, for a server that writes pieces.
#[derive(Debug)]
pub struct FileStream {
    socket: TcpStream,
    files: Arc<Files>,
}

impl FileStream {
    /// The socket, to which these files go.
    pub fn new(socket: TcpStream, files: Arc<Files>) -> Self {
        Self { socket, files }
    }

    /// Sends at most so many bytes of the first part.
    fn poll_send(&self, cx: &mut Context<'_>, most: usize) -> Poll<io::Result<usize>> {
        let mut state = self.files.state();
        let State {
            parts,
            sent,
            is_broken: _,
        } = &mut *state;
        let Some((part, gone)) = parts.front_mut() else {
            return Poll::Ready(Err(io::Error::other(
                "a piece was written that is in no file",
            )));
        };
        let left = part.len().saturating_sub(*gone);
        let came = loop {
            ready!(self.socket.poll_write_ready(cx))?;
            let mut offset = part.offset().saturating_add(*gone as u64);
            let sent = self.socket.try_io(Interest::WRITABLE, || {
                let sent = sendfile(&self.socket, part.file(), Some(&mut offset), left.min(most));
                Ok(sent?)
            });
            match sent {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                sent => break sent?,
            }
        };
        if came == 0 {
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "a file of the cache was cut while it was sent",
            )));
        }
        *gone = gone.saturating_add(came);
        *sent = sent.saturating_add(came);
        if came == left {
            parts.pop_front();
        }
        Poll::Ready(Ok(came))
    }
}

impl AsyncRead for FileStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_read(cx, buf)
    }
}

impl AsyncWrite for FileStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.files.state().is_broken {
            return Poll::Ready(Err(io::Error::other(
                "bytes in place of a file were about to be written",
            )));
        }
        let begin = bufs.iter().take_while(|buf| buf.is_empty()).count();
        let bufs = bufs.get(begin..).unwrap_or_default();
        let plain = bufs.iter().take_while(|buf| !is_of_region(buf)).count();
        match (plain, bufs) {
            (0, [first, ..]) => this.poll_send(cx, first.len()),
            _ => Pin::new(&mut this.socket)
                .poll_write_vectored(cx, bufs.get(..plain).unwrap_or_default()),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::convert::Infallible;
    use std::net::{Ipv4Addr, SocketAddr};

    use brisk_cache::{About, Cache, CacheOptions};
    use http::Response;
    use http_body_util::StreamBody;
    use hyper::body::Frame;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    fn value() -> Vec<u8> {
        // No zero, so that the region is told apart.
        (0..5_000_000u32).map(|n| (n % 251) as u8 + 1).collect()
    }

    /// A server whose answer is the value in pieces, between bytes of memory.
    async fn server(home: &std::path::Path, is_vectored: bool) -> SocketAddr {
        let cache = Cache::open(home, CacheOptions::new()).unwrap();
        cache.insert(b"key", &value(), About::default()).unwrap();
        let hit = Arc::new(cache.get_unread(b"key").unwrap().unwrap());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (socket, _) = listener.accept().await.unwrap();
            let files = Arc::new(Files::default());
            let stream = FileStream::new(socket, Arc::clone(&files));
            let service = service_fn(move |_| {
                let (hit, files) = (Arc::clone(&hit), Arc::clone(&files));
                let frames = (0..5).map(move |at| {
                    let piece = match at {
                        0 => Bytes::from_static(b"before").into(),
                        4 => Bytes::from_static(b"behind").into(),
                        at => {
                            let start = (at - 1) * MOST;
                            let part = start..hit.len().min(start + MOST);
                            files.piece(hit.part_in_file(part).unwrap().unwrap())
                        }
                    };
                    Ok::<_, Infallible>(Frame::<Piece>::data(piece))
                });
                let body = StreamBody::new(futures_util::stream::iter(frames));
                async move { Ok::<_, Infallible>(Response::new(body)) }
            });
            hyper::server::conn::http1::Builder::new()
                .writev(is_vectored)
                .serve_connection(TokioIo::new(stream), service)
                .await
                .ok();
        });
        address
    }

    async fn exchange(address: SocketAddr) -> Vec<u8> {
        let mut client = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = b"GET / HTTP/1.1\r\nhost: a\r\n\r\nGET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
        client.write_all(request).await.unwrap();
        let mut all = Vec::new();
        client.read_to_end(&mut all).await.ok();
        all
    }

    #[tokio::test]
    async fn parts_of_files_come_in_their_places() {
        let home = tempfile::tempdir().unwrap();
        let all = exchange(server(home.path(), true).await).await;
        let mut expected = b"before".to_vec();
        expected.extend(value());
        expected.extend(b"behind");
        // Two answers in chunks: without their heads and sizes, each is the body.
        let mut left = all.as_slice();
        for _ in 0..2 {
            let mut body = Vec::new();
            let head = left.windows(4).position(|at| at == b"\r\n\r\n").unwrap();
            left = &left[head + 4..];
            loop {
                let line = left.windows(2).position(|at| at == b"\r\n").unwrap();
                let size = std::str::from_utf8(&left[..line]).unwrap();
                let size = usize::from_str_radix(size, 16).unwrap();
                body.extend_from_slice(&left[line + 2..line + 2 + size]);
                left = &left[line + 2 + size + 2..];
                if size == 0 {
                    break;
                }
            }
            assert!(body == expected, "{} of {}", body.len(), expected.len());
        }
        assert!(left.is_empty());
    }

    #[tokio::test]
    async fn a_server_that_copies_pieces_sends_none_of_the_region() {
        let home = tempfile::tempdir().unwrap();
        let all = exchange(server(home.path(), false).await).await;
        assert!(!all.contains(&0), "{} bytes", all.len());
    }
}
