use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

/// What of a request decides.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The method.
    pub method: &'a Method,
    /// The whole target URL, with scheme and host.
    pub url: &'a str,
    /// The fields.
    pub headers: &'a HeaderMap,
}

/// What of a response decides: all but its body.
#[derive(Debug, Clone, Copy)]
pub struct Response<'a> {
    /// The status.
    pub status: StatusCode,
    /// The fields.
    pub headers: &'a HeaderMap,
}

/// Sets a field. A map that is full, which holds more than 24,000 names, stays as it is.
pub(crate) fn set(headers: &mut HeaderMap, name: HeaderName, value: HeaderValue) {
    let _before: Result<Option<HeaderValue>, _> = headers.try_insert(name, value);
}

/// Adds a line of a field, under the same condition.
pub(crate) fn add(headers: &mut HeaderMap, name: HeaderName, value: HeaderValue) {
    let _is_new: Result<bool, _> = headers.try_append(name, value);
}
