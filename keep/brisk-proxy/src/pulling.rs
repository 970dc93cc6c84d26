//! Requests for manifests and blobs of a registry.

use http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, RANGE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Body as _;

use crate::body::{Body, empty, full};
use crate::grants::{Visit, Worth};
use crate::kind::Kind;
use crate::map::Map;
use crate::oci::{self, Item, Pull};
use crate::page::CONDITIONS;
use crate::problem::Problem;
use crate::proxy::{CACHE_STATUS, Fetch, Proxy, is_of_cache_alone, is_read, last_status};

/// The longest manifest. Registries take none that is longer.
const MOST_MANIFEST_BYTES: usize = 4 << 20;

impl<F: Fetch> Proxy<F> {
    /// The answer of the cache or the registry to a request for a manifest or a blob.
    pub async fn pull(
        &self,
        map: &Map,
        item: &Item<'_>,
        request: Request<Body>,
    ) -> Result<Response<Body>, Problem> {
        // What a body means in a GET, only the registry knows.
        if !request.body().is_end_stream() {
            return self.fetch.fetch(request).await;
        }
        let (mut head, _) = request.into_parts();
        oci::ask_plainly(&mut head.headers, item);
        let repository = map.url(item.repository, None);
        let visit = self.grants.visit(&repository, &head.headers);
        // With a query, only the registry knows of what repository it is.
        let is_known = item.is_known() && head.uri.query().is_none();
        let mut pull = Pull {
            credentials: HeaderMap::new(),
            visit: visit.clone().filter(|_| is_known),
            blob: item.is_blob.then(|| item.name.to_owned()),
            follow: self.follow.clone(),
        };
        if map.kind() == Kind::OciPush && head.method == Method::HEAD && item.digest.is_some() {
            // Clients push what the registry has lost only if they hear of it.
            let no_cache = HeaderValue::from_static("no-cache");
            head.headers.append(CACHE_CONTROL, no_cache);
        }
        if item.digest.is_some() {
            pull.credentials = oci::take_credentials(&mut head.headers);
        }
        head.extensions.insert(pull);
        if !is_known {
            let looked = self.look(&head).await?;
            return self.pass_by(head, looked).await;
        }
        match (&item.digest, item.is_blob) {
            (Some(_), true) => self.by_digest(head, visit).await,
            (Some(_), false) => whole(self.by_digest(head, visit).await?).await,
            (None, _) => self.by_tag(head).await,
        }
    }

    /// A manifest that a tag names. Some clients ask for its head, and then for the digest that it has. So that they find it
    /// without the registry too, it is asked for as a whole, unless the cache has the right one. With a token, which is
    /// another one the next time, that would be of no use.
    async fn by_tag(&self, mut head: Parts) -> Result<Response<Body>, Problem> {
        if head.method != Method::HEAD {
            return whole(self.fetched(head).await?).await;
        }
        let looked = self.look(&head).await?;
        if !is_of_cache_alone(&looked) || self.asks_nobody(&head.headers) {
            return Ok(looked);
        }
        let said = |response: &Response<Body>, words: &[&str]| {
            let status = last_status(response.headers());
            words.iter().any(|word| status.contains(word))
        };
        let is_missing = said(&looked, &["fwd=uri-miss", "fwd=vary-miss", "fwd=miss"]);
        if !is_missing || oci::has_token(&head.headers) {
            let response = self.fetched(head.clone()).await?;
            let is_right = said(&response, &["stored", "hit", "detail=stale-if-error"]);
            if is_right || response.status() != StatusCode::OK || oci::has_token(&head.headers) {
                return Ok(response);
            }
        }
        head.method = Method::GET;
        for name in CONDITIONS {
            head.headers.remove(name);
        }
        let response = whole(self.fetched(head).await?).await?;
        Ok(response.map(|_| empty()))
    }

    /// What a digest names. Its request has no credentials: `visit` is of who sent them.
    ///
    /// 1. What a request without credentials has brought is for all.
    /// 2. What one with credentials has brought is kept under the stand-in, for all who may pull from the repository.
    /// 3. A part that the cache does not have comes from the registry, and is not kept: nobody can check it.
    async fn by_digest(
        &self,
        mut head: Parts,
        visit: Option<Visit>,
    ) -> Result<Response<Body>, Problem> {
        let mut looked = self.look(&head).await?;
        if !is_of_cache_alone(&looked) {
            return Ok(looked);
        }
        if let Some(visit) = visit {
            if !self.may_pull(&head, &visit).await {
                return self.pass_by(head, looked).await;
            }
            head.headers.insert(AUTHORIZATION, self.grants.stand_in());
            looked = self.look(&head).await?;
            if !is_of_cache_alone(&looked) {
                return Ok(looked);
            }
        }
        match head.headers.contains_key(RANGE) {
            true => self.pass_by(head, looked).await,
            false => self.fetched(head).await,
        }
    }

