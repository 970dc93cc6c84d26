//! A request from its head to its answer.

use std::borrow::Cow;
use std::error::Error;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST, LINK, LOCATION, UPGRADE};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::Limited;
use hyper::body::{Body as _, Frame, SizeHint};
use tower_service::Service;
use url::Url;

use crate::access::Access;
use crate::access_log::{AccessLog, Entry};
use crate::body::{Body, BodyError, LateBody, empty};
use crate::cached;
use crate::file_hosts::{FileHosts, Named};
use crate::file_stream::{self, Files, Piece};
use crate::form::{Forms, Rules};
use crate::grants::Grants;
use crate::guarded_stream::{Connection, InFlight, REFUSED};
use crate::hop_by_hop::{self, Via};
use crate::kind::Kind;
use crate::lasting::Lasting;
use crate::map::{Map, Maps, may_leave};
use crate::mapped_memory::MappedMemory;
use crate::metrics::{Metrics, Outcome};
use crate::oci::{self, Item, Ping};
use crate::own_pages::OwnPages;
use crate::page::{self, Asked};
use crate::patient_body::PatientBody;
use crate::preset;
use crate::problem::Problem;
use crate::request_head::{MOST_FIELDS, Refusal};
use crate::stated::{Stated, WrongDigest};
use crate::steering_fields;
use crate::upstream::{MOST_REDIRECTS, Upstream, forget_credentials};
use crate::upstream_credential::{UpstreamCredential, UpstreamCredentials};

/// Why a path is refused that a server may take for one beside its map.
const LEAVES: &str = "the path may leave its map: it has a segment . or .., a backslash or a zero byte, or it is escaped more \
                      than four times";

/// What a cache did (RFC 9211).
pub const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

/// A service that fetches, through a cache or not.
pub trait Fetch: Clone + Send + Sync + 'static {
    /// Fetches.
    fn fetch(&self, request: Request<Body>) -> Fetched;
}

/// What comes of a fetch.
pub type Fetched = Pin<Box<dyn Future<Output = Result<Response<Body>, Problem>> + Send>>;

impl<S, B> Fetch for S
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    S::Error: Error + 'static,
    B: Into<Body> + 'static,
{
    fn fetch(&self, request: Request<Body>) -> Fetched {
        plain(self.clone().call(request))
    }
}

