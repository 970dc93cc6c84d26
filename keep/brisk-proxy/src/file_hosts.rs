//! Files that an index keeps on other hosts.
//!
//! An index page names hosts that no map has. A link to such a host becomes `/PREFIX/~files/SIGNATURE/SCHEME/HOST/PATH`.
//! The host may have `~PORT` behind it. Clients escape many characters of paths, but never a tilde.
//! Only this cache's secret makes the signature, and only for hosts that a page of this map named: so a client cannot make
//! the proxy ask any other host. All processes of a cache, now and later, accept it, and nothing needs to be remembered.

use std::net::IpAddr;

use http::StatusCode;
use url::{Host, Url};

use crate::map::{Map, SEGMENT};
use crate::problem::Problem;
use crate::secret::Secret;
use brisk_http::is_near_address;

/// Marks a request to a host that the operator has not named, but a page. It must not lead to this machine or its link.
#[derive(Debug, Clone, Copy)]
pub struct Named;

/// Signs links to hosts, and checks such links.
#[derive(Clone)]
pub struct FileHosts {
    secret: Secret,
}

impl FileHosts {
    /// With this secret.
    pub fn new(secret: Secret) -> Self {
        Self { secret }
    }

    /// The path at which a file on another host is found. None if the proxy does not ask that host: then the client does.
    pub fn path_of(&self, map: &Map, url: &Url) -> Option<String> {
        if !is_reachable(map.upstream(), url) || !map.kind().has_file(url.path()) {
            return None;
        }
        let authority = authority(url)?;
        let scheme = url.scheme();
        let signature = self.sign(map, scheme, &authority);
        let mut path = format!(
            "{}{SEGMENT}{signature}/{scheme}/{}{}",
            map.prefix(),
            authority.replace(':', "~"),
            url.path()
        );
        for (mark, part) in [('?', url.query()), ('#', url.fragment())] {
            if let Some(part) = part {
                path.push(mark);
                path.push_str(part);
            }
        }
        Some(path)
    }

    /// The URL behind a path. `rest` stands behind the prefix of the map. None: the path leads to no other host.
    pub fn url_of(
        &self,
        map: &Map,
        rest: &str,
        query: Option<&str>,
    ) -> Option<Result<String, Problem>> {
        let signed = rest.strip_prefix(SEGMENT)?;
        let url = (|| {
            let (signature, rest) = signed.split_once('/')?;
            let (scheme, rest) = rest.split_once('/')?;
            let (authority, path) = rest.split_at(rest.find('/')?);
            let authority = authority.replace('~', ":");
            // Who guesses signatures learns nothing from how long a comparison takes: it would have to guess 128 bits
            // over a network, and both sides are digests.
            if self.sign(map, scheme, &authority) != signature || !map.kind().has_file(path) {
                return None;
            }
            let mut url = format!("{scheme}://{authority}{path}");
            if let Some(query) = query {
                url.push('?');
                url.push_str(query);
            }
            Some(url)
        })();
        Some(url.ok_or_else(|| {
            Problem::new(
                StatusCode::NOT_FOUND,
                "this link to a file was not made by this cache, or for another map; ask for the index page again, which \
                 has the links that are right",
            )
        }))
    }

    /// Changes when the signatures of all links do.
    pub fn fingerprint(&self) -> String {
        self.secret.sign("all file hosts", "")
    }

    fn sign(&self, map: &Map, scheme: &str, authority: &str) -> String {
        let text = format!(
            "{}\n{}\n{scheme}://{authority}",
            map.prefix(),
            map.upstream()
        );
        self.secret.sign("file host", &text)
    }
}

fn authority(url: &Url) -> Option<String> {
    let host = url.host_str()?;
    if !url.username().is_empty() || url.password().is_some() {
        return None;
    }
    Some(match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    })
}

/// Whether a page of `index` may send the proxy to `url`. A page of the internet must not name what only this machine or
/// its link can reach, nor leave TLS. Where a name leads is judged when the proxy connects: see [`Named`].
pub fn is_reachable(index: &Url, url: &Url) -> bool {
    let is_http = matches!(url.scheme(), "http" | "https");
    if !is_http || index.scheme() == "https" && url.scheme() != "https" {
        return false;
    }
    if url.host() == index.host() {
        return true;
    }
    match url.host() {
        Some(Host::Domain(name)) => {
            let name = name.trim_end_matches('.');
            name != "localhost" && !name.ends_with(".localhost")
        }
        Some(Host::Ipv4(address)) => !is_near_address(IpAddr::V4(address)),
        Some(Host::Ipv6(address)) => !is_near_address(IpAddr::V6(address)),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_signed_is_reached() {
        let directory = tempfile::tempdir().unwrap();
        let hosts = FileHosts::new(Secret::of_directory(directory.path()).unwrap());
        let map = Map::parse("/simple=python:https://index.example/simple").unwrap();
        let file = Url::parse("https://files.example:8443/a/b.whl?x#sha256=1").unwrap();
        let path = hosts.path_of(&map, &file).unwrap();
        let rest = path.strip_prefix("/simple").unwrap();
        assert!(
            rest.ends_with("/https/files.example~8443/a/b.whl?x#sha256=1"),
            "{path}"
        );
        let rest = rest.split('?').next().unwrap();
        let url = |map: &Map, rest: &str| hosts.url_of(map, rest, Some("x"));
        let whole = "https://files.example:8443/a/b.whl?x".to_owned();
        assert_eq!(url(&map, rest), Some(Ok(whole)));
        // What clients derive from it.
        assert!(url(&map, &format!("{rest}.metadata")).unwrap().is_ok());
        assert_eq!(url(&map, "/six/"), None);
        let other = Map::parse("/simple=python:https://other.example/simple").unwrap();
        assert!(url(&other, rest).unwrap().is_err());
        for forged in [
            rest.replace("files.example", "evil.example"),
            rest.replace("~8443", ""),
            rest.replace("/https/", "/http/"),
            rest.replace("b.whl", "b.html"),
            "/~files/".to_owned(),
            "/~files/x/https/files.example/b.whl".to_owned(),
        ] {
            assert!(url(&map, &forged).unwrap().is_err(), "{forged}");
        }
    }

    #[test]
    fn a_page_names_no_host_that_is_near() {
        let directory = tempfile::tempdir().unwrap();
        let hosts = FileHosts::new(Secret::of_directory(directory.path()).unwrap());
        let far = Map::parse("/s=python:https://index.example/simple").unwrap();
        let near = Map::parse("/s=python:http://127.0.0.1:1/simple").unwrap();
        for (map, url, expected) in [
            (&far, "https://files.example/a.whl", true),
            (&far, "http://files.example/a.whl", false),
            (&far, "https://files.example/about", false),
            (&far, "https://127.0.0.1/a.whl", false),
            (&far, "https://localhost/a.whl", false),
            (&far, "https://169.254.169.254/a.whl", false),
            (&far, "https://[::1]/a.whl", false),
            (&far, "https://[::ffff:127.0.0.1]/a.whl", false),
            (&far, "https://[fe80::1]/a.whl", false),
            (&far, "https://0.1.2.3/a.whl", false),
            (&far, "https://10.0.0.1/a.whl", true),
            (&far, "https://u:p@files.example/a.whl", false),
            (&far, "ftp://files.example/a.whl", false),
            (&near, "http://127.0.0.1:2/a.whl", true),
            (&near, "http://127.0.0.2:2/a.whl", false),
            (&near, "https://files.example/a.whl", true),
        ] {
            let found = hosts.path_of(map, &Url::parse(url).unwrap());
            assert_eq!(found.is_some(), expected, "{url}");
        }
    }
}
