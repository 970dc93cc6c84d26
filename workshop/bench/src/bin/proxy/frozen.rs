//! A package index as it was once: pages and metadata that were recorded, and a server that is as far away as told.
//!
//! An answer comes after a delay, and all answers together have one rate. Pages go out with gzip to who takes it, as a
//! public index sends them.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::time::{Instant, Sleep};

/// How far away the index is.
pub const DELAY: Duration = Duration::from_millis(30);
pub const BITS_PER_SECOND: u64 = 50_000_000;

/// The most bytes that go at once.
const PIECE: usize = 16 * 1024;

/// What is kept of an answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Head {
    path: String,
    status: u16,
    content_type: String,
}

struct Page {
    head: Head,
    plain: Bytes,
    gzip: Option<Bytes>,
    tag: HeaderValue,
}

/// Recorded pages, and where they come from while there are none.
pub struct Frozen {
    directory: PathBuf,
    pages: Mutex<HashMap<String, Arc<Page>>>,
    /// The prefix under which the recording proxy has files, and who it is.
    recorder: Option<SocketAddr>,
}

/// How a server of frozen pages answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// At once.
    Near,
    /// With delay and rate. Index pages are fresh for ten minutes.
    Far,
    /// With delay and rate. Index pages must be asked for anew.
    FarAndStale,
}

impl Frozen {
    /// The pages in a directory. With a recorder, it is asked for others, and they are kept.
    pub fn open(directory: &Path, recorder: Option<SocketAddr>) -> Result<Self> {
        fs::create_dir_all(directory)?;
        let mut pages = HashMap::new();
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path
                .extension()
                .is_some_and(|extension| extension == "json")
            {
                let head: Head = serde_json::from_slice(&fs::read(&path)?)
                    .with_context(|| path.display().to_string())?;
                let body = fs::read(path.with_extension("body"))?;
                pages.insert(head.path.clone(), Arc::new(Page::new(head, body.into())?));
            }
        }
        Ok(Self {
            directory: directory.to_owned(),
            pages: Mutex::new(pages),
            recorder,
        })
    }

    fn find(&self, path: &str) -> Option<Arc<Page>> {
        let pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        pages.get(path).cloned()
    }

    /// How many answers there are, and their bytes without a coding.
    pub fn size(&self) -> (usize, u64) {
        let pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = pages.values().map(|page| page.plain.len() as u64).sum();
        (pages.len(), bytes)
    }

    /// A digest of everything.
    pub fn digest(&self) -> String {
        let pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let mut paths: Vec<_> = pages.keys().collect();
        paths.sort();
        let mut hasher = blake3::Hasher::new();
        for path in paths {
            hasher.update(path.as_bytes());
            hasher.update(&pages[path].plain);
        }
        hasher.finalize().to_hex().to_string()
    }

    /// Asks the recording proxy, and keeps what it says.
    async fn record(&self, path: &str) -> Result<Arc<Page>> {
        let recorder = self.recorder.with_context(|| {
            format!("{path} was not recorded; remove the frozen pages to record them again")
        })?;
        let stream = tokio::net::TcpStream::connect(recorder).await?;
        let (mut send, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(async move { connection.await.ok() });
        let theirs = match path.strip_prefix("/files/") {
            Some(rest) => format!("/simple/~files/{rest}"),
            None => path.to_owned(),
        };
        let request = Request::get(theirs)
            .header("host", recorder.to_string())
            .header("accept", "application/vnd.pypi.simple.v1+json")
            .body(http_body_util::Empty::<Bytes>::new())?;
        let (head, body) = send.send_request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        if head.status.is_server_error() || head.status == StatusCode::TOO_MANY_REQUESTS {
            bail!(
                "{path}: status {}: {}",
                head.status,
                String::from_utf8_lossy(&body)
            );
        }
        let content_type = head.headers.get("content-type");
        let content_type = content_type.map_or("", |value| value.to_str().unwrap_or_default());
        // The proxy that is measured has a place of that name, too.
        let body = match content_type.contains("json") {
            true => String::from_utf8(body.into())?
                .replace("/simple/~files/", "/files/")
                .into(),
            false => body,
        };
        let head = Head {
            path: path.to_owned(),
            status: head.status.as_u16(),
            content_type: content_type.to_owned(),
        };
        let name = blake3::hash(path.as_bytes()).to_hex();
        let at = self.directory.join(name.as_str());
        fs::write(at.with_extension("body"), &body)?;
        fs::write(at.with_extension("json"), serde_json::to_vec(&head)?)?;
        let page = Arc::new(Page::new(head, body)?);
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        pages.insert(path.to_owned(), Arc::clone(&page));
        Ok(page)
    }

    /// Serves at the loopback.
    pub async fn serve(self: &Arc<Self>, manner: Manner) -> Result<SocketAddr> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (frozen, line) = (Arc::clone(self), Arc::new(Line::default()));
        tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    continue;
                };
                stream.set_nodelay(true).ok();
                let (frozen, line) = (Arc::clone(&frozen), Arc::clone(&line));
                let service = service_fn(move |request| {
                    let (frozen, line) = (Arc::clone(&frozen), Arc::clone(&line));
                    async move { Ok::<_, Infallible>(frozen.answer(request, manner, line).await) }
                });
                let serving = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                tokio::spawn(async move { serving.await.ok() });
            }
        });
        Ok(address)
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
        manner: Manner,
        line: Arc<Line>,
    ) -> Response<FarBody> {
        let path = request.uri().path();
        if manner != Manner::Near {
            tokio::time::sleep(DELAY).await;
        }
        let line = (manner != Manner::Near).then_some(line);
        let page = match self.find(path) {
            Some(page) => page,
            None => match self.record(path).await {
                Ok(page) => page,
                Err(e) => {
                    eprintln!("{e:#}");
                    let mut response = Response::new(FarBody::new(Bytes::new(), line));
                    *response.status_mut() = StatusCode::BAD_GATEWAY;
                    return response;
                }
            },
        };
        page.answer(request.headers(), manner, line)
    }
}

