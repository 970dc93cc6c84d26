//! Asks servers, by the client of brisk-http.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::env;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use brisk_cache::{Cache, CacheOptions};
use brisk_http::{
    CacheBody, Client, FetchError, FetchErrorKind, Options, ResponseUrl, Retries, is_near_address,
};
use brisk_remote::{
    Credential, Index, MOST_DESCRIPTOR, Platform, RegistryName, RemoteUrl, digits, is_sha256,
    media_type,
};
use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CACHE_CONTROL, IF_RANGE, RANGE};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Body;
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use sha2::{Digest, Sha256};
use tokio::time::timeout;

use crate::answer::{Judged, judge};
use crate::refusal::Refusal;
use crate::registry::{Access, Logins, basic, is_at};
use crate::s3::{Buckets, Refused, why_refused};

/// How long a connection may take, and how long a server may be silent in an answer. Then the request is sent again.
pub const SILENCE: Duration = Duration::from_secs(20);

/// The most redirects that are followed.
const REDIRECTS: u32 = 5;

/// How many connections to one server there may be: those of the schedule, and some for documents.
const CONNECTIONS: usize = 20;

/// The most bytes that answers about names take on the disk.
const DOCUMENTS: u64 = 8 << 20;

/// Servers, and what they said about names.
pub struct Origin {
    client: Client,
    /// How long a server may take for a document or a token.
    pub silence: Duration,
    /// Hosts that a user has named. A redirect from another one must not lead to this machine.
    named: Arc<Mutex<HashSet<String>>>,
    pub logins: Logins,
    pub buckets: Buckets,
    /// What the user has for web servers, by their [`RemoteUrl::origin`]: values of `Authorization`.
    passwords: RefCell<HashMap<String, HeaderValue>>,
    /// Where a registry leads that has a blob elsewhere. It is asked there until it is not there any more.
    moved: RefCell<HashMap<String, String>>,
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
        Self::with(directory, SILENCE, Some(SILENCE))
    }

    /// For a job, whose answers begin when all of a large body was sent. Whoever sends that watches it.
    pub fn for_job(directory: &Path) -> io::Result<Self> {
        Self::with(directory, SILENCE, None)
    }

    /// `silence`: how long a document may be without a byte; `head`: how long an answer may be on its way.
    fn with(directory: &Path, silence: Duration, head: Option<Duration>) -> io::Result<Self> {
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
            .layer(|layer| layer.head_timeout(head).body_timeout(Some(silence)));
        if let Some(roots) = env::var_os("SSL_CERT_FILE").or_else(|| env::var_os("SSL_CERT_DIR")) {
            client = client.roots(roots);
        }
        Ok(Self {
            client: client.finish(),
            silence,
            named,
            logins: Logins::default(),
            buckets: Buckets::default(),
            passwords: RefCell::default(),
            moved: RefCell::default(),
        })
    }

    /// Waits until what servers said about names is stored.
    pub async fn idle(&self) {
        self.client.idle().await;
    }

    /// The user has named this host.
    pub fn name_host(&self, host: &str) {
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        named.insert(host.to_ascii_lowercase());
    }

    /// What the user has for a server. It counts from now on.
    pub fn log_in(&self, server: &str, credential: Option<Credential>) {
        match server.split_once("://") {
            Some(("s3", _)) => self.buckets.set(server, credential),
            Some(_) => {
                let value = credential.as_ref().and_then(password);
                let mut passwords = self.passwords.borrow_mut();
                match value {
                    Some(value) => drop(passwords.insert(server.to_owned(), value)),
                    None => drop(passwords.remove(server)),
                }
            }
            None => self.logins.set(server, credential),
        }
    }

    /// Sends a request.
    ///
    /// # Errors
    ///
    /// Why there is no answer.
    pub async fn send(
        &self,
        request: Request<reqwest::Body>,
    ) -> Result<Response<CacheBody>, Refusal> {
        self.client.send(request).await.map_err(|e| failed(&e))
    }

    /// Asks a web server or an object store for the image at `url`, or with a `suffix` for what is beside it. A store is asked with a
    /// signature, and again where it says that the bucket is.
    async fn ask(
        &self,
        url: &RemoteUrl,
        suffix: &str,
        fields: &HeaderMap,
    ) -> Result<Response<CacheBody>, Refusal> {
        let send = async |place: &str, fields: HeaderMap| -> Result<_, Refusal> {
            let host = Url::parse(place).map_err(|e| e.to_string())?;
            self.name_host(host.host_str().unwrap_or(""));
            let mut request = Request::get(place)
                .header(ACCEPT_ENCODING, "identity")
                .body(reqwest::Body::from(""))
                .map_err(|e| e.to_string())?;
            request.headers_mut().extend(fields);
            let mut response = self.send(request).await?;
            // What it says comes soon or not at all.
            timeout(self.silence, note_refusal(&mut response))
                .await
                .ok();
            Ok(response)
        };
        let Some(name) = url.object() else {
            let place = match suffix {
                "" => url.asked().to_owned(),
                suffix => url.beside(suffix),
            };
            let mut fields = fields.clone();
            // A password is for the origin that the user has named.
            if let Some(origin) = url.origin().filter(|origin| is_at(&place, origin))
                && let Some(value) = self.passwords.borrow().get(origin)
            {
                fields.insert(AUTHORIZATION, value.clone());
            }
            return send(&place, fields).await;
        };
        let name = name.beside(suffix);
        let mut is_moved = false;
        loop {
            let mut signed = self.buckets.sign(&name)?;
            let mut all = fields.clone();
            all.extend(std::mem::take(&mut signed.fields));
            let mut response = send(&signed.url, all).await?;
            // One that leads to and fro is no store.
            if !self.buckets.learn(&name, &signed, &mut response)? || is_moved {
                return Ok(response);
            }
            is_moved = true;
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
    ) -> Result<Document, Refusal> {
        // It is small, so one that drips is given up.
        let asked = timeout(self.silence, self.ask_document(url, suffix, refresh)).await;
        asked.unwrap_or_else(|_| Err(format!("{} is too slow", url.host()).into()))
    }

    async fn ask_document(
        &self,
        url: &RemoteUrl,
        suffix: &str,
        refresh: bool,
    ) -> Result<Document, Refusal> {
        let control = HeaderValue::from_static(control(refresh));
        let fields = HeaderMap::from_iter([(CACHE_CONTROL, control)]);
        let response = self.ask(url, suffix, &fields).await?;
        let status = response.status();
        match status.as_u16() {
            200 => {}
            // Object stores say 403 for what does not exist.
            403 | 404 | 410 => return Ok(Document::Missing),
            _ => {
                return Err(
                    match judge(status, response.headers(), &(0..0), None, None) {
                        Judged::Later(why, _) => Refusal::Later(why_refused(&response, why)),
                        Judged::Changed(why) | Judged::Never(why) => {
                            Refusal::Never(why_refused(&response, why))
                        }
                        Judged::Part(_) | Judged::Whole => Refusal::Never(format!(
                            "{} answers {status}, allowed is 200",
                            url.host()
                        )),
                    },
                );
            }
        }
        let stale = (refresh && !is_answer(&response)).then(|| SILENT.to_owned());
        let bytes = whole(response.into_body(), MOST_DESCRIPTOR).await?;
        let text = String::from_utf8(bytes).map_err(|_| "it is no text".to_owned())?;
        Ok(Document::Text { text, stale })
    }

    /// Asks for a part of the file at `url`: `bytes`, or the last bytes of it. None: all of it.
    ///
    /// # Errors
    ///
    /// Why there is no answer.
    pub async fn part(
        &self,
        url: &RemoteUrl,
        bytes: Option<&Part>,
        validator: Option<&str>,
    ) -> Result<Response<CacheBody>, Refusal> {
        // The bytes have a place of their own on the disk.
        let mut fields =
            HeaderMap::from_iter([(CACHE_CONTROL, HeaderValue::from_static("no-store"))]);
        let value = |text: &str| HeaderValue::try_from(text).map_err(|e| e.to_string());
        if let Some(bytes) = bytes {
            fields.insert(RANGE, value(&bytes.to_header())?);
            if let Some(validator) = validator {
                fields.insert(IF_RANGE, value(validator)?);
            }
        }
        self.ask(url, "", &fields).await
    }

    /// Asks for a part of a blob in a registry, there or where that has led before.
    ///
    /// # Errors
    ///
    /// Why there is no answer.
    pub async fn blob(
        &self,
        name: &RegistryName,
        digest: &str,
        bytes: Option<&Part>,
    ) -> Result<Response<CacheBody>, Refusal> {
        let url = name.blob_url(digest);
        let request = |url: &str| {
            let mut request = Request::get(url)
                .header(ACCEPT_ENCODING, "identity")
                .header(CACHE_CONTROL, "no-store");
            if let Some(bytes) = bytes {
                request = request.header(RANGE, bytes.to_header());
            }
            let request = request.body(reqwest::Body::from(""));
            request.map_err(|e| e.to_string())
        };
        let moved = self.moved.borrow().get(&url).cloned();
        if let Some(moved) = moved {
            // Such a place is often good for some minutes only.
            match self.send(request(&moved)?).await {
                Ok(response) if response.status().is_success() => return Ok(response),
                _ => drop(self.moved.borrow_mut().remove(&url)),
            }
        }
        let response = self
            .ask_registry(name, Access::Pull, || request(&url))
            .await?;
        let there = response.extensions().get::<ResponseUrl>();
        if let Some(ResponseUrl(there)) = there.filter(|there| !is_at(&there.0, &name.origin()))
            && response.status().is_success()
        {
            self.moved.borrow_mut().insert(url, there.clone());
        }
        Ok(response)
    }

    /// A manifest, of which the digest is right if it is asked for by one. With `refresh`, the registry is asked even if an earlier
    /// answer is fresh; the second value says why it was not, if it could not be.
    ///
    /// # Errors
    ///
    /// Why there is no answer.
    pub async fn manifest(
        &self,
        name: &RegistryName,
        reference: &str,
        refresh: bool,
        most: u64,
    ) -> Result<Manifested, Refusal> {
        let control = match is_sha256(reference) {
            // It never changes.
            true => "max-stale=31536000, stale-if-error=31536000",
            false => control(refresh),
        };
        let request = || {
            Request::get(name.manifest_url(reference))
                .header(ACCEPT_ENCODING, "identity")
                .header(ACCEPT, MANIFESTS.join(", "))
                .header(CACHE_CONTROL, control)
                .body(reqwest::Body::from(""))
                .map_err(|e| e.to_string())
        };
        let asked = timeout(SILENCE, self.ask_registry(name, Access::Pull, request)).await;
        let response = asked.map_err(|_| format!("{} is too slow", name.host()))??;
        let status = response.status();
        match status.as_u16() {
            200 => {}
            401 | 403 => return Err(self.refuse(name)),
            404 => {
                let why = format!("{} has no {} {reference}", name.host(), name.name());
                return Err(Refusal::Never(why));
            }
            _ => return Err(format!("{} answers {status}", name.host()).into()),
        }
        let stale = (refresh && !is_answer(&response)).then(|| SILENT.to_owned());
        let read = timeout(SILENCE, whole(response.into_body(), most)).await;
        let bytes = read.map_err(|_| format!("{} is too slow", name.host()))??;
        let digest = format!("sha256:{}", digits(&Sha256::digest(&bytes)));
        if is_sha256(reference) && digest != reference {
            return Err(Refusal::Never(format!(
                "{} sends a manifest with the digest {digest}, but asked for was {reference}",
                name.host()
            )));
        }
        let text = String::from_utf8(bytes)
            .map_err(|_| Refusal::Never("the manifest is no text".to_owned()))?;
        Ok(Manifested {
            text,
            digest,
            stale,
            index: None,
        })
    }

    /// The same, and if it is a list, the manifest in it for a platform that the name chooses.
    ///
    /// # Errors
    ///
    /// As [`Origin::manifest`].
    pub async fn manifest_for(
        &self,
        name: &RegistryName,
        platform: &Platform,
        refresh: bool,
        most: u64,
    ) -> Result<Manifested, Refusal> {
        let found = self.manifest(name, name.reference(), refresh, most).await?;
        let Some(index) = Index::parse(&found.text) else {
            return match &name.choice().variant {
                None => Ok(found),
                Some(variant) => Err(Refusal::Never(format!(
                    "there is one image under this name, and no variant {variant}; leave out the variant"
                ))),
            };
        };
        let chosen = index.choose(platform, name.choice());
        let chosen = chosen.map_err(|e| Refusal::Never(reasons(&e)))?;
        let manifest = self.manifest(name, &chosen.digest, false, most).await?;
        if Index::parse(&manifest.text).is_some() {
            let why = "the list of manifests leads to another list, and brisk reads only the first";
            return Err(Refusal::Never(why.into()));
        }
        Ok(Manifested {
            stale: found.stale,
            index: Some(found.text),
            ..manifest
        })
    }

    /// What is said of the manifest with this digest: by the list of the registry, or under a tag that stands for one in registries that
    /// have none.
    ///
    /// # Errors
    ///
    /// Why there is no answer.
    pub async fn referrers(&self, name: &RegistryName, digest: &str) -> Result<Index, Refusal> {
        let request = || {
            Request::get(name.referrers_url(digest))
                .header(ACCEPT, media_type::INDEX)
                .header(CACHE_CONTROL, "no-store")
                .body(reqwest::Body::from(""))
                .map_err(|e| e.to_string())
        };
        let asked = timeout(SILENCE, self.ask_registry(name, Access::Pull, request)).await;
        let response = asked.map_err(|_| format!("{} is too slow", name.host()))??;
        if response.status().is_success() {
            let read = timeout(SILENCE, whole(response.into_body(), MOST_INDEX)).await;
            let bytes = read.map_err(|_| format!("{} is too slow", name.host()))??;
            if let Some(index) = Index::parse(&String::from_utf8_lossy(&bytes)) {
                return Ok(index);
            }
        }
        let tag = referrers_tag(digest);
        let found = self.manifest(name, &tag, true, MOST_INDEX).await?;
        let no_list =
            || Refusal::Never(format!("{} has no list of manifests as {tag}", name.host()));
        Index::parse(&found.text).ok_or_else(no_list)
    }

    /// Asks a registry of which nothing is known whether it wants to know who asks. Nothing else counts.
    pub async fn knock(&self, name: &RegistryName, digest: &str) -> Result<(), Refusal> {
        if self.logins.knows(name) {
            return Ok(());
        }
        let request = || {
            Request::head(name.blob_url(digest))
                .header(CACHE_CONTROL, "no-store")
                .body(reqwest::Body::from(""))
                .map_err(|e| e.to_string())
        };
        match timeout(KNOCK, self.ask_registry(name, Access::Pull, request)).await {
            Ok(Err(Refusal::Login(host))) => Err(Refusal::Login(host)),
            _ => Ok(()),
        }
    }
}

