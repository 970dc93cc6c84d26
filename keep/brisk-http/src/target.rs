//! Target URLs, in the form in which they are keys (RFC 9110, section 4.2.3; RFC 3986, section 5.2).

use std::borrow::Cow;

/// A URL of `http` or `https`: scheme and host in lower case, without its user, the default port and the fragment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target<'a> {
    text: Cow<'a, str>,
    /// Where the path starts.
    path: usize,
}

impl<'a> Target<'a> {
    /// None if it is no such URL. One that is in this form already is not copied.
    pub(crate) fn parse(url: &'a str) -> Option<Self> {
        match Self::normal(url) {
            Some(path) => Some(Self {
                text: Cow::Borrowed(url),
                path,
            }),
            None => Self::normalized(url),
        }
    }

    /// Where the path of a URL in normal form starts. None if it may be in another form.
    fn normal(url: &str) -> Option<usize> {
        let (rest, default_port) = match url.strip_prefix("https://") {
            Some(rest) => (rest, "443"),
            None => (url.strip_prefix("http://")?, "80"),
        };
        let (authority, path) = rest.split_at(rest.find('/')?);
        let (host, port) = authority.split_once(':').unwrap_or((authority, "1"));
        let is_port = port != default_port
            && !port.is_empty()
            && port.bytes().all(|byte| byte.is_ascii_digit());
        let is_plain = |byte: u8| byte > b' ' && byte != 0x7F && byte != b'#';
        let is_normal =
            |byte: u8| is_plain(byte) && !byte.is_ascii_uppercase() && !b"@?".contains(&byte);
        let is_right = !host.is_empty() && host.bytes().all(is_normal) && is_port;
        (is_right && path.bytes().all(is_plain)).then_some(url.len() - path.len())
    }

    fn normalized(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let scheme = scheme.to_ascii_lowercase();
        let default_port = match scheme.as_str() {
            "http" => ":80",
            "https" => ":443",
            _ => return None,
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        // Credentials are no part of a key.
        let host = authority
            .rsplit_once('@')
            .map_or(authority, |(_, host)| host);
        let host = host.to_ascii_lowercase();
        let host = host.strip_suffix(default_port).unwrap_or(&host);
        let host = host.strip_suffix(':').unwrap_or(host);
        let plain = |text: &str| text.bytes().all(|byte| byte > b' ' && byte != 0x7F);
        if host.is_empty() || !plain(host) || !plain(path) {
            return None;
        }
        let mut text = format!("{scheme}://{host}");
        let start = text.len();
        if !path.starts_with('/') {
            text.push('/');
        }
        text.push_str(path);
        Some(Self {
            text: Cow::Owned(text),
            path: start,
        })
    }

    /// A copy that borrows nothing.
    fn into_owned(self) -> Target<'static> {
        Target {
            text: Cow::Owned(self.text.into_owned()),
            path: self.path,
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    fn origin(&self) -> &str {
        self.text.get(..self.path).unwrap_or_default()
    }

    /// Whether both have one scheme, host and port.
    pub(crate) fn has_origin_of(&self, other: &Target<'_>) -> bool {
        self.origin() == other.origin()
    }

    /// The target of a reference in a response from this one. None if it is no URL of `http` or `https`.
    pub(crate) fn join(&self, reference: &str) -> Option<Target<'static>> {
        let reference = reference.trim().split('#').next().unwrap_or_default();
        if has_scheme(reference) {
            return Target::parse(reference).map(Target::into_owned);
        }
        if reference.starts_with("//") {
            let (scheme, _) = self.text.split_once("://")?;
            return Target::parse(&format!("{scheme}:{reference}")).map(Target::into_owned);
        }
        let own = self.text.get(self.path..)?;
        let own_path = own.split('?').next().unwrap_or_default();
        let joined = match reference.as_bytes().first() {
            None => own.to_owned(),
            Some(b'/') => reference.to_owned(),
            Some(b'?') => format!("{own_path}{reference}"),
            Some(_) => {
                let (directory, _) = own_path.rsplit_once('/').unwrap_or_default();
                format!("{directory}/{reference}")
            }
        };
        let (path, query) = joined.split_at(joined.find('?').unwrap_or(joined.len()));
        let joined = format!("{}{}{query}", self.origin(), without_dot_segments(path));
        Target::parse(&joined).map(Target::into_owned)
    }
}

fn has_scheme(reference: &str) -> bool {
    let scheme = reference.find(':').and_then(|at| reference.get(..at));
    scheme.is_some_and(|scheme| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    })
}

