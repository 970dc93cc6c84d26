//! Fields that belong to one connection, and what a proxy adds to the others (RFC 9110, section 7.6).

use http::header::{CONNECTION, COOKIE, HOST, TE, TRANSFER_ENCODING, UPGRADE, VIA};
use http::{HeaderMap, HeaderName, HeaderValue};

const OF_A_CONNECTION: [HeaderName; 8] = [
    CONNECTION,
    // Trailers of an answer end here, because the cache does not keep them.
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("proxy-authenticate"),
    HeaderName::from_static("proxy-authorization"),
];

/// Removes the fields of a connection, and those that `Connection` names.
pub fn remove(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&OF_A_CONNECTION) {
        headers.remove(name);
    }
    headers.remove("http2-settings");
}

/// Removes what the next request says anew, and joins what HTTP/2 splits (RFC 9113, section 8.2.3).
pub fn prepare_request(headers: &mut HeaderMap) {
    remove(headers);
    headers.remove(HOST);
    headers.remove(http::header::EXPECT);
    let cookies: Vec<&[u8]> = headers
        .get_all(COOKIE)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    if cookies.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&cookies.join(b"; ".as_slice()))
    {
        headers.insert(COOKIE, joined);
    }
}

/// The name of this proxy among the proxies of a path.
#[derive(Debug, Clone)]
pub struct Via {
    name: String,
    /// What is added to messages of HTTP/1.0, 1.1 and 2. None if the name cannot stand in a field.
    added: Option<[HeaderValue; 3]>,
}

impl Via {
    /// The proxy of this name.
    pub fn new(name: String) -> Self {
        let of = |version| HeaderValue::try_from(format!("{version} {name}")).ok();
        let added = (|| Some([of("1.0")?, of("1.1")?, of("2.0")?]))();
        Self { name, added }
    }

    /// Whether a message has come through this proxy.
    pub fn is_loop(&self, headers: &HeaderMap) -> bool {
        let mut proxies = headers
            .get_all(VIA)
            .iter()
            .filter_map(|line| line.to_str().ok())
            .flat_map(|line| line.split(','));
        proxies.any(|proxy| proxy.split_ascii_whitespace().nth(1) == Some(self.name.as_str()))
    }

    /// Says that a message of this version has come through this proxy.
    pub fn add(&self, headers: &mut HeaderMap, version: http::Version) {
        let Some([v1_0, v1_1, v2_0]) = &self.added else {
            return;
        };
        let value = match version {
            http::Version::HTTP_10 => v1_0,
            http::Version::HTTP_2 => v2_0,
            _ => v1_1,
        };
        headers.append(VIA, value.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Version;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn only_the_fields_of_the_message_pass() {
        let mut request = headers(&[
            ("host", "a"),
            ("connection", "close, X-Own"),
            ("connection", "keep-alive"),
            ("keep-alive", "1"),
            ("proxy-authorization", "b"),
            ("upgrade", "h2c"),
            ("http2-settings", "c"),
            ("x-own", "d"),
            ("te", "gzip, Trailers"),
            ("cookie", "e=1"),
            ("cookie", "f=2"),
            ("accept", "g"),
        ]);
        prepare_request(&mut request);
        let expected = headers(&[("cookie", "e=1; f=2"), ("accept", "g")]);
        assert_eq!(request, expected);
    }

    #[test]
    fn a_loop_is_seen() {
        let via = Via::new("brisk-1".to_owned());
        let mut message = headers(&[("via", "1.1 brisk-10, 1.1 a (brisk-1)")]);
        assert!(!via.is_loop(&message));
        via.add(&mut message, Version::HTTP_2);
        assert!(via.is_loop(&message));
        assert_eq!(message.get_all(VIA).iter().nth(1).unwrap(), "2.0 brisk-1");
    }
}