/// An answer whose body and error have plain types.
fn plain<B, E>(answer: impl Future<Output = Result<Response<B>, E>> + Send + 'static) -> Fetched
where
    B: Into<Body>,
    E: Error + 'static,
{
    Box::pin(async move {
        match answer.await {
            Ok(response) => Ok(response.map(Into::into)),
            Err(e) => Err(Problem::of_fetch(&e)),
        }
    })
}

/// Everything that answers a request.
pub struct Proxy<F> {
    /// What stands where.
    pub maps: Arc<Maps>,
    /// Who may ask.
    pub access: Access,
    /// The hosts of files that pages name.
    pub hosts: FileHosts,
    /// The forms of index pages.
    pub forms: Arc<Forms>,
    /// The hosts to which redirects are followed.
    pub follow: Arc<[String]>,
    /// What the operator gives upstreams.
    pub credentials: UpstreamCredentials,
    /// The fields that steer an upstream and pass all the same.
    pub passed: Vec<HeaderName>,
    /// The URL of the proxy, without a slash at its end.
    pub public_url: Option<String>,
    /// Where answers come from.
    pub fetch: F,
    /// What the cache asks. Parts of blobs come from there, and what must not be kept.
    pub upstream: Upstream,
    /// Who has shown that a registry lets them pull.
    pub grants: Arc<Grants>,
    /// Whether no upstream may be asked.
    pub offline: bool,
    /// For how long what is kept stands in for an upstream that fails.
    pub stale: Duration,
    /// This proxy's name among proxies.
    pub via: Via,
    /// How long the body of a request may be.
    pub upload_limit: u64,
    /// What the proxy shows of itself.
    pub pages: OwnPages,
    /// What the cache has mapped.
    pub mapped: MappedMemory,
    /// What happened, in numbers.
    pub metrics: Arc<Metrics>,
    /// And in lines.
    pub log: AccessLog,
}

impl<F: Fetch> Proxy<F> {
    /// Answers a request. The answer is counted and logged when its body has gone.
    pub async fn answer<B>(
        self: Arc<Self>,
        connection: Arc<Connection>,
        files: Arc<Files>,
        request: Request<B>,
    ) -> Response<CountedBody<F>>
    where
        B: hyper::body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BodyError>,
    {
        let in_flight = InFlight::begin(&connection);
        let begun = Instant::now();
        let (head, body) = request.into_parts();
        let (method, target) = (head.method.clone(), head.uri.clone());
        // Answers over HTTP/2 come between each other.
        let files = (head.version < http::Version::HTTP_2).then_some(files);
        let body = match files {
            Some(_) => Body::new(body),
            // The connection is not waited for: other requests come in it.
            None => {
                let late = || LateBody.into();
                let patience = connection.patience.piece;
                Body::new(PatientBody::new(Box::pin(body), patience, |_| (), late))
            }
        };
        let (outcome, response) = match self.respond(&connection, head, body).await {
            Ok(answer) => answer,
            Err(problem) => {
                // A body that is refused breaks off the fetch that passes it on.
                let problem = match connection.refusal() {
                    Some(refusal) => Problem::unreadable(refusal),
                    None => problem,
                };
                let outcome = match problem.status().is_server_error() {
                    true => Outcome::Failed,
                    false => Outcome::Refused,
                };
                (outcome, problem.response())
            }
        };
        let (head, body) = response.into_parts();
        let cache_status = match self.log.is_off() {
            true => String::new(),
            false => last_status(&head.headers).into_owned(),
        };
        let finished = Finished {
            proxy: self,
            connection,
            method,
            target,
            status: head.status,
            cache_status,
            outcome,
            begun,
            bytes: 0,
            whole: body.is_end_stream(),
            fault: None,
            in_flight,
        };
        let body = CountedBody {
            body,
            files,
            left: Bytes::new(),
            finished,
        };
        Response::from_parts(head, body)
    }

    async fn respond(
        &self,
        connection: &Connection,
        mut head: Parts,
        body: Body,
    ) -> Result<(Outcome, Response<Body>), Problem> {
        if head.method.as_str() == REFUSED
            && let Some(refusal) = connection.refusal()
        {
            return Err(Problem::unreadable(refusal));
        }
        let peer = connection.peer.ip();
        self.access.admit(peer, &mut head.headers)?;
        check(&head)?;
        if head.uri.path().starts_with("/-/") {
            return Ok((Outcome::Own, self.own_page(peer, &head).await?));
        }
        if self.via.is_loop(&head.headers) {
            return Err(Problem::new(
                StatusCode::LOOP_DETECTED,
                "the request has come through this proxy before: a map leads back to it",
            ));
        }
        if length(&head.headers).is_some_and(|length| length > self.upload_limit) {
            return Err(Problem::too_long());
        }
        let (stated, path) = Stated::of_path(head.uri.path());
        let Some((map, rest)) = self.maps.find(path) else {
            if matches!(path, "/v2" | "/v2/")
                && self.maps.iter().any(|map| map.kind().is_registry())
            {
                let response = self.ping(&head).await?;
                return Ok((outcome(response.headers()), response));
            }
            let known: Vec<String> = self
                .maps
                .iter()
                .map(|map| format!("{}/", map.prefix()))
                .collect();
            return Err(Problem::new(
                StatusCode::NOT_FOUND,
                format!(
                    "nothing is mapped to this path; mapped are {}",
                    known.join(", ")
                ),
            ));
        };
        let response = self.pass((map, rest, stated), &head, body).await?;
        Ok((outcome(response.headers()), response))
    }

    /// Passes a request on to the upstream of a map, or to a host of its files.
    pub async fn pass(
        &self,
        (map, rest, stated): (&Map, &str, Option<Stated>),
        head: &Parts,
        body: Body,
    ) -> Result<Response<Body>, Problem> {
        let is_registry = map.kind().is_registry();
        if map.kind() == Kind::Oci && !is_read(&head.method) {
            return Err(oci::no_pushes());
        }
        let query = head.uri.query();
        let plain = query.filter(|_| is_registry).map(oci::without_namespace);
        let query = plain.as_ref().map_or(query, Option::as_deref);
        let (url, is_index) = match self.hosts.url_of(map, rest, query) {
            Some(url) => (url?, false),
            None => (map.url(rest, query), true),
        };
        let mut request = self.onward(head, &url, body)?;
        let file = match is_index {
            true => None,
            false => Some(parsed(&url)?),
        };
        if file
            .as_ref()
            .is_some_and(|file| file.origin() != map.upstream().origin())
        {
            forget_credentials(request.headers_mut());
        } else if let Some(credential) = self.credentials.of(map) {
            credential.replace(request.headers_mut());
            request.extensions_mut().insert(credential.clone());
        }
        if file.is_some_and(|file| file.host() != map.upstream().host()) {
            request.extensions_mut().insert(Named);
        }
        if preset::is_lasting(map.kind(), rest) {
            request.extensions_mut().insert(Lasting);
        }
        let item = Item::of_path(rest).filter(|_| is_registry && is_read(&head.method));
        if is_registry && item.is_none() && url.trim_end_matches('/').ends_with("/v2") {
            request.extensions_mut().insert(Ping);
        }
        let of_name = match map.kind() {
            Kind::Apt => Stated::of_by_hash(rest),
            _ => item.as_ref().and_then(|item| item.digest.clone()),
        };
        if let Some(stated) = of_name.or_else(|| stated.clone()) {
            request.extensions_mut().insert(stated);
        }
        let may_be_page =
            is_index && is_read(&head.method) && preset::may_be_page(map.kind(), rest);
        let whose = may_be_page.then(|| {
            page::ask_for_whole(&mut request);
            self.forms.whose(request.headers())
        });
        let (url, mut response) = match item {
            Some(item) => (url, self.pull(map, &item, request).await?),
            None => self.follow(url, request).await?,
        };
        if is_of_cache_alone(&response) {
            explain(&mut response);
        }
        match is_registry {
            true => self.mend_links(&url, &mut response),
            false => self.mend_redirect(&url, stated.as_ref(), &mut response),
        }
        hop_by_hop::remove(response.headers_mut());
        let version = response.version();
        if let Some(whose) = whose {
            response = self
                .page((map, rest), head, (&url, whose), response)
                .await?;
        }
        self.via.add(response.headers_mut(), version);
        // The connection of the client has a version of its own.
        *response.version_mut() = http::Version::HTTP_11;
        Ok(response)
    }

    /// Sends a request, and follows redirects to hosts that may be followed. Each hop is cached for itself. Returns the
    /// last URL, too.
    async fn follow(
        &self,
        url: String,
        request: Request<Body>,
    ) -> Result<(String, Response<Body>), Problem> {
        let is_plain = matches!(*request.method(), Method::GET | Method::HEAD)
            && request.body().is_end_stream();
        if self.follow.is_empty() || !is_plain {
            return Ok((url, self.fetch.fetch(request).await?));
        }
        let (mut head, _) = request.into_parts();
        let mut url = url;
        for _ in 0..MOST_REDIRECTS {
            let request = Request::from_parts(head.clone(), empty());
            let response = self.fetch.fetch(request).await?;
            let Some(target) = location(&url, &response) else {
                return Ok((url, response));
            };
            let here = Url::parse(&url).ok();
            let downgrades = target.scheme() != "https" && url.starts_with("https:");
            if !oci::is_one_of(&self.follow, &target)
                || downgrades
                || self.maps.path_of(&target).is_some()
            {
                return Ok((url, response));
            }
            if here.is_none_or(|here| here.origin() != target.origin()) {
                forget_credentials(&mut head.headers);
                head.extensions.remove::<UpstreamCredential>();
            }
            url = target.into();
            head.uri = Uri::try_from(&url).map_err(|_| {
                Problem::new(
                    StatusCode::BAD_GATEWAY,
                    "the upstream redirects to what is no URL",
                )
            })?;
        }
        Err(Problem::new(
            StatusCode::BAD_GATEWAY,
            format!("the upstream redirects more than {MOST_REDIRECTS} times"),
        ))
    }

    /// The form of an index page for this client, if the answer is one.
    async fn page(
        &self,
        (map, rest): (&Map, &str),
        head: &Parts,
        (url, whose): (&str, String),
        response: Response<Body>,
    ) -> Result<Response<Body>, Problem> {
        let proxy = match &self.public_url {
            Some(url) => url.clone(),
            None => format!("http://{}", host(head).unwrap_or_default()),
        };
        let page = parsed(url)?;
        let rules = |kind, coding| Rules {
            map: map.clone(),
            maps: Arc::clone(&self.maps),
            hosts: self.hosts.clone(),
            page,
            path: head.uri.path().to_owned(),
            proxy,
            kind,
            coding,
            whose,
        };
        let asked = Asked {
            method: &head.method,
            headers: &head.headers,
        };
        page::rewritten(&asked, &self.forms, (map.kind(), rest), response, rules).await
    }

    /// The request that goes on.
    fn onward(&self, head: &Parts, url: &str, body: Body) -> Result<Request<Body>, Problem> {
        let url = Uri::try_from(url).map_err(|_| {
            Problem::new(StatusCode::BAD_REQUEST, "the path cannot be part of a URL")
        })?;
        let body = match body.is_end_stream() {
            true => empty(),
            false => {
                let limit = usize::try_from(self.upload_limit).unwrap_or(usize::MAX);
                Body::new(Limited::new(body, limit))
            }
        };
        let mut request = Request::new(body);
        *request.method_mut() = head.method.clone();
        *request.uri_mut() = url;
        let mut headers = head.headers.clone();
        hop_by_hop::prepare_request(&mut headers);
        steering_fields::remove(&mut headers, &self.passed);
        self.via.add(&mut headers, head.version);
        *request.headers_mut() = headers;
        Ok(request)
    }

    /// A redirect to a URL of a map leads to the path of that map.
    fn mend_redirect(&self, url: &str, stated: Option<&Stated>, response: &mut Response<Body>) {
        if !response.status().is_redirection() {
            return;
        }
        let target = location(url, response);
        let path = target.and_then(|target| self.maps.path_of(&target));
        let stated = stated.map_or_else(String::new, Stated::prefix);
        let path = path.map(|path| stated + &path);
        if let Some(path) = path.and_then(|path| HeaderValue::try_from(path).ok()) {
            response.headers_mut().insert(LOCATION, path);
        }
    }

    /// The same for places and next pages that the answer of a registry names.
    fn mend_links(&self, url: &str, response: &mut Response<Body>) {
        let Ok(here) = Url::parse(url) else {
            return;
        };
        let path = |link: &str| self.maps.path_of(&here.join(link).ok()?);
        for name in [LOCATION, LINK] {
            let Some(value) = response.headers().get(&name) else {
                continue;
            };
            let Ok(text) = value.to_str() else { continue };
            let mended = match text.strip_prefix('<').and_then(|rest| rest.split_once('>')) {
                Some((link, rest)) => path(link).map(|path| format!("<{path}>{rest}")),
                None => path(text),
            };
            if let Some(value) = mended.and_then(|text| HeaderValue::try_from(text).ok()) {
                response.headers_mut().insert(name, value);
            }
        }
    }

    async fn own_page(&self, peer: IpAddr, head: &Parts) -> Result<Response<Body>, Problem> {
        if !self.access.admits_to_pages(peer, host(head)) {
            return Err(Problem::new(
                StatusCode::FORBIDDEN,
                "the pages under /-/ answer only this machine, under the name localhost or an address; start the proxy \
                 with --open-pages to let others read them",
            ));
        }
        self.pages
            .answer(&head.method, head.uri.path(), &self.maps, &self.metrics)
            .await
    }
}

/// Refuses what this proxy does not do. Heads of HTTP/1 were judged before.
fn check(head: &Parts) -> Result<(), Problem> {
    if head.method == Method::CONNECT {
        return Err(Problem::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "this is no forward proxy: it makes no tunnels; use the URLs that its maps name",
        ));
    }
    if head.method == Method::TRACE {
        return Err(Problem::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "TRACE is not passed on: its answer would show the credentials of the request",
        ));
    }
    // A client that offers HTTP/2 in this way is content with HTTP/1.
    let mut upgrades = head.headers.get_all(UPGRADE).iter();
    if upgrades.any(|line| !line.as_bytes().eq_ignore_ascii_case(b"h2c")) {
        return Err(Problem::new(
            StatusCode::NOT_IMPLEMENTED,
            "upgrades to other protocols are not passed on; connect to the upstream itself",
        ));
    }
    let mut expects = head.headers.get_all(http::header::EXPECT).iter();
    if expects.any(|line| !line.as_bytes().eq_ignore_ascii_case(b"100-continue")) {
        return Err(Problem::new(
            StatusCode::EXPECTATION_FAILED,
            "the only expectation that is known is 100-continue",
        ));
    }
    let target = head.uri.path_and_query().map_or("", PathAndQuery::as_str);
    if target.len() > 8 * 1024 {
        return Err(Problem::new(
            StatusCode::URI_TOO_LONG,
            "the target is longer than 8 KiB",
        ));
    }
    if head.headers.len() > MOST_FIELDS {
        return Err(Problem::new(
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            "the head has more than 100 fields",
        ));
    }
    if may_leave(head.uri.path()) {
        return Err(Refusal::bad(LEAVES).into());
    }
    Ok(())
}

