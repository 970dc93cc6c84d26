//! Asks servers, by the client of brisk-http.

use std::collections::HashSet;
use std::env;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use brisk_cache::{Cache, CacheOptions};
use brisk_http::{CacheBody, Client, Options, Retries, is_near_address};
use brisk_remote::{MOST_DESCRIPTOR, RemoteUrl};
use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, AUTHORIZATION, CACHE_CONTROL, IF_RANGE, RANGE};
use http::{HeaderValue, Request, Response};
use http_body::Body;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::time::timeout;

use crate::netrc;

/// How long a connection may take, and how long a server may be silent in an answer. Then the request is sent again.
const SILENCE: Duration = Duration::from_secs(20);

/// The most redirects that are followed.
const REDIRECTS: u32 = 5;

/// How many connections to one server there may be: those of the schedule, and some for documents.
const CONNECTIONS: usize = 20;

/// The most bytes that answers about names take on the disk.
const DOCUMENTS: u64 = 8 << 20;

/// Servers, and what they said about names.
pub struct Origin {
    client: Client,
    /// How long a server may take for a document.
    silence: Duration,
    /// Hosts that a user has named. A redirect from another one must not lead to this machine.
    named: Arc<Mutex<HashSet<String>>>,
}

/// A small file of a server.
pub enum Document {
    /// Its text. `stale`: why the server was not asked, if it was not.
    Text { text: String, stale: Option<String> },
    /// The server has no such file.
    Missing,
}

impl Origin {
    /// Keeps what servers say about names in `directory`.
    pub fn new(directory: &Path) -> io::Result<Self> {
        Self::with_silence(directory, SILENCE)
    }

    fn with_silence(directory: &Path, silence: Duration) -> io::Result<Self> {
        let cache = Cache::open(directory, CacheOptions::new().limit(DOCUMENTS))
            .map_err(io::Error::other)?;
        // Who names a proxy means it, wherever it is.
        let named = Arc::new(Mutex::new(proxies().collect()));
        let resolver = Arc::new(FarResolver {
            named: Arc::clone(&named),
        });
        let mut client = Client::build(cache, Options::private())
            // Three requests at once are three connections, whatever the server speaks.
            .http1_only()
            .resolver(resolver)
            .redirects(REDIRECTS)
            .per_host(CONNECTIONS)
            // Who asks knows better when to ask again.
            .retries(Retries::at_most(0))
            .layer(|layer| {
                layer
                    .head_timeout(Some(silence))
                    .body_timeout(Some(silence))
            });
        if let Some(roots) = env::var_os("SSL_CERT_FILE").or_else(|| env::var_os("SSL_CERT_DIR")) {
            client = client.roots(roots);
        }
        Ok(Self {
            client: client.finish(),
            silence,
            named,
        })
    }

    /// The user has named this URL.
    fn name(&self, url: &RemoteUrl) {
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        named.insert(url.host().to_ascii_lowercase());
    }

    fn request(&self, url: &str, host: &str) -> http::request::Builder {
        let request = Request::get(url).header(ACCEPT_ENCODING, "identity");
        let value = netrc::authorization(host).and_then(|value| HeaderValue::try_from(value).ok());
        match value {
            Some(mut value) => {
                value.set_sensitive(true);
                request.header(AUTHORIZATION, value)
            }
            None => request,
        }
    }

    /// The small file beside an image. With `refresh`, the server is asked even if an earlier answer is fresh. If it cannot be
    /// reached, the earlier answer counts.
    ///
    /// # Errors
    ///
    /// Why there is no answer.
    pub async fn document(
        &self,
        url: &RemoteUrl,
        suffix: &str,
        refresh: bool,
    ) -> Result<Document, String> {
        // It is small, so one that drips is given up.
        let asked = timeout(self.silence, self.ask_document(url, suffix, refresh)).await;
        asked.unwrap_or_else(|_| Err(format!("{} is too slow", url.host())))
    }

    async fn ask_document(
        &self,
        url: &RemoteUrl,
        suffix: &str,
        refresh: bool,
    ) -> Result<Document, String> {
        self.name(url);
        let mut request = self.request(&url.beside(suffix), url.host());
        let control = match refresh {
            true => "no-cache, stale-if-error=31536000",
            false => "stale-if-error=31536000",
        };
        request = request.header(CACHE_CONTROL, control);
        let request = request
            .body(reqwest::Body::from(""))
            .map_err(|e| e.to_string())?;
        let response = self.client.send(request).await.map_err(|e| failed(&e))?;
        let status = response.status();
        match status.as_u16() {
            200 => {}
            // Object stores say 403 for what does not exist.
            403 | 404 | 410 => return Ok(Document::Missing),
            _ => return Err(format!("{} answers {status}", url.host())),
        }
        let served = response
            .headers()
            .get("cache-status")
            .and_then(|status| status.to_str().ok());
        // An answer of the server now has its status, and one that stands in for it has none.
        let is_answer = served.is_some_and(|status| status.contains("fwd-status"));
        let stale = (refresh && !is_answer).then(|| "it does not answer".to_owned());
        let bytes = whole(response.into_body()).await?;
        let text = String::from_utf8(bytes).map_err(|_| "it is no text".to_owned())?;
        Ok(Document::Text { text, stale })
    }

