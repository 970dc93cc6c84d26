//! An origin on the loopback whose answers a test gives.

use std::convert::Infallible;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use brisk_cache::{Stored, fingerprint};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// A request that came.
#[derive(Debug, Clone)]
pub struct Asked {
    pub method: Method,
    pub path: String,
    pub headers: HeaderMap,
    pub version: Version,
    pub body: Bytes,
    /// How many came before.
    pub number: usize,
}

/// An origin, until this is dropped.
pub struct Origin {
    address: SocketAddr,
    scheme: &'static str,
    asked: Arc<Mutex<Vec<Asked>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Origin {
    pub async fn start<F>(answer: impl Fn(Asked) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
    {
        Self::listen(None, answer).await
    }

    pub async fn listen<F>(
        tls: Option<TlsAcceptor>,
        answer: impl Fn(Asked) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
    {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::<Mutex<Vec<Asked>>>::default();
        let (answer, noted) = (Arc::new(answer), Arc::clone(&asked));
        let scheme = if tls.is_some() { "https" } else { "http" };
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (answer, noted) = (Arc::clone(&answer), Arc::clone(&noted));
                let tls = tls.clone();
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, noted, answer).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, noted, answer).await;
                            }
                        }
                    }
                });
            }
        });
        Self {
            address,
            scheme,
            asked,
            task,
        }
    }

    /// A URL of it.
    pub fn url(&self, path: &str) -> String {
        format!("{}://localhost:{}{path}", self.scheme, self.address.port())
    }

    /// What it was asked so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// The number of requests since this was last called.
    pub fn take_count(&self) -> usize {
        std::mem::take(&mut *self.asked.lock().unwrap()).len()
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve<F>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    asked: Arc<Mutex<Vec<Asked>>>,
    answer: Arc<impl Fn(Asked) -> F + Send + Sync + 'static>,
) where
    F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let (asked, answer) = (Arc::clone(&asked), Arc::clone(&answer));
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.map(|body| body.to_bytes());
            let one = {
                let mut asked = asked.lock().unwrap();
                let one = Asked {
                    method: head.method,
                    path: head.uri.path().to_owned(),
                    headers: head.headers,
                    version: head.version,
                    body: body.unwrap_or_default(),
                    number: asked.len(),
                };
                asked.push(one.clone());
                one
            };
            Ok::<_, Infallible>(answer(one).await)
        }
    });
    let builder = Builder::new(TokioExecutor::new());
    // A client that leaves is no error here.
    builder
        .serve_connection(TokioIo::new(stream), service)
        .await
        .ok();
}

/// A response with these fields.
pub fn response(
    status: u16,
    fields: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::builder().status(status);
    for (name, value) in fields {
        response = response.header(*name, *value);
    }
    response.body(Full::new(body.into())).unwrap()
}

/// A layout: the length of a body, and its bytes backwards.
pub struct Backwards;

impl Stored for Backwards {
    const FINGERPRINT: u64 = fingerprint("backwards 1: length U64, bytes");
    type View<'a> = (u64, &'a [u8]);

    fn view(bytes: &[u8]) -> Option<(u64, &[u8])> {
        let (len, rest) = bytes.split_first_chunk()?;
        let len = u64::from_le_bytes(*len);
        (rest.len() as u64 == len).then_some((len, rest))
    }
}

pub fn backwards(body: &[u8]) -> Vec<u8> {
    let len = (body.len() as u64).to_le_bytes();
    len.into_iter().chain(body.iter().rev().copied()).collect()
}