/// Whether no upstream was asked, and the cache has no answer: the proxy is offline, or the client wants no other answer.
///
/// The 504 of an upstream may come from the cache, too. The cache says more about that one than why it has no answer.
pub fn is_of_cache_alone(response: &Response<Body>) -> bool {
    let status = last_status(response.headers());
    let mut parameters = status.split(';').map(str::trim);
    response.status() == StatusCode::GATEWAY_TIMEOUT
        && parameters.next() == Some(cached::NAME)
        && parameters.next().is_some_and(|why| why.starts_with("fwd="))
        && parameters.next().is_none()
}

/// Whether a method only reads.
pub fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// Says in words why there is no answer.
fn explain(response: &mut Response<Body>) {
    let words = Problem::new(
        StatusCode::GATEWAY_TIMEOUT,
        "the cache does not have this, and no upstream may be asked: the proxy runs with --offline, or the request has \
         only-if-cached",
    )
    .response();
    let (head, body) = words.into_parts();
    *response.body_mut() = body;
    response.headers_mut().remove(CONTENT_LENGTH);
    response.headers_mut().extend(head.headers);
}

/// The host that the client asks, and its port.
fn host(head: &Parts) -> Option<&str> {
    let authority = head.uri.authority().map(|authority| authority.as_str());
    authority.or_else(|| head.headers.get(HOST)?.to_str().ok())
}

