use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::windows::ffi::{OsStrExt, OsStringExt};

use crate::escaped_bytes;

/// The name, path or target that has these bytes in an image.
pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> OsString {
    match String::from_utf8(bytes.into()) {
        Ok(text) => text.into(),
        Err(e) => OsString::from_wide(&escaped_bytes::escape(e.as_bytes())),
    }
}

/// The bytes that a name, path or target has in an image. Undoes [`from_bytes`].
pub fn to_bytes(name: &OsStr) -> Cow<'_, [u8]> {
    match name.to_str() {
        Some(text) => Cow::Borrowed(text.as_bytes()),
        None => Cow::Owned(escaped_bytes::unescape(name.encode_wide())),
    }
}
