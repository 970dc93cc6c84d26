//! Serves frozen pages on the loopback, as an index does.
//!
//! `/K/simple/NAME/` is fresh for a week, for any number K, and `/stale-K/simple/NAME/` for no time. Both have an entity tag,
//! and answer 304 to it. `/counts` says how many pages were sent, and how often one was said to hold.

use std::cell::Cell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::fs;
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::path::Path;
use std::rc::Rc;

use anyhow::{Context, Result};
use brisk_bench::ways::Pages;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, DATE, ETAG, IF_NONE_MATCH, VARY};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::{LocalSet, spawn_local};

struct Frozen {
    pages: HashMap<String, (Bytes, HeaderValue)>,
    sent: Cell<u64>,
    held: Cell<u64>,
}

/// Prints the port, and serves until the input ends.
pub(crate) fn run(directory: &Path) -> Result<()> {
    let list = Pages::open(directory)?;
    let mut pages = HashMap::new();
    for page in list.packages.iter().chain([&list.largest]) {
        let path = directory.join(format!("{}.page", page.name));
        let text = fs::read(&path).with_context(|| path.display().to_string())?;
        let digest = blake3::hash(&text).to_hex();
        let tag = HeaderValue::from_str(&format!("\"{}\"", &digest[..32]))?;
        pages.insert(page.name.clone(), (Bytes::from(text), tag));
    }
    let frozen = Rc::new(Frozen {
        pages,
        sent: Cell::new(0),
        held: Cell::new(0),
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    LocalSet::new().block_on(&runtime, async move {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        println!("{}", listener.local_addr()?.port());
        std::io::stdout().flush()?;
        let (ends, ended) = oneshot::channel();
        std::thread::spawn(move || {
            let read = std::io::stdin().read_to_end(&mut Vec::new());
            ends.send(read.is_ok())
        });
        spawn_local(async move {
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).ok();
                let frozen = Rc::clone(&frozen);
                let service = service_fn(move |request| {
                    let answer = frozen.answer(&request);
                    async move { answer }
                });
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                spawn_local(connection);
            }
        });
        ended.await.context("the input cannot be read")?;
        Ok(())
    })
}

impl Frozen {
    fn answer(&self, request: &Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let path = request.uri().path();
        if path == "/counts" {
            let counts = format!("{} {}", self.sent.get(), self.held.get());
            return Ok(Response::new(Full::from(counts)));
        }
        let mut parts = path.trim_matches('/').split('/');
        let (index, name) = (parts.next().unwrap_or_default(), parts.nth(1));
        let Some((text, tag)) = name.and_then(|name| self.pages.get(name)) else {
            let mut response = Response::new(Full::default());
            *response.status_mut() = StatusCode::NOT_FOUND;
            return Ok(response);
        };
        let holds = request.headers().get(IF_NONE_MATCH) == Some(tag);
        let count = if holds { &self.held } else { &self.sent };
        count.set(count.get() + 1);
        let mut response = match holds {
            true => Response::new(Full::default()),
            false => Response::new(Full::new(text.clone())),
        };
        if holds {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        }
        let headers = response.headers_mut();
        headers.insert(ETAG, tag.clone());
        headers.insert(
            CACHE_CONTROL,
            HeaderValue::from_static(match index.starts_with("stale-") {
                true => "max-age=0, public",
                false => "max-age=604800, public",
            }),
        );
        headers.insert(VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
        if !holds {
            let json = HeaderValue::from_static("application/vnd.pypi.simple.v1+json");
            headers.insert(CONTENT_TYPE, json);
        }
        // As many fields as public indexes send, which a cache keeps or drops.
        for (name, value) in [
            (
                "content-security-policy",
                "base-uri 'self'; default-src 'none'; frame-ancestors 'none'",
            ),
            (
                "permissions-policy",
                "publickey-credentials-create=(self),publickey-credentials-get=(self)",
            ),
            ("referrer-policy", "origin-when-cross-origin"),
            (
                "strict-transport-security",
                "max-age=31536000; includeSubDomains; preload",
            ),
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "deny"),
            ("x-serial", "30512345"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        debug_assert!(!headers.contains_key(DATE), "hyper adds it");
        Ok(response)
    }
}