fn parsed(url: &str) -> Result<Url, Problem> {
    Url::parse(url)
        .map_err(|_| Problem::new(StatusCode::BAD_REQUEST, "the path cannot be part of a URL"))
}

/// Where a redirect leads.
fn location(url: &str, response: &Response<Body>) -> Option<Url> {
    if !response.status().is_redirection() {
        return None;
    }
    let location = response.headers().get(LOCATION)?.to_str().ok()?;
    Url::parse(url).ok()?.join(location).ok()
}

fn length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// What the nearest cache did: caches add themselves at the end.
pub fn last_status(headers: &HeaderMap) -> Cow<'_, str> {
    let line = headers.get_all(CACHE_STATUS).iter().next_back();
    let text = line.map(|line| String::from_utf8_lossy(line.as_bytes()));
    match text {
        Some(Cow::Borrowed(text)) => Cow::Borrowed(last_member(text)),
        Some(Cow::Owned(text)) => Cow::Owned(last_member(&text).to_owned()),
        None => Cow::Borrowed(""),
    }
}

/// The last member of a list. Commas in quotes part nothing.
fn last_member(text: &str) -> &str {
    let (mut quoted, mut escaped, mut start) = (false, false, 0);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            ',' if !quoted => start = at + 1,
            _ => {}
        }
    }
    text.get(start..).unwrap_or_default().trim()
}

