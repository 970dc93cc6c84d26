use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The name, path or target that has these bytes in an image.
pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> OsString {
    OsString::from_vec(bytes.into())
}

/// The bytes that a name, path or target has in an image. Undoes [`from_bytes`].
pub fn to_bytes(name: &OsStr) -> Cow<'_, [u8]> {
    Cow::Borrowed(name.as_bytes())
}