    /// Whether the registry lets them pull from the repository. It is asked again after a while. While it fails, what it said
    /// before counts, as long as stored answers do.
    async fn may_pull(&self, head: &Parts, visit: &Visit) -> bool {
        let worth = visit.worth(self.stale).await;
        if worth == Worth::Enough {
            return true;
        }
        if self.asks_nobody(&head.headers) {
            return worth.suffices(self.offline);
        }
        let mut check = Request::from_parts(head.clone(), empty());
        *check.method_mut() = Method::HEAD;
        for name in CONDITIONS {
            check.headers_mut().remove(name);
        }
        let checked = self.upstream.fetch(check).await;
        match checked.map(|response| response.status()) {
            // If the answer shows it, that has been noted.
            Ok(status) if status.is_success() => visit.worth(self.stale).await == Worth::Enough,
            Ok(status) if !status.is_server_error() && status != StatusCode::TOO_MANY_REQUESTS => {
                visit.refused().await;
                false
            }
            Ok(_) | Err(_) => worth == Worth::IfItFails,
        }
    }

    /// What the cache has, and nothing else.
    async fn look(&self, head: &Parts) -> Result<Response<Body>, Problem> {
        let mut head = head.clone();
        let alone = HeaderValue::from_static("only-if-cached");
        head.headers.append(CACHE_CONTROL, alone);
        self.fetched(head).await
    }

    async fn fetched(&self, head: Parts) -> Result<Response<Body>, Problem> {
        self.fetch.fetch(Request::from_parts(head, empty())).await
    }

    /// What the registry has, if it may be asked. The cache neither sees nor keeps it, and has only `looked`.
    async fn pass_by(
        &self,
        head: Parts,
        looked: Response<Body>,
    ) -> Result<Response<Body>, Problem> {
        if self.asks_nobody(&head.headers) {
            return Ok(looked);
        }
        let mut response = self
            .upstream
            .fetch(Request::from_parts(head, empty()))
            .await?;
        if let Some(status) = looked.headers().get_all(CACHE_STATUS).iter().next_back() {
            response.headers_mut().append(CACHE_STATUS, status.clone());
        }
        Ok(response)
    }

    fn asks_nobody(&self, headers: &HeaderMap) -> bool {
        let mut lines = headers.get_all(CACHE_CONTROL).iter();
        let alone = |line: &HeaderValue| {
            let text = String::from_utf8_lossy(line.as_bytes()).to_ascii_lowercase();
            text.contains("only-if-cached")
        };
        self.offline || lines.any(alone)
    }

    /// The answer to the question whether a registry is here, and how to log in, if no map has it: that of the only one. Of
    /// several, none speaks for the others.
    pub async fn ping(&self, head: &Parts) -> Result<Response<Body>, Problem> {
        let mut registries = self.maps.iter().filter(|map| map.kind().is_registry());
        if let (Some(only), None) = (registries.next(), registries.next()) {
            let ping = only.of_ping();
            return self.pass((&ping, "/", None), head, empty()).await;
        }
        if !is_read(&head.method) {
            return Err(oci::no_pushes());
        }
        let mut response = Response::new(full("{}"));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(oci::API_VERSION, HeaderValue::from_static("registry/2.0"));
        Ok(response)
    }
}

/// The answer with a manifest, when all of it has come. So one that breaks off is an error that a client understands.
async fn whole(response: Response<Body>) -> Result<Response<Body>, Problem> {
    let is_here = response.body().is_end_stream() || response.body().name().is_some();
    if response.status() != StatusCode::OK || is_here {
        return Ok(response);
    }
    let (head, body) = response.into_parts();
    match Limited::new(body, MOST_MANIFEST_BYTES).collect().await {
        Ok(body) => Ok(Response::from_parts(head, full(body.to_bytes()))),
        Err(e) => Err(Problem::new(
            StatusCode::BAD_GATEWAY,
            format!("the manifest cannot be read: {e}"),
        )),
    }
}