fn outcome(headers: &HeaderMap) -> Outcome {
    let status = last_status(headers);
    let mut parameters = status.split(';').map(str::trim).skip(1);
    let has = |wanted: &str| parameters.clone().any(|parameter| parameter == wanted);
    let is_stale = parameters
        .clone()
        .any(|parameter| parameter.starts_with("ttl=-"));
    if has("hit") {
        return match is_stale {
            true => Outcome::Stale,
            false => Outcome::Hit,
        };
    }
    if has("detail=stale-if-error") {
        return Outcome::Stale;
    }
    match has("fwd-status=304") || parameters.any(|parameter| parameter == "collapsed") {
        true => Outcome::Revalidated,
        false => Outcome::Miss,
    }
}

/// What is counted and logged when an answer has gone, or its client.
struct Finished<F: Fetch> {
    proxy: Arc<Proxy<F>>,
    connection: Arc<Connection>,
    method: Method,
    target: Uri,
    status: StatusCode,
    /// Empty if there is no log.
    cache_status: String,
    outcome: Outcome,
    begun: Instant,
    bytes: u64,
    whole: bool,
    /// Why the body broke off.
    fault: Option<Fault>,
    in_flight: InFlight,
}

/// Why the body of an answer broke off, though its client did not leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The file has another digest than is stated.
    WrongDigest,
    /// The upstream or the cache had no more of it.
    CutShort,
}

