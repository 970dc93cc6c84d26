//! An origin that the test steers: a request waits until the test answers it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use brisk_http::RequestBody;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use tokio::sync::{mpsc, oneshot};
use tower::Service;

use crate::setup::soon;

pub type Answered = io::Result<Response<OriginBody>>;

/// Where a layer sends its requests.
#[derive(Clone)]
pub struct Upstream(mpsc::UnboundedSender<Asked>);

/// The other end.
pub struct Origin {
    asked: mpsc::UnboundedReceiver<Asked>,
    count: usize,
}

/// A request that waits for its answer.
pub struct Asked {
    pub method: Method,
    pub url: String,
    pub headers: HeaderMap,
    pub body: Option<Full<Bytes>>,
    reply: oneshot::Sender<Answered>,
}

pub fn origin() -> (Upstream, Origin) {
    let (sender, asked) = mpsc::unbounded_channel();
    (Upstream(sender), Origin { asked, count: 0 })
}

/// Fields, each a line.
pub fn fields(lines: &[&str]) -> HeaderMap {
    let mut fields = HeaderMap::new();
    for line in lines {
        let (name, value) = line.split_once(": ").expect("a field");
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        fields.append(name, HeaderValue::from_str(value).unwrap());
    }
    fields
}

impl Service<Request<RequestBody<Full<Bytes>>>> for Upstream {
    type Response = Response<OriginBody>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = Answered> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody<Full<Bytes>>>) -> Self::Future {
        let (head, body) = request.into_parts();
        let (reply, answer) = oneshot::channel();
        let asked = Asked {
            method: head.method,
            url: head.uri.to_string(),
            headers: head.headers,
            body: body.into_inner(),
            reply,
        };
        let sent = self.0.send(asked);
        Box::pin(async move {
            let gone = || io::Error::other("the test has no origin any more");
            sent.map_err(|_| gone())?;
            answer.await.unwrap_or_else(|_| Err(gone()))
        })
    }
}

impl Origin {
    /// The next request.
    pub async fn next(&mut self) -> Asked {
        self.count += 1;
        let asked = soon(self.asked.recv()).await;
        asked.expect("the layer is there")
    }

    /// The next request, if it is there already.
    pub fn take(&mut self) -> Option<Asked> {
        let asked = self.asked.try_recv().ok()?;
        self.count += 1;
        Some(asked)
    }

    /// How many requests have come so far.
    pub fn count(&self) -> usize {
        self.count + self.asked.len()
    }
}

impl Asked {
    pub fn field(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub async fn body_text(&mut self) -> Option<Bytes> {
        let body = self.body.take()?;
        Some(body.collect().await.unwrap().to_bytes())
    }

    fn reply(self, status: u16, lines: &[&str], body: OriginBody) {
        let mut response = Response::new(body);
        *response.status_mut() = status.try_into().unwrap();
        *response.headers_mut() = fields(lines);
        // Who asked may have left.
        self.reply.send(Ok(response)).ok();
    }

    /// Answers with a whole body, whose length the head says.
    pub fn answer(self, status: u16, lines: &[&str], body: impl Into<Bytes>) {
        let body = body.into();
        let len = format!("Content-Length: {}", body.len());
        let lines = [lines, &[&len]].concat();
        self.begin(status, &lines).send(body);
    }

    /// Answers with a body that the test sends. Its length is known only if a line says it.
    pub fn begin(self, status: u16, lines: &[&str]) -> Pipe {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.reply(status, lines, OriginBody::Piped(receiver));
        Pipe(sender)
    }

    /// Answers with a body of `pieces` pieces, each there as soon as somebody asks for it. Says how many were taken.
    pub fn flood(self, lines: &[&str], piece: Bytes, pieces: u64) -> Arc<AtomicU64> {
        let taken = Arc::new(AtomicU64::new(0));
        let body = Flood {
            piece,
            pieces,
            taken: Arc::clone(&taken),
        };
        self.reply(200, lines, OriginBody::Flood(body));
        taken
    }

    /// Answers with a body whose reader panics.
    pub fn panic(self, lines: &[&str]) {
        self.reply(200, lines, OriginBody::Panic);
    }

    /// Breaks the connection.
    pub fn fail(self) {
        let broken = io::Error::from(io::ErrorKind::ConnectionReset);
        self.reply.send(Err(broken)).ok();
    }

    /// Whether nobody waits for the answer any more.
    pub fn is_given_up(&self) -> bool {
        self.reply.is_closed()
    }
}

/// Sends a body. Dropped, it ends it.
pub struct Pipe(mpsc::UnboundedSender<io::Result<Bytes>>);

impl Pipe {
    pub fn send(&self, bytes: impl Into<Bytes>) {
        // Who reads may have left.
        self.0.send(Ok(bytes.into())).ok();
    }

    /// Breaks the connection.
    pub fn fail(self) {
        let broken = io::Error::from(io::ErrorKind::ConnectionReset);
        self.0.send(Err(broken)).ok();
    }

    /// Whether nobody reads any more.
    pub fn is_given_up(&self) -> bool {
        self.0.is_closed()
    }
}

pub enum OriginBody {
    Piped(mpsc::UnboundedReceiver<io::Result<Bytes>>),
    Flood(Flood),
    Panic,
}

pub struct Flood {
    piece: Bytes,
    pieces: u64,
    taken: Arc<AtomicU64>,
}

impl Body for OriginBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match &mut *self {
            Self::Piped(receiver) => {
                let next = receiver.poll_recv(context);
                next.map(|next| next.map(|bytes| bytes.map(Frame::data)))
            }
            Self::Flood(flood) if flood.taken.load(Ordering::Relaxed) < flood.pieces => {
                flood.taken.fetch_add(1, Ordering::Relaxed);
                Poll::Ready(Some(Ok(Frame::data(flood.piece.clone()))))
            }
            Self::Flood(_) => Poll::Ready(None),
            Self::Panic => panic!("the test wants this"),
        }
    }
}
