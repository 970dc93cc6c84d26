use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::response::Parts;

use super::body_error::{BodyError, shown};
use super::cache_body::CacheBody;
use super::fetch::all_of;
use super::get_as::MOST_BODY;

/// Reads the whole body of a response into memory, as bytes, text or a value.
///
/// A body has at most 128 MiB, unless [`at_most`](Self::at_most) says otherwise: who sends it decides how long it is.
///
/// # Example
///
/// ```no_run
/// # async fn example(client: brisk_http::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use brisk_http::WholeBody;
///
/// let page = client.get("https://example.org/").await?.text().await?;
/// let icon = client.get("https://example.org/icon").await?.at_most(64 << 10).bytes().await?;
/// # Ok(())
/// # }
/// ```
pub trait WholeBody: Sized {
    /// Changes the most bytes that a body may have. The memory is bounded by this, whatever the head of the response says.
    #[must_use]
    fn at_most(self, bytes: u64) -> Self;

    /// The body, whatever the status is. One of at most 256 KiB that is stored is not copied.
    ///
    /// # Errors
    ///
    /// [`BodyError::Fetch`] and [`BodyError::TooLong`].
    fn bytes(self) -> impl Future<Output = Result<Bytes, BodyError>> + Send;

    /// The body of a success (2xx) as text. It has to be UTF-8; a byte order mark is left out.
    ///
    /// # Errors
    ///
    /// [`BodyError`].
    fn text(self) -> impl Future<Output = Result<String, BodyError>> + Send;

    /// The value that the body of a success (2xx) says in JSON, whatever its Content-Type is.
    ///
    /// # Errors
    ///
    /// [`BodyError`].
    #[cfg(feature = "json")]
    fn json<T: serde::de::DeserializeOwned>(
        self,
    ) -> impl Future<Output = Result<T, BodyError>> + Send;
}

impl WholeBody for http::Response<CacheBody> {
    fn at_most(mut self, bytes: u64) -> Self {
        self.extensions_mut().insert(Most(bytes));
        self
    }

    async fn bytes(self) -> Result<Bytes, BodyError> {
        let (head, body) = self.into_parts();
        whole(&head, body).await
    }

    async fn text(self) -> Result<String, BodyError> {
        let (head, body) = self.into_parts();
        check_head(&head)?;
        text(whole(&head, body).await?, &head.headers)
    }

    #[cfg(feature = "json")]
    async fn json<T: serde::de::DeserializeOwned>(self) -> Result<T, BodyError> {
        let (head, body) = self.into_parts();
        check_head(&head)?;
        json(&whole(&head, body).await?, &head.headers)
    }
}

async fn whole(head: &Parts, body: CacheBody) -> Result<Bytes, BodyError> {
    let most = most(head);
    // What fetches it bounds how long it may pause.
    let all = all_of(body, most, None).await?;
    all.ok_or(BodyError::TooLong { most })
}

/// The most bytes of the body of a response, among its extensions.
#[derive(Clone, Copy)]
pub(crate) struct Most(pub(crate) u64);

pub(crate) fn most(head: &Parts) -> u64 {
    head.extensions.get().map_or(MOST_BODY, |Most(most)| *most)
}

/// Whether a body may be text or JSON, before anything of it is read.
pub(crate) fn check_head(head: &Parts) -> Result<(), BodyError> {
    if !head.status.is_success() {
        return Err(BodyError::Status(head.status));
    }
    let coding = shown(&head.headers, &CONTENT_ENCODING);
    if let Some(coding) = coding.filter(|coding| !coding.eq_ignore_ascii_case("identity")) {
        return Err(BodyError::Coding(coding));
    }
    match charset(&head.headers) {
        Some(charset) if !is_utf8(&charset) => Err(BodyError::Charset(charset)),
        _ => Ok(()),
    }
}

/// What the Content-Type says of the charset.
fn charset(headers: &HeaderMap) -> Option<String> {
    let content_type = shown(headers, &CONTENT_TYPE)?;
    let mut parameters = content_type.split(';').skip(1);
    parameters.find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        let value = value.trim().trim_matches('"');
        name.trim()
            .eq_ignore_ascii_case("charset")
            .then(|| value.to_owned())
    })
}

fn is_utf8(charset: &str) -> bool {
    // ASCII is a part of it.
    let labels = ["utf-8", "utf8", "us-ascii", "ascii"];
    labels
        .iter()
        .any(|label| charset.eq_ignore_ascii_case(label))
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

pub(crate) fn text(bytes: Bytes, headers: &HeaderMap) -> Result<String, BodyError> {
    let marked = bytes.starts_with(BYTE_ORDER_MARK);
    let mut text = String::from_utf8(bytes.into())
        .map_err(|e| BodyError::not_utf8(e.utf8_error().valid_up_to(), headers))?;
    if marked {
        text.remove(0);
    }
    Ok(text)
}

#[cfg(feature = "json")]
pub(crate) fn json<T: serde::de::DeserializeOwned>(
    bytes: &[u8],
    headers: &HeaderMap,
) -> Result<T, BodyError> {
    // A parser may ignore it (RFC 8259, section 8.1).
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    serde_json::from_slice(bytes).map_err(|e| BodyError::json(e, headers))
}
