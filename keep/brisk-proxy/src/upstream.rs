//! Requests to upstreams: pooled connections, TLS, and waiting that has an end.

use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use brisk_http::Credentials;
use bytes::Bytes;
use http::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, SET_COOKIE, TRANSFER_ENCODING,
};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, Version,
};
use http_body_util::LengthLimitError;
use hyper::body::{Body as _, Incoming};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connect, HttpConnector, capture_connection};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tower_service::Service;
use url::Url;

use crate::access_log;
use crate::body::{Body, BodyError, LateBody, empty};
use crate::connector::Connector;
use crate::far_connector::FarConnector;
use crate::file_hosts::Named;
use crate::lasting::{self, Lasting};
use crate::metrics::Metrics;
use crate::oci::{self, Ping, Pull};
use crate::patient_body::PatientBody;
use crate::stated::{Stated, WrongDigest};
use crate::upstream_credential::UpstreamCredential;
use crate::upstream_error::UpstreamError;

/// How often a request is redirected.
pub const MOST_REDIRECTS: usize = 5;

/// How long an upstream may take.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Until a connection stands, TLS included.
    pub connect: Duration,
    /// From a request to the head of its answer, and between two pieces of its body.
    pub answer: Duration,
}

/// A request with a body may take this many times as long: the body has to go first.
const UPLOAD_FACTOR: u32 = 30;

/// Sends requests to upstreams.
#[derive(Clone)]
pub struct Upstream(Arc<Parts>);

/// Each request of a client makes a copy of the service, and most ask no upstream.
struct Parts {
    client: Client<HttpsConnector<Connector>, Body>,
    /// For hosts that pages name. It has connections of its own.
    far: Client<HttpsConnector<FarConnector>, Body>,
    patience: Patience,
    metrics: Arc<Metrics>,
}

impl Upstream {
    /// With the certificates of the system, or those that `SSL_CERT_FILE` and `SSL_CERT_DIR` name.
    pub fn new(patience: Patience, metrics: Arc<Metrics>) -> anyhow::Result<Self> {
        let tls = rustls::ClientConfig::builder_with_provider(Arc::new(
            rustls::crypto::ring::default_provider(),
        ))
        .with_safe_default_protocol_versions()
        .context("cannot set TLS up")?
        .with_root_certificates(roots());
        let tls = tls.with_no_client_auth();
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(patience.connect));
        let connector = Connector::new(connector);
        Ok(Self(Arc::new(Parts {
            client: client(tls.clone(), connector.clone()),
            far: client(tls, FarConnector::new(connector)),
            patience,
            metrics,
        })))
    }
}

fn client<C>(tls: rustls::ClientConfig, connector: C) -> Client<HttpsConnector<C>, Body>
where
    HttpsConnector<C>: Connect + Clone,
{
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_http1()
        .enable_http2()
        .wrap_connector(connector);
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        .pool_idle_timeout(Duration::from_secs(60))
        .pool_max_idle_per_host(32)
        .build(connector)
}

/// The certificates that are trusted. Without any, each https upstream fails with a message of its own.
fn roots() -> rustls::RootCertStore {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        brisk_terminal::messages::warn(
            "no trusted certificates were found, so no https upstream can be asked; install ca-certificates, or set \
             SSL_CERT_FILE",
        );
    }
    roots
}

impl<B> Service<Request<B>> for Upstream
where
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BodyError>,
{
    type Response = Response<Body>;
    type Error = UpstreamError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, UpstreamError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), UpstreamError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let parts = Arc::clone(&self.0);
        Box::pin(async move {
            let mut request = request.map(Body::new);
            let url = shown_url(request.uri());
            let is_lasting = request.extensions().get::<Lasting>().is_some();
            let stated = request.extensions().get::<Stated>().cloned();
            let pull = request.extensions().get::<Pull>().cloned();
            let is_ping = request.extensions().get::<Ping>().is_some();
            let is_named = request.extensions().get::<Named>().is_some();
            let is_authorized = request.headers().contains_key(AUTHORIZATION);
            if let Some(pull) = &pull {
                pull.add_credentials(request.headers_mut());
            }
            if let Some(credential) = request.extensions().get::<UpstreamCredential>().cloned() {
                credential.add(request.headers_mut());
            }
            let is_head = *request.method() == Method::HEAD;
            let (host, mut response) = match &pull {
                None => parts.send(request, is_named).await?,
                Some(pull) => parts.pull(request, pull).await?,
            };
            let is_checked = is_whole_file(&response) && !is_head;
            let may_last = has_an_end(&response) && (is_checked || stated.is_none());
            let mut lasts = false;
            match response.status() {
                StatusCode::OK if is_lasting && may_last => {
                    lasts = lasting::mark(response.headers_mut(), lasting::LIFETIME, is_authorized);
                }
                // It would become one of the file that lasts.
                StatusCode::NOT_MODIFIED if is_lasting => {
                    response.headers_mut().remove(SET_COOKIE);
                }
                _ => {}
            }
            let status = response.status();
            if is_ping {
                oci::mark_ping(response.headers_mut(), status);
            }
            if pull.is_some() {
                oci::mark(response.headers_mut(), status, stated.is_some(), lasts);
            }
            let Parts {
                patience, metrics, ..
            } = &*parts;
            let (metrics, of_digests) = (Arc::clone(metrics), Arc::clone(metrics));
            let patience = patience.answer;
            let late = move || {
                let seconds = patience.as_secs();
                format!("{host} sent nothing more for {seconds} seconds").into()
            };
            let come = move |bytes| metrics.upstream_bytes(bytes);
            let (stated, is_of_registry) = (stated.filter(|_| is_checked), pull.is_some());
            Ok(response.map(|body| {
                let body = PatientBody::new(body, patience, come, late);
                match stated {
                    Some(stated) => Body::new(stated.check(body, move |wrong| {
                        of_digests.found_wrong_digest();
                        warn_of(&url, wrong, is_of_registry);
                    })),
                    None => Body::new(body),
                }
            }))
        })
    }
}

