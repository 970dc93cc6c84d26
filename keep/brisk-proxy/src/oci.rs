//! Registries of OCI images: what their paths name, and what the upstream must know of a request beside what the cache knows.
//!
//! This follows the distribution specification of OCI, version 1.1.

use std::sync::Arc;

use brisk_http::Credentials;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, EXPIRES, LOCATION, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use url::Url;

use crate::file_hosts::is_reachable;
use crate::grants::Visit;
use crate::lasting;
use crate::problem::Problem;
use crate::stated::Stated;

/// The types of manifests that clients of today ask for, in the order in which they are asked for here.
const MANIFESTS: [&str; 4] = [
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.oci.image.index.v1+json",
];

/// What a registry says of itself.
pub const API_VERSION: HeaderName = HeaderName::from_static("docker-distribution-api-version");

/// The digest of what it sends.
const CONTENT_DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");

/// What a registry says of an answer, and a host that it redirects to does not.
const OF_THE_REGISTRY: [HeaderName; 2] = [CONTENT_DIGEST, API_VERSION];

/// The lifetime of what is asked for each time, and stands in while the registry fails.
const AT_ONCE: HeaderValue = HeaderValue::from_static("max-age=0");

/// A manifest or a blob, as a path names it.
#[derive(Debug, Clone)]
pub struct Item<'p> {
    /// The path of the repository behind the prefix of the map.
    pub repository: &'p str,
    /// Whether it is a blob.
    pub is_blob: bool,
    /// The tag or digest that names it.
    pub name: &'p str,
    /// The digest, if it is one that can be computed.
    pub digest: Option<Stated>,
}

impl<'p> Item<'p> {
    /// What stands behind the prefix of a map. None for everything else of a registry.
    pub fn of_path(rest: &'p str) -> Option<Self> {
        let (path, name) = rest.rsplit_once('/')?;
        let (repository, is_blob) = match path.strip_suffix("/blobs") {
            Some(repository) => (repository, true),
            None => (path.strip_suffix("/manifests")?, false),
        };
        (!name.is_empty()).then(|| Self {
            repository,
            is_blob,
            name,
            digest: Stated::of_oci(name),
        })
    }

    /// Whether the name is a tag, or a digest that can be computed. Nobody can check what has another digest, and what is
    /// neither may hide the name of another repository: `x%2fmanifests%2f1`.
    pub fn is_known(&self) -> bool {
        let of_tag = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        self.digest.is_some() || !self.is_blob && self.name.bytes().all(of_tag)
    }
}

/// Asks for a manifest or a blob as it is, and for each manifest in one way, so that clients of all kinds share an answer.
pub fn ask_plainly(headers: &mut HeaderMap, item: &Item<'_>) {
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let accepts = |kind: &str| {
        let lines = headers.get_all(ACCEPT).iter();
        let mut accepted = lines
            .filter_map(|line| line.to_str().ok())
            .flat_map(|line| line.split(','))
            .filter_map(|accepted| accepted.split(';').next());
        accepted.any(|accepted| accepted.trim().eq_ignore_ascii_case(kind))
    };
    if !item.is_blob
        && MANIFESTS.iter().all(|kind| accepts(kind))
        && let Ok(all) = HeaderValue::try_from(format!("{}, */*", MANIFESTS.join(", ")))
    {
        headers.insert(ACCEPT, all);
    }
}

/// The query without the name that containerd gives a registry: that one is for its mirrors.
pub fn without_namespace(query: &str) -> Option<String> {
    let is_kept = |part: &&str| *part != "ns" && !part.starts_with("ns=");
    let kept: Vec<&str> = query.split('&').filter(is_kept).collect();
    (!kept.is_empty()).then(|| kept.join("&"))
}

/// Takes the credentials out of a request.
pub fn take_credentials(headers: &mut HeaderMap) -> HeaderMap {
    let mut taken = HeaderMap::new();
    for (name, value) in headers.iter() {
        if Credentials::Unknown.has(name) {
            taken.append(name, value.clone());
        }
    }
    for name in taken.keys() {
        headers.remove(name);
    }
    taken
}

/// Whether the credentials of a request are a token, which lives for minutes.
pub fn has_token(headers: &HeaderMap) -> bool {
    let given = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
    let scheme = given.and_then(|given| given.split(|byte| *byte == b' ').next());
    scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"bearer"))
}