impl Page {
    fn new(head: Head, plain: Bytes) -> Result<Self> {
        let is_page = !head.path.starts_with("/files/");
        let gzip = match is_page {
            true => {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::new(6));
                encoder.write_all(&plain)?;
                Some(encoder.finish()?.into())
            }
            false => None,
        };
        let tag = blake3::hash(&plain).to_hex();
        let tag = HeaderValue::try_from(format!("\"{}\"", &tag[..32]))?;
        Ok(Self {
            head,
            plain,
            gzip,
            tag,
        })
    }

    fn answer(
        &self,
        asked: &HeaderMap,
        manner: Manner,
        line: Option<Arc<Line>>,
    ) -> Response<FarBody> {
        let text = |name: &str| asked.get(name).and_then(|value| value.to_str().ok());
        let known = text("if-none-match") == self.tag.to_str().ok();
        let gzip = self
            .gzip
            .as_ref()
            .filter(|_| text("accept-encoding").is_some_and(|codings| codings.contains("gzip")));
        let body = gzip.unwrap_or(&self.plain).clone();
        let mut response =
            Response::new(FarBody::new(if known { Bytes::new() } else { body }, line));
        *response.status_mut() = match known {
            true => StatusCode::NOT_MODIFIED,
            false => StatusCode::from_u16(self.head.status).unwrap_or(StatusCode::BAD_GATEWAY),
        };
        let headers = response.headers_mut();
        headers.insert("etag", self.tag.clone());
        let control = match (self.gzip.is_some(), manner) {
            (true, Manner::FarAndStale) => "no-cache",
            (true, _) => "max-age=600, public",
            (false, _) => "max-age=31536000, immutable, public",
        };
        headers.insert("cache-control", HeaderValue::from_static(control));
        headers.insert("vary", HeaderValue::from_static("accept, accept-encoding"));
        if let Ok(kind) = HeaderValue::from_str(&self.head.content_type) {
            headers.insert("content-type", kind);
        }
        if gzip.is_some() && !known {
            headers.insert("content-encoding", HeaderValue::from_static("gzip"));
        }
        response
    }
}

/// One line, which all answers of a server share.
#[derive(Default)]
struct Line(Mutex<Option<Instant>>);

impl Line {
    /// When so many bytes have gone, if they go now.
    fn take(&self, bytes: usize) -> Instant {
        let time = Duration::from_nanos(bytes as u64 * 8 * 1_000_000_000 / BITS_PER_SECOND);
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let gone = free.map_or(now, |free| free.max(now)) + time;
        *free = Some(gone);
        gone
    }
}

/// A body that goes over a line.
struct FarBody {
    left: Bytes,
    line: Option<Arc<Line>>,
    going: Option<(Bytes, Pin<Box<Sleep>>)>,
}

impl FarBody {
    fn new(left: Bytes, line: Option<Arc<Line>>) -> Self {
        Self {
            left,
            line,
            going: None,
        }
    }
}

impl Body for FarBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        if this.going.is_none() {
            if this.left.is_empty() {
                return Poll::Ready(None);
            }
            let Some(line) = &this.line else {
                let all = std::mem::take(&mut this.left);
                return Poll::Ready(Some(Ok(Frame::data(all))));
            };
            let piece = this.left.split_to(this.left.len().min(PIECE));
            let sleep = tokio::time::sleep_until(line.take(piece.len()));
            this.going = Some((piece, Box::pin(sleep)));
        }
        if let Some((_, sleep)) = &mut this.going
            && sleep.as_mut().poll(context).is_pending()
        {
            return Poll::Pending;
        }
        let gone = this.going.take();
        Poll::Ready(gone.map(|(piece, _)| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty() && self.going.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let going = self.going.as_ref().map_or(0, |(piece, _)| piece.len());
        SizeHint::with_exact((self.left.len() + going) as u64)
    }
}
