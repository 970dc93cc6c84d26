use bytes::Bytes;
use http::response::Parts;

use super::blocking::BlockingBody;
use crate::layer::BodyError;
#[cfg(feature = "json")]
use crate::layer::whole_body::json;
use crate::layer::whole_body::{Most, check_head, most, text};

/// [`WholeBody`](crate::WholeBody) for the responses of a [`BlockingClient`](crate::BlockingClient).
///
/// # Example
///
/// ```no_run
/// # fn example(client: brisk_http::BlockingClient) -> Result<(), Box<dyn std::error::Error>> {
/// use brisk_http::BlockingWholeBody;
///
/// let page = client.get("https://example.org/")?.text()?;
/// # Ok(())
/// # }
/// ```
pub trait BlockingWholeBody: Sized {
    /// As [`WholeBody::at_most`](crate::WholeBody::at_most).
    #[must_use]
    fn at_most(self, bytes: u64) -> Self;

    /// As [`WholeBody::bytes`](crate::WholeBody::bytes).
    ///
    /// # Errors
    ///
    /// [`BodyError::Fetch`] and [`BodyError::TooLong`].
    fn bytes(self) -> Result<Bytes, BodyError>;

    /// As [`WholeBody::text`](crate::WholeBody::text).
    ///
    /// # Errors
    ///
    /// [`BodyError`].
    fn text(self) -> Result<String, BodyError>;

    /// As [`WholeBody::json`](crate::WholeBody::json).
    ///
    /// # Errors
    ///
    /// [`BodyError`].
    #[cfg(feature = "json")]
    fn json<T: serde::de::DeserializeOwned>(self) -> Result<T, BodyError>;
}

impl BlockingWholeBody for http::Response<BlockingBody> {
    fn at_most(mut self, bytes: u64) -> Self {
        self.extensions_mut().insert(Most(bytes));
        self
    }

    fn bytes(self) -> Result<Bytes, BodyError> {
        let (head, body) = self.into_parts();
        whole(&head, body)
    }

    fn text(self) -> Result<String, BodyError> {
        let (head, body) = self.into_parts();
        check_head(&head)?;
        text(whole(&head, body)?, &head.headers)
    }

    #[cfg(feature = "json")]
    fn json<T: serde::de::DeserializeOwned>(self) -> Result<T, BodyError> {
        let (head, body) = self.into_parts();
        check_head(&head)?;
        json(&whole(&head, body)?, &head.headers)
    }
}

fn whole(head: &Parts, body: BlockingBody) -> Result<Bytes, BodyError> {
    let most = most(head);
    body.all(most)?.ok_or(BodyError::TooLong { most })
}
