//! Makes the form of an index page that clients get, with validators of its own.

use std::io::Read;
use std::pin::Pin;

use bytes::Bytes;
use flate2::read::{GzDecoder, ZlibDecoder};
use http::header::{
    ACCEPT_ENCODING, ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG, IF_MATCH,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use twox_hash::XxHash3_128;

use crate::body::{Body, empty, full};
use crate::preset::{self, Links, PageKind, page_kind};
use crate::problem::Problem;

/// The most bytes of a page, after decoding.
const MOST_PAGE_BYTES: usize = 128 * 1024 * 1024;

/// Digests that a rewritten body does not have.
const DIGESTS: [&str; 4] = ["content-digest", "repr-digest", "digest", "content-md5"];

/// Makes a request for a page out of a client's: all of it is needed, as it is, whatever the client has.
pub fn ask_for_whole(request: &mut Request<Body>) {
    if request.method() == Method::HEAD {
        *request.method_mut() = Method::GET;
    }
    let headers = request.headers_mut();
    for name in [
        IF_MATCH,
        IF_MODIFIED_SINCE,
        IF_NONE_MATCH,
        IF_RANGE,
        IF_UNMODIFIED_SINCE,
        RANGE,
    ] {
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

/// The answer for a client, if `response` is a page. Otherwise `response` as it is.
pub async fn rewritten(
    asked: &Asked<'_>,
    links: &Links<'_>,
    response: Response<Body>,
) -> Result<Response<Body>, Problem> {
    let content_type = response.headers().get(CONTENT_TYPE);
    let content_type = content_type.map(|kind| String::from_utf8_lossy(kind.as_bytes()));
    let kind = match response.status() {
        StatusCode::OK => page_kind(links.map.kind(), &content_type.unwrap_or_default()),
        _ => None,
    };
    let Some(kind) = kind else {
        return Ok(without_body_for_head(asked, response));
    };
    let (mut head, body) = response.into_parts();
    let page = whole(body).await?;
    let page = decoded(&head.headers, page)?;
    let tag = tag(&page, links);
    let new = rewrite(links, kind, &page)?;
    for name in [CONTENT_LENGTH, CONTENT_ENCODING, ACCEPT_RANGES] {
        head.headers.remove(name);
    }
    for name in DIGESTS {
        head.headers.remove(HeaderName::from_static(name));
    }
    let is_known = is_known(asked.headers, &tag);
    // The tag is hexadecimal.
    if let Ok(tag) = HeaderValue::try_from(tag) {
        head.headers.insert(ETAG, tag);
    }
    if is_known {
        head.status = StatusCode::NOT_MODIFIED;
        head.headers.remove(CONTENT_TYPE);
        return Ok(Response::from_parts(head, empty()));
    }
    head.headers
        .insert(CONTENT_LENGTH, HeaderValue::from(new.len()));
    let body = match *asked.method {
        Method::HEAD => empty(),
        _ => full(new),
    };
    Ok(Response::from_parts(head, body))
}

/// The answer to GET, as HEAD wants it.
fn without_body_for_head(asked: &Asked<'_>, response: Response<Body>) -> Response<Body> {
    match *asked.method {
        Method::HEAD => response.map(|_| empty()),
        _ => response,
    }
}

/// All bytes of a page.
fn whole(body: Body) -> Pin<Box<dyn Future<Output = Result<Bytes, Problem>> + Send>> {
    let body = Body::new(Limited::new(body, MOST_PAGE_BYTES));
    Box::pin(async move {
        match body.collect().await {
            Ok(collected) => Ok(collected.to_bytes()),
            Err(e) if e.is::<LengthLimitError>() => Err(too_long()),
            Err(e) => Err(Problem::new(
                StatusCode::BAD_GATEWAY,
                format!("the index page broke off: {e}"),
            )),
        }
    })
}

fn too_long() -> Problem {
    Problem::new(
        StatusCode::BAD_GATEWAY,
        "the index page has more than 128 MiB, and cannot be rewritten; map its URL without a kind",
    )
}

/// The page without its coding. Some servers send one that was not asked for.
fn decoded(headers: &HeaderMap, page: Bytes) -> Result<Bytes, Problem> {
    let coding = headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes);
    let decoder: Box<dyn Read> = match coding.map(<[u8]>::to_ascii_lowercase).as_deref() {
        None | Some(b"" | b"identity") => return Ok(page),
        Some(b"gzip" | b"x-gzip") => Box::new(GzDecoder::new(&*page)),
        Some(b"deflate") => Box::new(ZlibDecoder::new(&*page)),
        Some(other) => {
            return Err(Problem::new(
                StatusCode::BAD_GATEWAY,
                format!(
                    "the index page comes in the coding {:?} although none was asked for; known are gzip and deflate",
                    String::from_utf8_lossy(other)
                ),
            ));
        }
    };
    let mut plain = Vec::new();
    let most = u64::try_from(MOST_PAGE_BYTES).unwrap_or(u64::MAX);
    // One more byte shows that there are too many.
    let read = decoder.take(most.saturating_add(1)).read_to_end(&mut plain);
    match read {
        Ok(_) if plain.len() > MOST_PAGE_BYTES => Err(too_long()),
        Ok(_) => Ok(plain.into()),
        Err(e) => Err(Problem::new(
            StatusCode::BAD_GATEWAY,
            format!("the index page cannot be decoded: {e}"),
        )),
    }
}

fn rewrite(links: &Links<'_>, kind: PageKind, page: &[u8]) -> Result<Vec<u8>, Problem> {
    links.rewrite(kind, page).map_err(|e| {
        Problem::new(
            StatusCode::BAD_GATEWAY,
            format!(
                "the index page {} cannot be rewritten, because {}; look at it, or map its URL without a kind",
                links.page, e.0
            ),
        )
    })
}

/// The validator of a form. It changes with the page, and with everything else that the form depends on.
fn tag(page: &[u8], links: &Links<'_>) -> String {
    let mut text = format!("{}\n{}\n{}\n", preset::VERSION, links.path, links.proxy);
    for map in links.maps.iter() {
        text.push_str(&format!("{map}\n"));
    }
    text.push_str(&links.hosts.fingerprint());
    let parameters = XxHash3_128::oneshot(text.as_bytes());
    format!("\"{:032x}-{parameters:032x}\"", XxHash3_128::oneshot(page))
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
