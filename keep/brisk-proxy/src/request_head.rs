//! The head of a request over HTTP/1, judged byte by byte.
//!
//! Two servers that read one request differently can be made to see two different requests (request smuggling). So the
//! proxy accepts only heads that everybody reads alike (RFC 9112), and refuses everything that a lenient server would
//! mend: folded lines, bare line feeds, several lengths, a length beside a coding, blanks before a colon.

use std::borrow::Cow;
use std::fmt;

use http::StatusCode;

/// The most bytes of a head.
pub const MOST_HEAD_BYTES: usize = 32 * 1024;

/// The most bytes of a target.
const MOST_TARGET_BYTES: usize = 8 * 1024;

/// The most lines of a head.
pub const MOST_FIELDS: usize = 100;

/// How the body behind a head ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// After so many bytes.
    Length(u64),
    /// With the last chunk.
    Chunked,
}

/// Why a request is not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What the client is told.
    pub status: StatusCode,
    /// Why, in words.
    pub reason: Cow<'static, str>,
}

impl Refusal {
    /// A request that breaks the rules of HTTP.
    pub const fn bad(reason: &'static str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, reason)
    }

    /// A request that is not accepted.
    pub const fn new(status: StatusCode, reason: &'static str) -> Self {
        Self {
            status,
            reason: Cow::Borrowed(reason),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

/// The length of the head at the start of `bytes`, with its empty line. None: its end has not come yet.
pub fn head_len(bytes: &[u8]) -> Result<Option<usize>, Refusal> {
    let mut start = 0;
    while let Some(line) = bytes.get(start..) {
        let Some(length) = line.iter().position(|byte| *byte == b'\n') else {
            break;
        };
        let end = start.saturating_add(length).saturating_add(1);
        match line.get(..length) {
            Some(b"\r") => return bounded(end),
            Some([.., b'\r']) => start = end,
            _ => {
                return Err(Refusal::bad(
                    "a line of the head ends without a carriage return",
                ));
            }
        }
    }
    match bytes.len() > MOST_HEAD_BYTES {
        true => Err(too_large()),
        false => Ok(None),
    }
}

fn bounded(end: usize) -> Result<Option<usize>, Refusal> {
    match end > MOST_HEAD_BYTES {
        true => Err(too_large()),
        false => Ok(Some(end)),
    }
}

fn too_large() -> Refusal {
    Refusal::new(
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        "the head is longer than 32 KiB",
    )
}

/// Judges a head that ends with its empty line.
pub fn check(head: &[u8]) -> Result<Framing, Refusal> {
    let mut lines = head
        .strip_suffix(b"\r\n\r\n")
        .ok_or(Refusal::bad("the head has no end"))?
        .split(|byte| *byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let version = check_request_line(lines.next().unwrap_or_default())?;
    let (mut hosts, mut length, mut coding) = (0, None, None);
    for (at, line) in lines.enumerate() {
        if at >= MOST_FIELDS {
            return Err(Refusal::new(
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "the head has more than 100 fields",
            ));
        }
        let (name, value) = check_field(line)?;
        if name.eq_ignore_ascii_case(b"host") {
            hosts += 1;
            check_host(value)?;
        } else if name.eq_ignore_ascii_case(b"content-length") {
            if length.is_some() {
                return Err(Refusal::bad("Content-Length comes more than once"));
            }
            length = Some(content_length(value)?);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if coding.is_some() {
                return Err(Refusal::bad("Transfer-Encoding comes more than once"));
            }
            coding = Some(value);
        }
    }
    if hosts > 1 || hosts == 0 && version == b'1' {
        return Err(Refusal::bad("Host must come exactly once"));
    }
    match (length, coding) {
        (Some(_), Some(_)) => Err(Refusal::bad(
            "Content-Length and Transfer-Encoding come together",
        )),
        (_, Some(_)) if version == b'0' => {
            Err(Refusal::bad("HTTP/1.0 does not have Transfer-Encoding"))
        }
        (_, Some(coding)) if coding.eq_ignore_ascii_case(b"chunked") => Ok(Framing::Chunked),
        (_, Some(_)) => Err(Refusal::bad("Transfer-Encoding is not chunked alone")),
        (length, None) => Ok(Framing::Length(length.unwrap_or(0))),
    }
}

/// Returns the digit behind `HTTP/1.`.
fn check_request_line(line: &[u8]) -> Result<u8, Refusal> {
    const FORM: Refusal = Refusal::bad(
        "the request line is not a method, a target and a version with single blanks between",
    );
    let mut words = line.split(|byte| *byte == b' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(FORM);
    };
    if !is_token(method) {
        return Err(FORM);
    }
    let version = match version {
        b"HTTP/1.1" => b'1',
        b"HTTP/1.0" => b'0',
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            return Err(Refusal::new(
                StatusCode::HTTP_VERSION_NOT_SUPPORTED,
                "the version is none of HTTP/1.0, HTTP/1.1 and HTTP/2",
            ));
        }
        _ => return Err(FORM),
    };
    if target.len() > MOST_TARGET_BYTES {
        return Err(Refusal::new(
            StatusCode::URI_TOO_LONG,
            "the target is longer than 8 KiB",
        ));
    }
    if !target.iter().all(u8::is_ascii_graphic) {
        return Err(Refusal::bad(
            "the target has a byte that must be percent-encoded",
        ));
    }
    if method == b"CONNECT" {
        return Err(Refusal::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "this is no forward proxy: it makes no tunnels; use the URLs that its maps name",
        ));
    }
    match target {
        [b'/', ..] => Ok(version),
        b"*" if method == b"OPTIONS" => Ok(version),
        _ => Err(Refusal::bad(
            "this is no forward proxy: the target must be a path; use the URLs that its maps name, and not the \
             variables http_proxy and https_proxy",
        )),
    }
}

/// The name and the value of a field's line.
pub fn check_field(line: &[u8]) -> Result<(&[u8], &[u8]), Refusal> {
    if line.starts_with(b" ") || line.starts_with(b"\t") {
        return Err(Refusal::bad("a field is folded over two lines"));
    }
    let colon = line.iter().position(|byte| *byte == b':');
    let (name, value) = colon
        .and_then(|colon| Some((line.get(..colon)?, line.get(colon.checked_add(1)?..)?)))
        .ok_or(Refusal::bad("a field has no colon"))?;
    if !is_token(name) {
        return Err(Refusal::bad(
            "the name of a field has a character that names must not have",
        ));
    }
    let is_text = |byte: &u8| *byte == b'\t' || *byte >= b' ' && *byte != 0x7f;
    if !value.iter().all(is_text) {
        return Err(Refusal::bad("the value of a field has a control character"));
    }
    Ok((name, value.trim_ascii()))
}

fn check_host(value: &[u8]) -> Result<(), Refusal> {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+;=:[]".contains(byte);
    match !value.is_empty() && value.iter().all(is_plain) {
        true => Ok(()),
        false => Err(Refusal::bad("Host is no name of a host")),
    }
}

fn content_length(value: &[u8]) -> Result<u64, Refusal> {
    const WRONG: Refusal = Refusal::bad("Content-Length is no number");
    // 18 digits fit, and nobody sends more.
    if value.is_empty() || value.len() > 18 || !value.iter().all(u8::is_ascii_digit) {
        return Err(WRONG);
    }
    let text = std::str::from_utf8(value).map_err(|_| WRONG)?;
    text.parse().map_err(|_| WRONG)
}

/// Whether these bytes are a token (RFC 9110, section 5.6.2).
pub fn is_token(bytes: &[u8]) -> bool {
    let is_token_char =
        |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !bytes.is_empty() && bytes.iter().all(is_token_char)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_accepted_or_refused_with_a_reason() {
        let length = |n| Ok(Framing::Length(n));
        let bad = |reason: &'static str| Err(reason);
        for (head, expected) in [
            ("GET / HTTP/1.1\r\nHost: a\r\n", length(0)),
            ("GET / HTTP/1.0\r\n", length(0)),
            ("OPTIONS * HTTP/1.1\r\nHost: a\r\n", length(0)),
            (
                "PUT /a HTTP/1.1\r\nHost: a:1\r\nContent-Length: 12\r\n",
                length(12),
            ),
            (
                "PUT /a HTTP/1.1\r\nHost: a\r\ntransfer-encoding:  Chunked\t\r\n",
                Ok(Framing::Chunked),
            ),
            ("GET /  HTTP/1.1\r\nHost: a\r\n", bad("single blanks")),
            ("GET\t/ HTTP/1.1\r\nHost: a\r\n", bad("single blanks")),
            ("G@T / HTTP/1.1\r\nHost: a\r\n", bad("single blanks")),
            ("GET / HTTP/1.1 \r\nHost: a\r\n", bad("single blanks")),
            ("GET / http/1.1\r\nHost: a\r\n", bad("single blanks")),
            (
                "GET / HTTP/1.2\r\nHost: a\r\n",
                bad("the version is none of"),
            ),
            (
                "GET / HTTP/2.0\r\nHost: a\r\n",
                bad("the version is none of"),
            ),
            (
                "GET http://a/ HTTP/1.1\r\nHost: a\r\n",
                bad("no forward proxy"),
            ),
            ("GET a HTTP/1.1\r\nHost: a\r\n", bad("no forward proxy")),
            (
                "CONNECT a:443 HTTP/1.1\r\nHost: a\r\n",
                bad("no forward proxy"),
            ),
            (
                "GET /\u{e4} HTTP/1.1\r\nHost: a\r\n",
                bad("percent-encoded"),
            ),
            ("GET / HTTP/1.1\r\n", bad("Host must come exactly once")),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n",
                bad("exactly once"),
            ),
            ("GET / HTTP/1.1\r\nHost: a/b\r\n", bad("Host is no name")),
            ("GET / HTTP/1.1\r\nHost: u@a\r\n", bad("Host is no name")),
            ("GET / HTTP/1.1\r\nHost:\r\n", bad("Host is no name")),
            ("GET / HTTP/1.1\r\nHost: a\r\n x: y\r\n", bad("folded")),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nX : y\r\n",
                bad("name of a field"),
            ),
            (
                "GET / HTTP/1.1\r\nHost: a\r\n: y\r\n",
                bad("name of a field"),
            ),
            ("GET / HTTP/1.1\r\nHost: a\r\nX\r\n", bad("no colon")),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n",
                bad("control character"),
            ),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n",
                bad("control character"),
            ),
            (
                "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n",
                bad("Content-Length comes more than once"),
            ),
            (
                "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n",
                bad("come together"),
            ),
            (
                "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n",
                bad("no number"),
            ),
            (
                "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n",
                bad("no number"),
            ),
            (
                "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n",
                bad("no number"),
            ),
            (
                "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x1\r\n",
                bad("no number"),
            ),
            (
                "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n",
                bad("no number"),
            ),
            (
                "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999999999999999\r\n",
                bad("no number"),
            ),
            (
                "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n",
                bad("not chunked alone"),
            ),
            (
                "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \u{b}chunked\r\n",
                bad("control character"),
            ),
            (
                "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
                bad("more than once"),
            ),
            (
                "PUT / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n",
                bad("HTTP/1.0 does not have"),
            ),
        ] {
            let head = format!("{head}\r\n");
            match (check(head.as_bytes()), expected) {
                (Ok(framing), Ok(expected)) => assert_eq!(framing, expected, "{head:?}"),
                (Err(refusal), Err(expected)) => {
                    assert!(refusal.reason.contains(expected), "{head:?}: {refusal}");
                }
                (judged, expected) => panic!("{head:?}: {judged:?}, expected {expected:?}"),
            }
        }
    }

    #[test]
    fn a_head_ends_with_an_empty_line() {
        let head = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nrest";
        for cut in 0..head.len() {
            let expected = (cut >= head.len() - 4).then_some(head.len() - 4);
            assert_eq!(head_len(&head[..cut]), Ok(expected), "{cut}");
        }
        for bare in ["GET / HTTP/1.1\n", "GET / HTTP/1.1\r\nHost: a\n\r\n", "\n"] {
            assert!(head_len(bare.as_bytes()).is_err(), "{bare:?}");
        }
        assert!(head_len(&[b'a'; MOST_HEAD_BYTES]).is_ok());
        assert!(head_len(&[b'a'; MOST_HEAD_BYTES + 1]).is_err());
    }

    #[test]
    fn bounds_have_codes_of_their_own() {
        let status = |head: String| check(head.as_bytes()).unwrap_err().status.as_u16();
        let long = "a".repeat(MOST_TARGET_BYTES);
        assert_eq!(
            status(format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n")),
            414
        );
        let many = "a: b\r\n".repeat(MOST_FIELDS);
        assert_eq!(
            status(format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n")),
            431
        );
        let wrong = "GET / HTTP/3.0\r\nHost: a\r\n\r\n".to_owned();
        assert_eq!(status(wrong), 505);
        let tunnel = "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n".to_owned();
        assert_eq!(status(tunnel), 405);
    }
}