/// That nothing is pushed through this map.
pub fn no_pushes() -> Problem {
    Problem::of_registry(
        StatusCode::METHOD_NOT_ALLOWED,
        "UNSUPPORTED",
        "this proxy only pulls from the registry: push to the registry itself, or give the map the kind oci-push",
    )
}

/// Marks a request for a manifest or a blob.
#[derive(Clone)]
pub struct Pull {
    /// What the client has sent, and the cache does not see. It goes to the registry alone.
    pub credentials: HeaderMap,
    /// Notes that the registry lets the client pull.
    pub visit: Option<Visit>,
    /// The digest of the blob that is asked for. None for a manifest.
    pub blob: Option<String>,
    /// The hosts of `--follow`.
    pub follow: Arc<[String]>,
}

impl Pull {
    /// Puts the client's credentials in place of what the cache has seen.
    pub fn add_credentials(&self, headers: &mut HeaderMap) {
        if self.credentials.is_empty() {
            return;
        }
        headers.remove(AUTHORIZATION);
        headers.extend(self.credentials.clone());
    }

    /// Whether an answer shows that the registry lets the client pull. A page to log in, which some give to everybody, does
    /// not.
    pub fn is_shown_by<B>(&self, response: &Response<B>) -> bool {
        let has = |name: HeaderName, fits: &dyn Fn(&str) -> bool| {
            let value = response.headers().get(name);
            value
                .and_then(|value| value.to_str().ok())
                .is_some_and(fits)
        };
        let shows = match &self.blob {
            Some(digest) => has(CONTENT_DIGEST, &|found| found == digest),
            None => has(CONTENT_TYPE, &|found| found.starts_with("application/vnd.")),
        };
        response.status().is_success() && shows
    }

    /// Where a redirect leads, and whether the operator has named that host. None: it is not followed.
    pub fn target<B>(
        &self,
        registry: &Url,
        here: &Url,
        response: &Response<B>,
    ) -> Option<(Url, bool)> {
        if !response.status().is_redirection() {
            return None;
        }
        let location = response.headers().get(LOCATION)?.to_str().ok()?;
        let target = here.join(location).ok()?;
        let is_followed = is_one_of(&self.follow, &target);
        let downgrades = here.scheme() == "https" && target.scheme() != "https";
        let has_user = !target.username().is_empty() || target.password().is_some();
        let leads = is_followed || is_reachable(registry, &target);
        (leads && !downgrades && !has_user).then(|| {
            (
                target.clone(),
                is_followed || target.host() == registry.host(),
            )
        })
    }
}

/// Marks the question whether a registry is there, and how to log in.
#[derive(Debug, Clone, Copy)]
pub struct Ping;

/// Says in the answer to a [`Ping`] that it may stand in for a registry that fails: it has no secrets.
pub fn mark_ping(headers: &mut HeaderMap, status: StatusCode) {
    if status == StatusCode::UNAUTHORIZED && !headers.contains_key(CACHE_CONTROL) {
        headers.insert(CACHE_CONTROL, AT_ONCE);
    }
}

/// Whether the host of a URL, with its port if it has one, is in a list.
pub fn is_one_of(hosts: &[String], url: &Url) -> bool {
    let Some(host) = url.host_str() else {
        return false;
    };
    let with_port = url.port().map(|port| format!("{host}:{port}"));
    let authority = with_port.as_deref().unwrap_or(host);
    hosts
        .iter()
        .any(|known| known.eq_ignore_ascii_case(authority))
}

/// Copies what the registry has said to the answer of the host that it redirects to.
pub fn keep_what_the_registry_said(from: &HeaderMap, to: &mut HeaderMap) {
    for name in OF_THE_REGISTRY {
        if let Some(value) = from.get(&name)
            && !to.contains_key(&name)
        {
            to.insert(name, value.clone());
        }
    }
}