    /// Asks for a part of the file at `url`: `bytes`, or the last bytes of it.
    ///
    /// # Errors
    ///
    /// Why there is no answer.
    pub async fn part(
        &self,
        url: &RemoteUrl,
        bytes: &Part,
        validator: Option<&str>,
    ) -> Result<Response<CacheBody>, String> {
        self.name(url);
        let range = match bytes {
            Part::Bytes(bytes) => format!("bytes={}-{}", bytes.start, bytes.end.saturating_sub(1)),
            Part::Last(bytes) => format!("bytes=-{bytes}"),
        };
        // The bytes have a place of their own on the disk.
        let mut request = self
            .request(url.as_str(), url.host())
            .header(CACHE_CONTROL, "no-store")
            .header(RANGE, range);
        if let Some(validator) = validator {
            request = request.header(IF_RANGE, validator);
        }
        let request = request
            .body(reqwest::Body::from(""))
            .map_err(|e| e.to_string())?;
        self.client.send(request).await.map_err(|e| failed(&e))
    }
}

/// Which part of a file.
pub enum Part {
    Bytes(Range<u64>),
    Last(u64),
}

/// The next piece of a body. None at its end.
pub async fn next_piece(body: &mut CacheBody) -> Option<Result<Bytes, String>> {
    loop {
        let frame = std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await?;
        match frame {
            Ok(frame) => {
                if let Ok(bytes) = frame.into_data() {
                    return Some(Ok(bytes));
                }
            }
            Err(e) => return Some(Err(reasons(&e))),
        }
    }
}

async fn whole(mut body: CacheBody) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    while let Some(piece) = next_piece(&mut body).await {
        bytes.extend_from_slice(&piece?);
        if bytes.len() as u64 > MOST_DESCRIPTOR {
            return Err(format!("it has more than {MOST_DESCRIPTOR} bytes"));
        }
    }
    Ok(bytes)
}

/// The hosts of the proxies that the environment names.
fn proxies() -> impl Iterator<Item = String> {
    ["http_proxy", "https_proxy", "all_proxy"]
        .into_iter()
        .flat_map(|name| [name.to_owned(), name.to_uppercase()])
        .filter_map(|name| env::var(name).ok())
        .filter_map(|proxy| host_of_proxy(&proxy))
}

/// The host of `http://user:password@host:port/`, of which all but the host may be missing.
fn host_of_proxy(proxy: &str) -> Option<String> {
    let rest = proxy.split_once("://").map_or(proxy, |(_, rest)| rest);
    let authority = rest.split('/').next()?;
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    let host = host.split(':').next()?;
    (!host.is_empty()).then(|| host.to_ascii_lowercase())
}

/// Why there is no answer, and what to do about it.
fn failed(error: &dyn std::error::Error) -> String {
    let why = reasons(error);
    match why.contains("certificate") {
        true => format!(
            "{why}; if you trust who has signed the server's certificate, name the file with theirs in SSL_CERT_FILE"
        ),
        false => why,
    }
}

/// An error with its reasons. The first repeats the URL, and the last says what happened.
pub fn reasons(error: &dyn std::error::Error) -> String {
    let mut all = vec![error.to_string()];
    let mut next = error.source();
    while let Some(error) = next {
        let text = error.to_string();
        if all.last().is_none_or(|last| !last.ends_with(&text)) {
            all.push(text);
        }
        next = error.source();
    }
    all.join(": ")
}

/// Looks names up as the system does. A name that no user has named, but only a server, must not lead to this machine or its
/// link: what listens there may trust whoever is here.
struct FarResolver {
    named: Arc<Mutex<HashSet<String>>>,
}

impl Resolve for FarResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let host = name.as_str().to_ascii_lowercase();
        let is_named = self
            .named
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(&host);
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((&*host, 0)).await?.collect();
            let may: Vec<_> = found
                .iter()
                .copied()
                .filter(|address| is_named || !is_near_address(address.ip()))
                .collect();
            if may.is_empty() && !found.is_empty() {
                let text =
                    format!("a redirect leads to {host}, which is this machine or on its link");
                return Err(io::Error::other(text).into());
            }
            Ok(Box::new(may.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// Each byte comes well before a silent server is given up.
    #[test]
    fn a_document_that_drips_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let read = stream.read(&mut [0; 4096]).expect("a request");
                assert!(read > 0);
                let head = "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n";
                stream.write_all(head.as_bytes()).expect("it listens");
                while stream.write_all(b"#").is_ok() {
                    thread::sleep(Duration::from_millis(1));
                }
            }
        });
        let dir = tempfile::tempdir().expect("a directory");
        let silence = Duration::from_millis(500);
        let origin = Origin::with_silence(dir.path(), silence).expect("room");
        let url = RemoteUrl::parse(&format!("http://{address}/app.img")).expect("a URL");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let local = tokio::task::LocalSet::new();
        let asked = local.block_on(&runtime, origin.document(&url, ".remote", false));
        assert_eq!(asked.err().as_deref(), Some("127.0.0.1 is too slow"));
    }

    #[test]
    fn a_proxy_has_a_host() {
        for (proxy, host) in [
            ("http://Localhost:3128", "localhost"),
            ("socks5://u:p@b.example:1080/", "b.example"),
            ("c.example:8080", "c.example"),
            ("d.example", "d.example"),
        ] {
            assert_eq!(host_of_proxy(proxy).as_deref(), Some(host), "{proxy}");
        }
        assert_eq!(host_of_proxy(""), None);
    }
}
