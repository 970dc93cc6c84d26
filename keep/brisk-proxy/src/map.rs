//! What stands where: prefixes of the proxy's paths, and the URLs that they stand for.

use std::borrow::Cow;
use std::fmt;

use anyhow::{Context, bail};
use percent_encoding::percent_decode;
use url::Url;

use crate::kind::Kind;

/// The segment behind the prefix of a map for files of hosts that have no map: see [`FileHosts`](crate::file_hosts::FileHosts).
pub const SEGMENT: &str = "/~files/";

/// A prefix of the proxy's paths, and the URL that it stands for.
///
/// 1. `prefix` is empty, or starts with a slash and does not end with one. It has no dot segment and no query.
/// 2. `upstream` is http or https, and has a host and no credentials, query or fragment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Map {
    prefix: String,
    upstream: Url,
    kind: Kind,
}

impl Map {
    /// Reads `/PREFIX=[KIND:]URL`.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let form = "allowed is /PREFIX=URL or /PREFIX=KIND:URL, such as /simple=python:https://index.example/simple";
        let (prefix, target) = text.split_once('=').context(form)?;
        let (kind, url) = match target.split_once(':') {
            Some((word, rest)) if !rest.starts_with("//") => (
                Kind::parse(word).with_context(|| format!("kind is {word:?}; {form}"))?,
                rest,
            ),
            _ => (Kind::Plain, target),
        };
        Self::new(prefix, url, kind)
    }

    /// A map of these parts.
    pub fn new(prefix: &str, url: &str, kind: Kind) -> anyhow::Result<Self> {
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        if !prefix.is_empty() && !prefix.starts_with('/') {
            bail!("prefix is {prefix:?}; it must start with a slash");
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "/-._~@".contains(c);
        if !prefix.chars().all(is_plain) || prefix.contains("//") || may_leave(prefix) {
            bail!(
                "prefix is {prefix:?}; allowed are letters, digits and -._~@ between single slashes"
            );
        }
        if prefix == "/-" || prefix.starts_with("/-/") {
            bail!("prefix is {prefix:?}; /-/ is the proxy's own");
        }
        let upstream = upstream_url(url)?;
        if kind.is_registry() {
            let is_below = |path: &str| path == "/v2" || path.starts_with("/v2/");
            if !is_below(prefix) || !upstream.path().split('/').any(|segment| segment == "v2") {
                bail!(
                    "clients of registries ask for paths below /v2/; allowed is a prefix there, and a URL with it, such as \
                     /v2=oci:https://registry.example/v2"
                );
            }
        }
        Ok(Self {
            prefix: prefix.to_owned(),
            upstream,
            kind,
        })
    }

    /// The map whose URL is that of a registry itself: there clients ask whether it is one, and how to log in.
    pub fn of_ping(&self) -> Self {
        let segments = self.upstream.path().split_inclusive('/');
        let before = segments.take_while(|segment| segment.trim_end_matches('/') != "v2");
        let mut upstream = self.upstream.clone();
        upstream.set_path(&format!("{}v2/", before.collect::<String>()));
        Self {
            upstream,
            ..self.clone()
        }
    }

    /// What [`Map::parse`] reads.
    pub fn argument(&self) -> String {
        format!("{}/={}:{}", self.prefix, self.kind.name(), self.upstream)
    }

    /// The prefix, without a slash at its end.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The URL that the prefix stands for.
    pub fn upstream(&self) -> &Url {
        &self.upstream
    }

    /// What is behind the URL.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The part of a path behind the prefix. It is empty or starts with a slash.
    fn rest<'p>(&self, path: &'p str) -> Option<&'p str> {
        let rest = path.strip_prefix(self.prefix.as_str())?;
        (rest.is_empty() || rest.starts_with('/')).then_some(rest)
    }

    /// The URL of a path: `rest` stands behind the prefix.
    pub fn url(&self, rest: &str, query: Option<&str>) -> String {
        let base = self.upstream.as_str();
        let mut url = match rest {
            "" => base.to_owned(),
            _ => format!("{}{rest}", base.trim_end_matches('/')),
        };
        if let Some(query) = query {
            url.push('?');
            url.push_str(query);
        }
        url
    }

    /// The path of a URL under this map. None also for a link that the upstream has signed, as it is a proxy itself: that
    /// path leads to this proxy's own hosts.
    fn path(&self, url: &Url) -> Option<String> {
        if url.origin() != self.upstream.origin() {
            return None;
        }
        let base = self.upstream.path().trim_end_matches('/');
        let rest = url.path().strip_prefix(base)?;
        let is_under = rest.is_empty() || rest.starts_with('/');
        if !is_under || may_leave(rest) || rest.starts_with(SEGMENT) {
            return None;
        }
        let query = url
            .query()
            .map_or_else(String::new, |query| format!("?{query}"));
        let fragment = url
            .fragment()
            .map_or_else(String::new, |fragment| format!("#{fragment}"));
        let slash = match rest.is_empty() && self.prefix.is_empty() {
            true => "/",
            false => "",
        };
        Some(format!("{}{rest}{slash}{query}{fragment}", self.prefix))
    }
}