fn without_dot_segments(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    kept.pop();
                }
                if is_last {
                    kept.push("");
                }
            }
            segment => kept.push(segment),
        }
    }
    format!("/{}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_no_user_default_port_or_fragment() {
        for (url, key) in [
            (
                "HTTP://User:pw@Example.ORG:80/A?b#c",
                "http://example.org/A?b",
            ),
            ("https://example.org:443", "https://example.org/"),
            ("https://example.org:8443?q", "https://example.org:8443/?q"),
            ("http://[::1]:8080/a@b", "http://[::1]:8080/a@b"),
            ("http://example.org:/", "http://example.org/"),
        ] {
            assert_eq!(Target::parse(url).unwrap().as_str(), key);
        }
        for url in [
            "",
            "/a",
            "ftp://a/",
            "http://",
            "http://a b/",
            "http://a/b c",
            "http://@/",
        ] {
            assert_eq!(Target::parse(url), None, "{url}");
        }
    }

    #[test]
    fn what_is_in_normal_form_is_borrowed_and_stays_as_it_is() {
        let pieces = [
            "http", "https", "HTTPS", "://", ":", "80", "443", "8080", "a", "A", "@", "/", "?",
            "#", " ", "[::1]", "\u{7f}", "é", "//", "..",
        ];
        let mut borrowed = 0;
        let mut state = 1_usize;
        for _ in 0..200_000 {
            let mut url = ["http://", "https://"][state & 1].to_owned();
            for _ in 0..5 {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                url.push_str(pieces[(state >> 33) % pieces.len()]);
            }
            let parsed = Target::parse(&url);
            assert_eq!(parsed, Target::normalized(&url), "{url}");
            borrowed +=
                usize::from(parsed.is_some_and(|parsed| matches!(parsed.text, Cow::Borrowed(_))));
        }
        assert!(borrowed > 5_000, "{borrowed}");
    }

    #[test]
    fn references_are_joined_as_in_rfc_3986() {
        // Section 5.4, without the fragments.
        let base = Target::parse("http://a/b/c/d;p?q").unwrap();
        for (reference, expected) in [
            ("g", "http://a/b/c/g"),
            ("./g", "http://a/b/c/g"),
            ("g/", "http://a/b/c/g/"),
            ("/g", "http://a/g"),
            ("//g", "http://g/"),
            ("?y", "http://a/b/c/d;p?y"),
            ("g?y", "http://a/b/c/g?y"),
            ("", "http://a/b/c/d;p?q"),
            ("#s", "http://a/b/c/d;p?q"),
            (".", "http://a/b/c/"),
            ("..", "http://a/b/"),
            ("../g", "http://a/b/g"),
            ("../../../g", "http://a/g"),
            ("/./g", "http://a/g"),
            ("g;x=1/../y", "http://a/b/c/y"),
            ("g?y/../x", "http://a/b/c/g?y/../x"),
            ("HTTPS://A/x", "https://a/x"),
        ] {
            assert_eq!(
                base.join(reference).unwrap().as_str(),
                expected,
                "{reference}"
            );
        }
        assert_eq!(base.join("mailto:a@b"), None);
        assert!(base.has_origin_of(&base.join("../x").unwrap()));
        assert!(!base.has_origin_of(&base.join("https://a/").unwrap()));
        assert!(!base.has_origin_of(&base.join("http://a:81/").unwrap()));
    }
}
