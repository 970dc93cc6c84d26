//! The pages under `/-/`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::sync::Arc;

use brisk_cache::Cache;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Method, Response, StatusCode};

use crate::body::{Body, empty, full};
use crate::exposition::{self, CacheSize};
use crate::map::Maps;
use crate::metrics::Metrics;
use crate::problem::Problem;
use crate::status_page::{self, LargeEntry, MOST_ROWS};

/// What the proxy shows of itself.
#[derive(Debug)]
pub struct OwnPages {
    cache: Arc<Cache>,
}

impl OwnPages {
    /// Pages about this cache.
    pub fn new(cache: Arc<Cache>) -> Self {
        Self { cache }
    }

    /// The page of a path.
    pub async fn answer(
        &self,
        method: &Method,
        path: &str,
        maps: &Maps,
        metrics: &Metrics,
    ) -> Result<Response<Body>, Problem> {
        if !matches!(*method, Method::GET | Method::HEAD) {
            return Err(Problem::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "the pages under /-/ can only be read",
            ));
        }
        let (size, largest) = self.look(path == "/-/").await;
        let (kind, text) = match path {
            "/-/" => {
                let html = status_page::html(&metrics.total(), maps, size, &largest);
                ("text/html; charset=utf-8", html)
            }
            "/-/metrics" => (
                exposition::CONTENT_TYPE,
                exposition::text(&metrics.total(), size),
            ),
            _ => {
                return Err(Problem::new(
                    StatusCode::NOT_FOUND,
                    "there is no such page; /-/ and /-/metrics exist",
                ));
            }
        };
        let text = Bytes::from(text);
        let mut response = Response::new(match *method {
            Method::HEAD => empty(),
            _ => full(text),
        });
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(
            CONTENT_SECURITY_POLICY,
            HeaderValue::from_static(
                "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
            ),
        );
        Ok(response)
    }

    /// Looks at the cache, on a thread that may wait for the disk. What cannot be told is left out.
    async fn look(&self, with_entries: bool) -> (Option<CacheSize>, Vec<LargeEntry>) {
        let cache = Arc::clone(&self.cache);
        let looked = tokio::task::spawn_blocking(move || {
            let size = cache.stat().ok().map(|stat| CacheSize {
                bytes: stat.bytes,
                limit: stat.limit,
                entries: stat.entries,
            });
            let largest = match with_entries {
                true => largest(&cache).unwrap_or_default(),
                false => Vec::new(),
            };
            (size, largest)
        });
        looked.await.unwrap_or_default()
    }
}

/// The largest entries, the largest first.
fn largest(cache: &Cache) -> io::Result<Vec<LargeEntry>> {
    // The smallest of them is on top.
    let mut heap = BinaryHeap::new();
    for entry in cache.iter()? {
        let entry = entry?;
        let Some(url) = url_of_key(&entry.key) else {
            continue;
        };
        heap.push(Reverse(LargeEntry {
            len: entry.len,
            url,
        }));
        if heap.len() > MOST_ROWS {
            heap.pop();
        }
    }
    Ok(heap
        .into_sorted_vec()
        .into_iter()
        .map(|Reverse(entry)| entry)
        .collect())
}

/// The URL in the key of a body. Its query may have a token.
fn url_of_key(key: &[u8]) -> Option<String> {
    let rest = key.strip_prefix(b"body\0")?;
    let url = rest.split(|byte| *byte == 0).next()?;
    let url = String::from_utf8_lossy(url);
    Some(match url.split_once('?') {
        Some((path, _)) => format!("{path}?\u{2026}"),
        None => url.into_owned(),
    })
}