/// Says in an answer what the cache may do with it. `is_checked` says whether the answer lasts and its digest is compared.
pub fn mark(headers: &mut HeaderMap, status: StatusCode, by_digest: bool, is_checked: bool) {
    match (by_digest, is_checked) {
        // Bytes of one digest depend on nothing.
        (true, true) => {
            headers.remove(VARY);
        }
        // Nobody has checked it. Parts never come to the cache.
        (true, false)
            if ![StatusCode::NOT_MODIFIED, StatusCode::PARTIAL_CONTENT].contains(&status) =>
        {
            forbid(headers);
        }
        (true, false) => {}
        (false, _) => {
            // Registries give another manifest to clients that know fewer types, and do not say so.
            headers.append(VARY, HeaderValue::from_name(ACCEPT));
            // When a tag last moved says nothing of when it will. Of two lifetimes, the first one counts.
            let says = headers.contains_key(CACHE_CONTROL) && status == StatusCode::NOT_MODIFIED;
            if (says || status == StatusCode::OK) && !headers.contains_key(EXPIRES) {
                headers.append(CACHE_CONTROL, AT_ONCE);
            }
        }
    }
}

/// Says that the registry gives no lifetime to what came for a tag from where it redirects to. What that host says is about its
/// own URL, which only those know whom the registry lets pull.
pub fn forget_lifetime(headers: &mut HeaderMap, status: StatusCode) {
    let may_be_kept = [StatusCode::OK, StatusCode::NOT_MODIFIED].contains(&status);
    if !may_be_kept || !lasting::mark(headers, "max-age=0", true) {
        forbid(headers);
    }
}

fn forbid(headers: &mut HeaderMap) {
    headers.remove(lasting::TO_SERVERS);
    headers.append(CACHE_CONTROL, HeaderValue::from_static("no-store"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_manifests_and_blobs() {
        let hex = "a".repeat(64);
        let of = |rest: &str| {
            let item = Item::of_path(rest)?;
            Some((
                item.repository.to_owned(),
                item.is_blob,
                item.digest.is_some(),
            ))
        };
        for (rest, expected) in [
            ("/x/manifests/latest".to_owned(), Some(("/x", false, false))),
            (
                format!("/a/b/manifests/sha256:{hex}"),
                Some(("/a/b", false, true)),
            ),
            (
                format!("/a/b/blobs/sha256:{hex}"),
                Some(("/a/b", true, true)),
            ),
            (
                format!("/blobs/manifests/blobs/sha256:{hex}"),
                Some(("/blobs/manifests", true, true)),
            ),
            (format!("/x/blobs/sha256:{hex}a"), Some(("/x", true, false))),
            (
                format!("/x/blobs/sha256:{}", hex.to_uppercase()),
                Some(("/x", true, false)),
            ),
            (format!("/x/blobs/md5:{hex}"), Some(("/x", true, false))),
            ("/x/blobs/uploads/".to_owned(), None),
            ("/x/tags/list".to_owned(), None),
            ("/blobs/x".to_owned(), Some(("", true, false))),
            ("/x/blobs/".to_owned(), None),
            ("/".to_owned(), None),
            (String::new(), None),
        ] {
            let expected = expected.map(|(path, blob, digest)| (path.to_owned(), blob, digest));
            assert_eq!(of(&rest), expected, "{rest}");
        }
    }

    #[test]
    fn manifests_are_asked_for_in_one_way() {
        let asked = |accept: &[&str]| {
            let mut headers = HeaderMap::new();
            for line in accept {
                headers.append(ACCEPT, HeaderValue::try_from(*line).unwrap());
            }
            ask_plainly(&mut headers, &Item::of_path("/x/manifests/a").unwrap());
            let lines = headers.get_all(ACCEPT).iter();
            let lines: Vec<&str> = lines.map(|line| line.to_str().unwrap()).collect();
            lines.join("|")
        };
        let [a, b, c, d] = MANIFESTS;
        let plain = asked(&[&format!("{a}, {b}, {c}, {d}, */*")]);
        assert_eq!(plain, format!("{a}, {b}, {c}, {d}, */*"));
        // As skopeo and docker ask.
        assert_eq!(asked(&[c, a, "application/json", b, d]), plain);
        assert_eq!(asked(&[&format!("{d};q=0.5,{c},{b},{a}")]), plain);
        assert_eq!(asked(&[a]), a);
        assert_eq!(asked(&[]), "");
    }

    #[test]
    fn the_namespace_of_containerd_goes() {
        for (query, expected) in [
            ("ns=docker.io", None),
            ("ns=docker.io&n=5", Some("n=5")),
            ("nsx=1&last=a", Some("nsx=1&last=a")),
        ] {
            assert_eq!(without_namespace(query).as_deref(), expected, "{query}");
        }
    }
}