/// What a web server gets of a user and a password.
fn password(credential: &Credential) -> Option<HeaderValue> {
    let value = basic(credential.user.as_deref()?, &credential.secret);
    let mut value = HeaderValue::try_from(value).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Notes in an answer why the server refuses, if it says that.
async fn note_refusal(response: &mut Response<CacheBody>) {
    if !Refused::may_be_in(response) {
        return;
    }
    let mut body = Vec::new();
    while let Some(Ok(piece)) = next_piece(response.body_mut()).await {
        body.extend_from_slice(&piece);
        if body.len() > MOST_REFUSAL {
            return;
        }
    }
    Refused::note(response, &body);
}

/// The most bytes of an answer that says why a server refuses.
const MOST_REFUSAL: usize = 64 << 10;

/// What a registry has under a name.
pub struct Manifested {
    pub text: String,
    /// Its digest, with `sha256:`, which was computed here.
    pub digest: String,
    /// Why the registry was not asked, if it was not.
    pub stale: Option<String>,
    /// The list that has led to it.
    pub index: Option<String>,
}

/// The most bytes of a list of what is said of a manifest.
pub const MOST_INDEX: u64 = 1 << 20;

/// The tag that stands for such a list.
pub fn referrers_tag(digest: &str) -> String {
    digest.replace(':', "-")
}

/// Kinds of manifests that brisk reads.
const MANIFESTS: [&str; 4] = [
    media_type::MANIFEST,
    media_type::INDEX,
    media_type::DOCKER_MANIFEST,
    media_type::DOCKER_INDEX,
];

/// Why an earlier answer counts.
const SILENT: &str = "it does not answer";

/// How long a registry may take to say that it wants to know who asks, before a start goes on without.
const KNOCK: Duration = Duration::from_secs(5);

/// How a name is asked for.
fn control(refresh: bool) -> &'static str {
    match refresh {
        true => "no-cache, stale-if-error=31536000",
        false => "stale-if-error=31536000",
    }
}