impl fmt::Display for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/ = {}", self.prefix, self.upstream)
    }
}

/// Reads the URL of an upstream, or of the proxy. It has no credentials.
pub fn upstream_url(text: &str) -> anyhow::Result<Url> {
    // A URL with a mistake may have a password in it, so no message shows it.
    let url = Url::parse(text).map_err(|e| anyhow::anyhow!("the URL is wrong: {e}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        bail!(
            "the URL has the scheme {:?}; allowed are http and https",
            url.scheme()
        );
    }
    if !url.username().is_empty() || url.password().is_some() {
        bail!(
            "the URL of {} has a user name or a password, which others may read in the list of processes; write \
             \"Authorization: Basic ...\" into a file and say --credential /PREFIX=FILE, or give them to the client",
            url.host_str().unwrap_or_default()
        );
    }
    if url.query().is_some() || url.fragment().is_some() {
        bail!("the URL has a query or a fragment; leave it out");
    }
    Ok(url)
}

/// How often a path may be escaped.
const MOST_ESCAPED: usize = 4;

/// Whether a server may take a path for one beside its map: it has a segment `.` or `..`, a backslash or a zero byte,
/// however they are written. Some servers decode a path twice, so this judges each decoded form. None of them is sent.
pub fn may_leave(path: &str) -> bool {
    let mut form = Cow::Borrowed(path.as_bytes());
    for _ in 0..=MOST_ESCAPED {
        if leaves(&form) {
            return true;
        }
        if !form.contains(&b'%') {
            return false;
        }
        let decoded = percent_decode(&form).collect::<Vec<u8>>();
        if decoded == *form {
            return false;
        }
        form = Cow::Owned(decoded);
    }
    true
}

fn leaves(path: &[u8]) -> bool {
    // Behind these marks, a server sees no more of a segment, and some trim blanks.
    let ends = |byte: &u8| b";?#".contains(byte);
    let is_dots = |segment: &[u8]| {
        let named = segment.split(ends).next().unwrap_or_default();
        matches!(named.trim_ascii(), b"." | b"..")
    };
    path.contains(&b'\\') || path.contains(&0) || path.split(|byte| *byte == b'/').any(is_dots)
}

/// All maps. The longest prefix that fits a path counts.
#[derive(Debug, Clone, Default)]
pub struct Maps {
    /// Longer prefixes first.
    maps: Vec<Map>,
}

impl Maps {
    /// These maps. No two may have one prefix.
    pub fn new(mut maps: Vec<Map>) -> anyhow::Result<Self> {
        maps.sort_by(|a, b| {
            let by_length = b.prefix.len().cmp(&a.prefix.len());
            by_length.then_with(|| a.prefix.cmp(&b.prefix))
        });
        maps.dedup();
        for pair in maps.windows(2) {
            if let [a, b] = pair
                && a.prefix == b.prefix
            {
                bail!(
                    "the prefix {}/ has two URLs, {} and {}; give one of them another prefix",
                    a.prefix,
                    a.upstream,
                    b.upstream
                );
            }
        }
        Ok(Self { maps })
    }

