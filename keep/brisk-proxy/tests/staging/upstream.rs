use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

/// What an upstream was asked.
#[derive(Debug, Clone)]
pub struct Asked {
    pub method: Method,
    pub target: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// What it answers.
pub struct Answer {
    response: http::response::Builder,
    pieces: mpsc::UnboundedReceiver<Result<Bytes, std::io::Error>>,
    delay: Duration,
}

impl Answer {
    /// An answer with a whole body.
    pub fn of(status: u16, fields: &[(&str, &str)], body: impl Into<Bytes>) -> Self {
        let body = body.into();
        let (pieces, answer) = Self::streamed(status, fields);
        let response = answer.response.header("content-length", body.len());
        pieces.send(Ok(body)).unwrap();
        Self { response, ..answer }
    }

    /// An answer whose body the sender sends.
    pub fn streamed(
        status: u16,
        fields: &[(&str, &str)],
    ) -> (mpsc::UnboundedSender<Result<Bytes, std::io::Error>>, Self) {
        let mut response = Response::builder().status(status);
        for (name, value) in fields {
            response = response.header(*name, *value);
        }
        let (sender, pieces) = mpsc::unbounded_channel();
        let answer = Self {
            response,
            pieces,
            delay: Duration::ZERO,
        };
        (sender, answer)
    }

    /// It comes later.
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }
}

struct Pieces(mpsc::UnboundedReceiver<Result<Bytes, std::io::Error>>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        self.0
            .poll_recv(cx)
            .map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}

/// A server in this process. Dropped, it is gone, with all its connections.
pub struct Upstream {
    pub address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    runtime: Option<Runtime>,
}

type Handler = Arc<dyn Fn(&Asked) -> Answer + Send + Sync>;

impl Upstream {
    /// Answers with `handler`.
    pub fn start(handler: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        Self::serve(Arc::new(handler), None)
    }

    /// The same, over TLS.
    pub fn start_tls(
        tls: rustls::ServerConfig,
        handler: impl Fn(&Asked) -> Answer + Send + Sync + 'static,
    ) -> Self {
        Self::serve(Arc::new(handler), Some(tls))
    }

    fn serve(handler: Handler, tls: Option<rustls::ServerConfig>) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        let tls = tls.map(|tls| tokio_rustls::TlsAcceptor::from(Arc::new(tls)));
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (handler, log, tls) = (Arc::clone(&handler), Arc::clone(&log), tls.clone());
                let service = service_fn(move |request| {
                    answer(Arc::clone(&handler), Arc::clone(&log), request)
                });
                tokio::spawn(async move {
                    let builder = Builder::new(TokioExecutor::new());
                    // A client may leave at any time.
                    match tls {
                        None => builder
                            .serve_connection(TokioIo::new(stream), service)
                            .await
                            .ok(),
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => builder
                                .serve_connection(TokioIo::new(stream), service)
                                .await
                                .ok(),
                            Err(_) => None,
                        },
                    };
                });
            }
        });
        Self {
            address,
            asked,
            runtime: Some(runtime),
        }
    }

    /// Its URL, without a slash at the end.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What it was asked so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn answer(
    handler: Handler,
    log: Arc<Mutex<Vec<Asked>>>,
    request: Request<Incoming>,
) -> Result<Response<Pieces>, Infallible> {
    let (head, body) = request.into_parts();
    let body = match body.collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => Bytes::from_static(b"(broken off)"),
    };
    let asked = Asked {
        method: head.method,
        target: head
            .uri
            .path_and_query()
            .map_or("", |target| target.as_str())
            .to_owned(),
        headers: head.headers,
        body,
    };
    log.lock().unwrap().push(asked.clone());
    let answer = handler(&asked);
    tokio::time::sleep(answer.delay).await;
    Ok(answer.response.body(Pieces(answer.pieces)).unwrap())
}