/// Whether the server has answered now: an answer that stands in for it has no status.
fn is_answer(response: &Response<CacheBody>) -> bool {
    let served = response.headers().get("cache-status");
    let served = served.and_then(|status| status.to_str().ok());
    served.is_some_and(|status| status.contains("fwd-status"))
}

/// Which part of a file.
pub enum Part {
    Bytes(Range<u64>),
    Last(u64),
}

impl Part {
    fn to_header(&self) -> String {
        match self {
            Self::Bytes(bytes) => {
                format!("bytes={}-{}", bytes.start, bytes.end.saturating_sub(1))
            }
            Self::Last(bytes) => format!("bytes=-{bytes}"),
        }
    }
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

/// All of a small body.
pub async fn whole(mut body: CacheBody, most: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    while let Some(piece) = next_piece(&mut body).await {
        bytes.extend_from_slice(&piece?);
        if bytes.len() as u64 > most {
            return Err(format!("it has more than {most} bytes"));
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
fn failed(error: &FetchError) -> Refusal {
    let why = reasons(error);
    if why.contains("certificate") {
        return Refusal::NotSoon(format!(
            "{why}; if you trust who has signed the server's certificate, name the file with theirs in SSL_CERT_FILE"
        ));
    }
    // What comes first is no message of TLS.
    if why.contains("InvalidContentType") {
        return Refusal::NotSoon(format!(
            "{why}; the server speaks no TLS on this port: look at the port, or ask by http://"
        ));
    }
    match error.kind() == FetchErrorKind::Redirects || why.contains(LEADS_NEAR) {
        true => Refusal::NotSoon(why),
        false => Refusal::Later(why),
    }
}

/// Why a redirect is not followed.
const LEADS_NEAR: &str = "which is this machine or on its link";

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
    without_query(&all.join(": "))
}

/// The same text, with URLs up to their `?`: where a server leads can have a key behind that.
fn without_query(text: &str) -> String {
    const BEFORE: &str = "url (";
    let mut parts = text.split(BEFORE);
    let mut shown = parts.next().unwrap_or("").to_owned();
    for part in parts {
        let (url, rest) = part.split_once(')').unwrap_or((part, ""));
        let url = url.split('?').next().unwrap_or("");
        shown += &format!("{BEFORE}{url}){rest}");
    }
    shown
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
                let text = format!("a redirect leads to {host}, {LEADS_NEAR}");
                return Err(io::Error::other(text).into());
            }
            Ok(Box::new(may.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    use super::*;

    /// What a server on a port of its own does with each connection.
    fn server(answer: impl Fn(TcpStream, SocketAddr) + Copy + Send + 'static) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                thread::spawn(move || answer(stream, address));
            }
        });
        address
    }

    /// Each byte of a document or a token comes well before a silent server is given up.
    fn drip(mut stream: TcpStream, address: SocketAddr) {
        let mut request = [0; 4096];
        let read = stream.read(&mut request).expect("a request");
        if request[..read].starts_with(b"GET /v2/") {
            let head = wants_token(address);
            let answer =
                format!("HTTP/1.1 {head}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
            stream.write_all(answer.as_bytes()).expect("it listens");
            return;
        }
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n";
        stream.write_all(head.as_bytes()).expect("it listens");
        while stream.write_all(b"#").is_ok() {
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn wants_token(address: SocketAddr) -> String {
        format!("401 No\r\nWWW-Authenticate: Bearer realm=\"http://{address}/\"")
    }

    fn answered<T>(asked: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        tokio::task::LocalSet::new().block_on(&runtime, asked)
    }

    fn name(address: SocketAddr) -> RegistryName {
        let url = RemoteUrl::parse(&format!("oci://{address}/app:1")).expect("a URL");
        url.registry().expect("a registry")
    }

    #[test]
    fn a_document_that_drips_is_given_up() {
        let address = server(drip);
        let dir = tempfile::tempdir().expect("a directory");
        let origin = Origin::with(dir.path(), Duration::from_millis(200), None).expect("room");
        let url = RemoteUrl::parse(&format!("http://{address}/app.img")).expect("a URL");
        let asked = answered(origin.document(&url, ".remote", false));
        let is_slow =
            |why: &Refusal| matches!(why, Refusal::Later(why) if why == "127.0.0.1 is too slow");
        assert!(asked.err().as_ref().is_some_and(is_slow));
    }

    /// The second request waits for the token of the first.
    #[test]
    fn a_token_that_drips_is_given_up() {
        let name = name(server(drip));
        let dir = tempfile::tempdir().expect("a directory");
        let origin = Origin::with(dir.path(), Duration::from_millis(200), None).expect("room");
        origin.logins.set(name.host(), None);
        let ask = || origin.blob(&name, "sha256:0", None);
        let (first, second) = answered(async { tokio::join!(ask(), ask()) });
        let host = name.host();
        for asked in [first, second] {
            let Err(Refusal::Later(why)) = asked.map(|_| ()) else {
                panic!("it is not given up");
            };
            let expected = format!("{host}, which gives tokens for {host}, is too slow");
            assert_eq!(why, expected);
        }
    }

    #[test]
    fn nobody_waits_for_the_token_of_another_registry() {
        let slow = name(server(drip));
        let sound = name(server(|mut stream, address| {
            let mut request = [0; 4096];
            while let Ok(read @ 1..) = stream.read(&mut request) {
                let request = String::from_utf8_lossy(&request[..read]).to_ascii_lowercase();
                let (head, body) = if request.contains("authorization: bearer t") {
                    ("200 OK".to_owned(), "blob")
                } else if request.starts_with("get /v2/") {
                    (wants_token(address), "")
                } else {
                    ("200 OK".to_owned(), "{\"token\":\"t\"}")
                };
                let len = body.len();
                let answer = format!("HTTP/1.1 {head}\r\nContent-Length: {len}\r\n\r\n{body}");
                stream.write_all(answer.as_bytes()).expect("it listens");
            }
        }));
        let dir = tempfile::tempdir().expect("a directory");
        let origin = Origin::with(dir.path(), Duration::from_secs(3600), None).expect("room");
        for name in [&slow, &sound] {
            origin.logins.set(name.host(), None);
        }
        let waits = origin.blob(&slow, "sha256:0", None);
        let asked = async {
            while origin.logins.one(&slow).try_lock().is_ok() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            origin.blob(&sound, "sha256:0", None).await
        };
        let answer = answered(async {
            tokio::select! {
                _ = waits => panic!("it drips for ever"),
                asked = asked => asked.map(|response| response.status()),
            }
        });
        assert_eq!(answer.expect("an answer"), 200);
    }

    #[test]
    fn no_message_has_what_stands_behind_a_url() {
        let text =
            "error sending request for url (https://a.example/x?key=1): closed: url (b) ended";
        let shown = "error sending request for url (https://a.example/x): closed: url (b) ended";
        assert_eq!(without_query(text), shown);
        assert_eq!(without_query("no answer"), "no answer");
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