impl Fault {
    fn of(error: &(dyn Error + 'static)) -> Self {
        let mut next = Some(error);
        while let Some(cause) = next {
            if cause.is::<WrongDigest>() {
                return Self::WrongDigest;
            }
            next = cause.source();
        }
        Self::CutShort
    }

    /// What the cache did in truth. When it said so, the body was still to come.
    fn corrected(self, cache_status: &str) -> String {
        let detail = match self {
            Self::WrongDigest => "detail=wrong-digest",
            Self::CutShort => "detail=cut-short",
        };
        let parameters = cache_status.split(';').map(str::trim);
        let mut parameters: Vec<&str> = parameters
            .filter(|parameter| !["", "stored"].contains(parameter))
            .collect();
        parameters.push(detail);
        parameters.join("; ")
    }
}

impl<F: Fetch> Drop for Finished<F> {
    fn drop(&mut self) {
        self.proxy.metrics.answered(self.outcome, self.bytes);
        self.proxy.mapped.answered();
        if let Some(fault) = self.fault
            && !self.proxy.log.is_off()
        {
            self.cache_status = fault.corrected(&self.cache_status);
        }
        self.proxy.log.write(&Entry {
            peer: self.connection.peer.ip(),
            method: &self.method,
            target: &self.target,
            status: self.status,
            bytes: self.bytes,
            whole: self.whole,
            time: self.begun.elapsed(),
            cache_status: &self.cache_status,
        });
    }
}

/// The body of an answer, whose bytes are counted.
pub struct CountedBody<F: Fetch> {
    body: Body,
    /// What sends parts of files, if anything does.
    files: Option<Arc<Files>>,
    /// What the last piece has beyond what the client gets at once.
    left: Bytes,
    finished: Finished<F>,
}

/// The most bytes of a piece over HTTP/2: that of a frame. A client that is slow shows with each piece that it is there.
const HTTP2_PIECE: usize = 16 * 1024;

impl<F: Fetch> CountedBody<F> {
    /// The next piece over HTTP/2. Its client is waited for until the next call.
    fn poll_small(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece>, BodyError>>> {
        self.finished.in_flight.is_taken();
        if self.left.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)).transpose()? {
                None => {
                    self.finished.whole = true;
                    return Poll::Ready(None);
                }
                Some(frame) => match frame.into_data() {
                    Ok(data) => self.left = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers.map_data(Piece::from)))),
                },
            }
        }
        let piece = self.left.split_to(HTTP2_PIECE.min(self.left.len()));
        self.finished.in_flight.gives();
        self.count(piece.len());
        Poll::Ready(Some(Ok(Frame::data(piece.into()))))
    }

    /// The next piece over HTTP/1.
    fn poll_large(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece>, BodyError>>> {
        if let (Some(files), Body::Cached(body)) = (&self.files, &mut self.body)
            && let Some(taken) = body.take_in_file(file_stream::MOST)
        {
            return Poll::Ready(Some(match taken {
                Ok(part) => {
                    let len = part.len();
                    let piece = files.piece(part);
                    self.count(len);
                    Ok(Frame::data(piece))
                }
                Err(e) => Err(e.into()),
            }));
        }
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => self.count(frame.data_ref().map_or(0, Bytes::len)),
            Poll::Ready(None) => self.finished.whole = true,
            Poll::Ready(Some(Err(_))) | Poll::Pending => {}
        }
        polled.map(|frame| frame.map(|frame| Ok(frame?.map_data(Piece::from))))
    }

    fn count(&mut self, bytes: usize) {
        let finished = &mut self.finished;
        finished.bytes = finished.bytes.saturating_add(bytes as u64);
        // A server may not ask again after the last piece.
        finished.whole = self.left.is_empty() && self.body.is_end_stream();
    }
}