    /// The map of a path, and the part of the path behind its prefix.
    pub fn find<'p>(&self, path: &'p str) -> Option<(&Map, &'p str)> {
        self.maps
            .iter()
            .find_map(|map| Some((map, map.rest(path)?)))
    }

    /// The path at which a URL is found, if a map covers it. Of several maps the one with the longest URL counts.
    pub fn path_of(&self, url: &Url) -> Option<String> {
        let found = self.maps.iter().filter_map(|map| {
            let path = map.path(url)?;
            Some((map.upstream.path().len(), path))
        });
        found
            .max_by_key(|(length, _)| *length)
            .map(|(_, path)| path)
    }

    /// The maps, longer prefixes first.
    pub fn iter(&self) -> std::slice::Iter<'_, Map> {
        self.maps.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn maps(texts: &[&str]) -> Maps {
        Maps::new(texts.iter().map(|text| Map::parse(text).unwrap()).collect()).unwrap()
    }

    #[test]
    fn the_longest_prefix_counts_and_ends_with_a_segment() {
        let maps = maps(&[
            "/=http://root.example",
            "/a=http://a.example/base/",
            "/a/b=npm:https://b.example:8443/x",
        ]);
        let url = |path: &str| {
            let (map, rest) = maps.find(path).unwrap();
            map.url(rest, Some("q"))
        };
        for (path, expected) in [
            ("/", "http://root.example/?q"),
            ("/x", "http://root.example/x?q"),
            ("/ab", "http://root.example/ab?q"),
            ("/a", "http://a.example/base/?q"),
            ("/a/", "http://a.example/base/?q"),
            ("/a/%41", "http://a.example/base/%41?q"),
            ("/a/b", "https://b.example:8443/x?q"),
            ("/a/b/", "https://b.example:8443/x/?q"),
            ("/a/bc", "http://a.example/base/bc?q"),
        ] {
            assert_eq!(url(path), expected, "{path}");
        }
        assert_eq!(maps.find("/a/b").unwrap().0.kind(), Kind::Npm);
        for map in maps.iter() {
            assert_eq!(Map::parse(&map.argument()).unwrap(), *map);
        }
    }

    #[test]
    fn a_url_finds_its_path() {
        let maps = maps(&[
            "/simple=https://index.example/simple",
            "/all=https://index.example/",
        ]);
        let path = |url: &str| maps.path_of(&Url::parse(url).unwrap());
        for (url, expected) in [
            (
                "https://index.example/simple/a/?x#y",
                Some("/simple/a/?x#y"),
            ),
            ("https://index.example/simple", Some("/simple")),
            ("https://index.example/simpler", Some("/all/simpler")),
            ("https://index.example/", Some("/all/")),
            ("https://index.example:444/simple/a/", None),
            ("http://index.example/simple/a/", None),
            ("https://index.example.evil/simple/a/", None),
        ] {
            assert_eq!(path(url).as_deref(), expected, "{url}");
        }
    }

    #[test]
    fn a_registry_is_asked_at_its_root() {
        for (text, expected) in [
            ("/v2=oci:https://a/v2", "https://a/v2/"),
            ("/v2/hub=oci:https://a/v2/", "https://a/v2/"),
            (
                "/v2/x=oci-push:https://a:5000/v2/remote/x",
                "https://a:5000/v2/",
            ),
            (
                "/v2/x=oci:https://a/api/docker/x/v2",
                "https://a/api/docker/x/v2/",
            ),
        ] {
            let ping = Map::parse(text).unwrap().of_ping();
            assert_eq!(ping.url("/", None), expected, "{text}");
        }
    }

    #[test]
    fn a_wrong_map_is_refused_with_the_reason() {
        for (text, expected) in [
            ("simple", "allowed is /PREFIX=URL"),
            ("simple=https://a/", "must start with a slash"),
            ("/a//b=https://a/", "between single slashes"),
            ("/a/../b=https://a/", "between single slashes"),
            ("/-/x=https://a/", "/-/ is the proxy's own"),
            ("/a=ftp:https://a/", "kind is \"ftp\""),
            ("/a=ftp://a/", "the scheme \"ftp\""),
            ("/a=https://user:secret@a/", "has a user name or a password"),
            ("/a=https://a/?b", "has a query"),
            ("/a=https://", "the URL is wrong"),
            ("/hub=oci:https://a/v2", "below /v2/"),
            ("/v2x=oci:https://a/v2", "below /v2/"),
            ("/v2/hub=oci-push:https://a/", "below /v2/"),
        ] {
            let error = format!("{:#}", Map::parse(text).unwrap_err());
            assert!(error.contains(expected), "{text}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
        let twice = ["/a=https://a/", "/a/=https://b/"].map(|text| Map::parse(text).unwrap());
        let error = Maps::new(twice.to_vec()).unwrap_err().to_string();
        assert_eq!(
            error,
            "the prefix /a/ has two URLs, https://a/ and https://b/; give one of them another prefix"
        );
    }

    #[test]
    fn what_may_leave_a_map_is_seen_however_it_is_written() {
        for path in [
            "/a/../b",
            "/..",
            "/a/%2e%2E/b",
            "/a/.%2e",
            "/./a",
            "/a\\..\\b",
            "/a\\b",
            "/..%2fb",
            "/a%2F..%2Fb",
            "/a/..%5cb",
            "/a%5Cb",
            "/a%00",
            "/a/..%00/b",
            "/a/..;x=1/b",
            "/a/..%3b/b",
            "/a/..%20/b",
            "/a/..%3f",
            "/a/%252e%252e/b",
            "/..%252fb",
            "/a/%25252e./b",
            "/a%255cb",
            "/%2525252541",
        ] {
            assert!(may_leave(path), "{path}");
        }
        for path in [
            "/a..b/c",
            "/...",
            "/a.b",
            "/",
            "/%2ea",
            "/@scope%2fname",
            "/a%2f%2Fb",
            "/100%",
            "/%zz",
            "/%25252541",
            "/x;y/.z",
            "/c%2b%2b/",
        ] {
            assert!(!may_leave(path), "{path}");
        }
    }
}
