//! The answer for an index page: its form for clients, with validators of its own.

use std::sync::Arc;

use http::header::{
    ACCEPT_ENCODING, ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG, IF_MATCH,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};

use crate::body::{Body, empty};
use crate::form::{Coding, Form, Forms, Rules};
use crate::kind::Kind;
use crate::preset::{PageKind, page_kind};
use crate::problem::Problem;
use crate::proxy::last_status;

/// Conditions of a client, and the part that it wants.
pub const CONDITIONS: [HeaderName; 6] = [
    IF_MATCH,
    IF_MODIFIED_SINCE,
    IF_NONE_MATCH,
    IF_RANGE,
    IF_UNMODIFIED_SINCE,
    RANGE,
];

/// Digests that a rewritten body does not have.
const DIGESTS: [&str; 4] = ["content-digest", "repr-digest", "digest", "content-md5"];

/// Makes a request for a page out of a client's: all of it is needed, as it is, whatever the client has.
pub fn ask_for_whole(request: &mut Request<Body>) {
    if request.method() == Method::HEAD {
        *request.method_mut() = Method::GET;
    }
    let headers = request.headers_mut();
    for name in CONDITIONS {
        headers.remove(name);
    }
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
}

/// What of a client's request decides on the form of its answer.
pub struct Asked<'a> {
    /// GET or HEAD.
    pub method: &'a Method,
    /// Its fields.
    pub headers: &'a HeaderMap,
}

/// The answer for a client, if `response` is a page. Otherwise `response` as it is. `rules` says by which rules a page of a
/// kind is rewritten.
pub async fn rewritten(
    asked: &Asked<'_>,
    forms: &Arc<Forms>,
    (map, rest): (Kind, &str),
    response: Response<Body>,
    rules: impl FnOnce(PageKind, Coding) -> Rules,
) -> Result<Response<Body>, Problem> {
    let content_type = response.headers().get(CONTENT_TYPE);
    let content_type = content_type.map(|kind| String::from_utf8_lossy(kind.as_bytes()));
    let kind = match response.status() {
        StatusCode::OK => page_kind(map, rest, &content_type.unwrap_or_default()),
        _ => None,
    };
    let Some(kind) = kind else {
        return Ok(without_body_for_head(asked, response));
    };
    let rules = rules(kind, Coding::of(response.headers())?);
    let keeps = is_stored(response.headers());
    let (mut head, body) = response.into_parts();
    let known = |tag: &str| is_known(asked.headers, tag);
    let (form, tag) = forms.form(rules, body, keeps, known).await?;
    for name in [CONTENT_LENGTH, CONTENT_ENCODING, ACCEPT_RANGES] {
        head.headers.remove(name);
    }
    for name in DIGESTS {
        head.headers.remove(HeaderName::from_static(name));
    }
    // The tag is hexadecimal.
    if let Ok(tag) = HeaderValue::try_from(tag) {
        head.headers.insert(ETAG, tag);
    }
    if matches!(form, Form::Known) {
        head.status = StatusCode::NOT_MODIFIED;
        head.headers.remove(CONTENT_TYPE);
        return Ok(Response::from_parts(head, empty()));
    }
    head.headers
        .insert(CONTENT_LENGTH, HeaderValue::from(form.len()));
    let body = match *asked.method {
        Method::HEAD => empty(),
        _ => form.into_body(),
    };
    Ok(Response::from_parts(head, body))
}

/// Whether the cache keeps an answer that comes now.
fn is_stored(headers: &HeaderMap) -> bool {
    let status = last_status(headers);
    let mut parameters = status.split(';').map(str::trim);
    parameters.any(|parameter| matches!(parameter, "stored" | "collapsed"))
}

/// The answer to GET, as HEAD wants it.
fn without_body_for_head(asked: &Asked<'_>, response: Response<Body>) -> Response<Body> {
    match *asked.method {
        Method::HEAD => response.map(|_| empty()),
        _ => response,
    }
}

/// Whether the client has this form already (RFC 9110, section 13.1.2).
fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let lines = headers.get_all(IF_NONE_MATCH).iter();
    lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','))
        .map(str::trim)
        .any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag)
}