impl<F: Fetch> hyper::body::Body for CountedBody<F> {
    type Data = Piece;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece>, BodyError>>> {
        let this = self.get_mut();
        let polled = match this.files {
            Some(_) => this.poll_large(cx),
            None => this.poll_small(cx),
        };
        if let Poll::Ready(Some(Err(e))) = &polled {
            this.finished.fault = Some(Fault::of(&**e));
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty() && self.body.is_end_stream()
    }

    /// Servers ask for it before the first piece.
    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_broke_off_was_not_stored() {
        let cut = Fault::of(&std::io::Error::other("cut"));
        for (status, expected) in [
            (
                "brisk; fwd=uri-miss; stored; ttl=60",
                "brisk; fwd=uri-miss; ttl=60; detail=cut-short",
            ),
            ("", "detail=cut-short"),
        ] {
            assert_eq!(cut.corrected(status), expected);
        }
    }

    #[test]
    fn the_nearest_cache_says_what_came_of_a_request() {
        for (lines, expected) in [
            (&[][..], Outcome::Miss),
            (&["brisk; hit; ttl=3"], Outcome::Hit),
            (&["brisk; hit; ttl=-3"], Outcome::Stale),
            (
                &["far; hit, brisk; fwd=uri-miss; fwd-status=200; stored"],
                Outcome::Miss,
            ),
            (
                &[
                    "far; hit; detail=\"a, b\"",
                    "brisk; fwd=stale; fwd-status=304",
                ],
                Outcome::Revalidated,
            ),
            (
                &["brisk; fwd=stale; fwd-status=500; detail=stale-if-error"],
                Outcome::Stale,
            ),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(CACHE_STATUS, HeaderValue::from_static(line));
            }
            assert_eq!(outcome(&headers), expected, "{lines:?}");
        }
        assert_eq!(last_member("a; b=\"c, \\\", d\""), "a; b=\"c, \\\", d\"");
    }
}