impl Parts {
    /// Sends a request to one host, and returns which one. `is_named` says that only a page or a redirect names it.
    async fn send(
        &self,
        mut request: Request<Body>,
        is_named: bool,
    ) -> Result<(String, Response<Incoming>), UpstreamError> {
        let host = authority(request.uri());
        let connection = capture_connection(&mut request);
        let limit = match request.body().is_end_stream() {
            true => self.patience.answer,
            false => self.patience.answer.saturating_mul(UPLOAD_FACTOR),
        };
        let begun = Instant::now();
        let answering = match is_named {
            true => self.far.request(request),
            false => self.client.request(request),
        };
        let answered = match tokio::time::timeout(limit, answering).await {
            Ok(Ok(response)) => match fault(&response) {
                None => Ok(response),
                Some(fault) => {
                    // Nobody knows where the next answer begins.
                    if let Some(connection) = &*connection.connection_metadata() {
                        connection.poison();
                    }
                    Err(UpstreamError {
                        status: StatusCode::BAD_GATEWAY,
                        reason: format!("{host} {fault}"),
                        is_too_long: false,
                    })
                }
            },
            Ok(Err(e)) => Err(explain(&host, &e)),
            Err(_) => Err(UpstreamError {
                status: StatusCode::GATEWAY_TIMEOUT,
                reason: format!(
                    "{host} has not answered within {} seconds; --upstream-timeout lets it take longer",
                    limit.as_secs()
                ),
                is_too_long: false,
            }),
        };
        let status = answered.as_ref().map(Response::status).ok();
        self.metrics
            .upstream_answered(&host, begun.elapsed(), status);
        Ok((host, answered?))
    }

    /// Asks a registry for a manifest or a blob, and follows its redirects. The cache sees one answer: what registries
    /// redirect to is signed anew each time, so the cache would not find it again.
    async fn pull(
        &self,
        request: Request<Body>,
        pull: &Pull,
    ) -> Result<(String, Response<Incoming>), UpstreamError> {
        let (method, mut headers) = (request.method().clone(), request.headers().clone());
        let registry = Url::parse(&request.uri().to_string());
        let is_by_digest = request.extensions().get::<Stated>().is_some();
        let (mut host, mut response) = self.send(request, false).await?;
        let Ok(registry) = registry else {
            return Ok((host, response));
        };
        let mut here = registry.clone();
        let mut hops = 0;
        while let Some((target, is_known)) = pull.target(&registry, &here, &response) {
            if hops == MOST_REDIRECTS {
                return Err(UpstreamError {
                    status: StatusCode::BAD_GATEWAY,
                    reason: format!("the registry redirects more than {MOST_REDIRECTS} times"),
                    is_too_long: false,
                });
            }
            hops += 1;
            let Ok(uri) = Uri::try_from(target.as_str()) else {
                break;
            };
            if target.origin() != here.origin() {
                forget_credentials(&mut headers);
            }
            let mut next = Request::new(empty());
            *next.method_mut() = method.clone();
            *next.uri_mut() = uri;
            *next.headers_mut() = headers.clone();
            let said = response.headers().clone();
            (host, response) = self.send(next, !is_known).await?;
            oci::keep_what_the_registry_said(&said, response.headers_mut());
            here = target;
        }
        if here != registry && !is_by_digest {
            let status = response.status();
            oci::forget_lifetime(response.headers_mut(), status);
        }
        if let Some(visit) = &pull.visit
            && pull.is_shown_by(&response)
        {
            visit.passed().await;
        }
        Ok((host, response))
    }
}

/// Tells the operator of a file with another digest than is stated, by an index or by its name in a registry.
fn warn_of(url: &str, WrongDigest { stated, found }: &WrongDigest, is_of_registry: bool) {
    let advice = match is_of_registry {
        true => "ask the operator of the registry",
        false => {
            "if the index has changed, ask for its page with Cache-Control: no-cache; otherwise do not use the file, and tell the \
             operator of the index"
        }
    };
    brisk_terminal::messages::warn(&format!(
        "{url} has the digest {found}, but {stated} is stated for it, so no client gets it and it is not kept; {advice}"
    ));
}

