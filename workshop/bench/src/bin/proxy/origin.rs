//! The origin behind both caches. It makes bodies, and counts who asks.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

/// The lengths of the two bodies.
pub const SMALL: usize = 1024;
pub const LARGE: usize = 10_000_000;

/// A server at the loopback.
pub struct Origin {
    pub address: SocketAddr,
    asked: Arc<AtomicU64>,
    template: Bytes,
}

impl Origin {
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let mut template = vec![0; LARGE];
        fastrand::Rng::with_seed(7).fill(&mut template);
        let (asked, template) = (Arc::new(AtomicU64::new(0)), Bytes::from(template));
        let origin = Self {
            address,
            asked: Arc::clone(&asked),
            template: template.clone(),
        };
        tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    continue;
                };
                let (asked, template) = (Arc::clone(&asked), template.clone());
                let service = service_fn(move |request: Request<Incoming>| {
                    asked.fetch_add(1, Ordering::Relaxed);
                    let answer = answer(request.uri().path(), &template);
                    async move { Ok::<_, Infallible>(answer) }
                });
                let serving = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                // It ends with an error if the cache closes the connection.
                tokio::spawn(async move { serving.await.ok() });
            }
        });
        Ok(origin)
    }

    /// How many requests came so far.
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// The index page at `/py/numpy/`.
    pub fn page(&self) -> String {
        page()
    }

    /// The digest of what a path has.
    pub fn digest(&self, path: &str) -> Option<blake3::Hash> {
        body(path, &self.template).map(|body| blake3::hash(&body))
    }
}

/// A page of 2 MB, as an index has it for a package with many files.
fn page() -> String {
    let mut page = "<!DOCTYPE html>\n<html><body>\n<h1>Links for numpy</h1>\n".to_owned();
    for n in 0..4_500 {
        let digest = blake3::hash(&u32::to_le_bytes(n)).to_hex();
        let (a, rest) = digest.split_at(2);
        let (b, rest) = rest.split_at(2);
        let name = format!(
            "numpy-{}.{}.{}-cp312-cp312-manylinux_2_17_x86_64.whl",
            n % 3,
            n / 30,
            n % 30
        );
        page += &format!(
            "<a href=\"https://files.example/packages/{a}/{b}/{rest}/{name}#sha256={digest}\" \
             data-requires-python=\"&gt;=3.9\" data-dist-info-metadata=\"sha256={digest}\" \
             data-core-metadata=\"sha256={digest}\">{name}</a><br />\n"
        );
    }
    page + "</body></html>\n"
}

/// `/small`, `/large`, `/py/numpy/`, and `/fill/NUMBER/LENGTH`, which begins with the number.
fn body(path: &str, template: &Bytes) -> Option<Bytes> {
    match path {
        "/small" => Some(template.slice(..SMALL)),
        "/large" => Some(template.clone()),
        "/py/numpy/" => Some(page().into()),
        _ => {
            let (number, len) = path.strip_prefix("/fill/")?.split_once('/')?;
            let (number, len) = (number.parse::<u64>().ok()?, len.parse::<usize>().ok()?);
            let mut bytes = template.get(..len)?.to_vec();
            bytes.get_mut(..8)?.copy_from_slice(&number.to_le_bytes());
            Some(bytes.into())
        }
    }
}

fn answer(path: &str, template: &Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    match body(path, template) {
        Some(body) => *response.body_mut() = Full::new(body),
        None => *response.status_mut() = StatusCode::NOT_FOUND,
    }
    let headers = response.headers_mut();
    let kind = match path.ends_with('/') {
        true => "text/html",
        false => "application/octet-stream",
    };
    for (name, value) in [
        ("cache-control", "max-age=86400"),
        ("content-type", kind),
        ("etag", "\"1\""),
        ("last-modified", "Tue, 24 Nov 2026 00:00:00 GMT"),
    ] {
        headers.insert(name, http::HeaderValue::from_static(value));
    }
    response
}