/// Whether a body has all bytes of a file, as they are.
fn is_whole_file<B>(response: &Response<B>) -> bool {
    let coding = response.headers().get(CONTENT_ENCODING);
    response.status() == StatusCode::OK && coding.is_none_or(|coding| coding == "identity")
}

/// Why nobody can tell for sure what an answer over HTTP/1 is, or where it ends. The server of another proxy may read it
/// otherwise (RFC 9112, section 6.3), and hyper mends it.
fn fault<B>(response: &Response<B>) -> Option<&'static str> {
    let headers = response.headers();
    let all = |name| headers.get_all(name).iter().map(HeaderValue::as_bytes);
    let (mut codings, mut lengths) = (all(TRANSFER_ENCODING), all(CONTENT_LENGTH));
    match (codings.next(), lengths.next()) {
        _ if response.status().is_informational() => {
            Some("changed to another protocol, and nobody had asked for that")
        }
        (Some(_), Some(_)) => Some("sent Content-Length and Transfer-Encoding together"),
        (Some(coding), None)
            if codings.next().is_some() || !coding.eq_ignore_ascii_case(b"chunked") =>
        {
            Some("sent a Transfer-Encoding that is not chunked alone")
        }
        (None, Some(length))
            if lengths.next().is_some() || !length.iter().all(u8::is_ascii_digit) =>
        {
            Some("sent more than one Content-Length")
        }
        _ => None,
    }
}

/// Whether a body that is cut short is known to be: its length or its end is sent. Otherwise the end of the connection is
/// its end, whatever the reason (RFC 9112, section 6.3).
fn has_an_end<B>(response: &Response<B>) -> bool {
    let headers = response.headers();
    response.version() >= Version::HTTP_2
        || headers.contains_key(CONTENT_LENGTH)
        || headers.contains_key(TRANSFER_ENCODING)
}

/// A URL without credentials: neither a user's name nor values of its query.
fn shown_url(url: &Uri) -> String {
    let scheme = url.scheme_str().unwrap_or_default();
    let authority = url.authority().map_or("", |authority| authority.as_str());
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}{}", access_log::shown(url))
}

/// The host of a URL, and its port if it has one.
fn authority(url: &Uri) -> String {
    // A URL of a map has no user name.
    let authority = url.authority();
    authority.map_or_else(String::new, |authority| authority.as_str().to_owned())
}

/// Says what went wrong, down to its first cause.
fn explain(host: &str, error: &hyper_util::client::legacy::Error) -> UpstreamError {
    let mut causes = Vec::new();
    let mut next = error.source();
    let (mut tls, mut is_too_long, mut is_late) = (false, false, false);
    while let Some(cause) = next {
        tls |= is_of_tls(cause);
        is_too_long |= cause.is::<LengthLimitError>();
        is_late |= cause.is::<LateBody>();
        let text = cause.to_string();
        if causes.last() != Some(&text) {
            causes.push(text);
        }
        next = cause.source();
    }
    let cause = causes.pop().unwrap_or_else(|| error.to_string());
    let reason = match (tls, error.is_connect()) {
        (true, _) => format!(
            "the TLS connection to {host} failed: {cause}; if its certificate is right, add its authority to the trusted \
             ones, for example by SSL_CERT_FILE"
        ),
        (false, true) => format!("cannot connect to {host}: {cause}"),
        (false, false) => format!("{host} gave no answer: {cause}"),
    };
    let (status, reason) = match is_late {
        true => (StatusCode::REQUEST_TIMEOUT, cause),
        false => (StatusCode::BAD_GATEWAY, reason),
    };
    UpstreamError {
        status,
        reason,
        is_too_long,
    }
}

/// Whether an error is one of TLS. An I/O error hides what it wraps, and may wrap another one.
fn is_of_tls(error: &(dyn Error + 'static)) -> bool {
    if error.is::<rustls::Error>() {
        return true;
    }
    let wrapped = error
        .downcast_ref::<std::io::Error>()
        .and_then(std::io::Error::get_ref);
    wrapped.is_some_and(|wrapped| is_of_tls(wrapped))
}

/// Removes what may be for another origin than the one that is asked now.
pub fn forget_credentials(headers: &mut HeaderMap) {
    let names: Vec<HeaderName> = headers
        .keys()
        .filter(|name| Credentials::Unknown.has(name))
        .cloned()
        .collect();
    for name in names {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_credentials() {
        for (url, shown) in [
            ("https://a.example/x%20y", "https://a.example/x%20y"),
            (
                "http://ann:hush@a.example:81/x?token=hush&hush",
                "http://a.example:81/x?token=*&*",
            ),
        ] {
            assert_eq!(shown_url(&url.parse().unwrap()), shown);
        }
    }
}
