//! How names from images are shown on a terminal.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::Write;
use std::path::Path;

/// `text` without characters that a terminal would obey. Control characters, and marks that reorder text,
/// become `\u{1b}` and the like.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_dangerous) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_dangerous(c) {
            // Writing to a string cannot fail.
            let written = write!(safe, "{}", c.escape_unicode());
            debug_assert!(written.is_ok());
        } else {
            safe.push(c);
        }
    }
    Cow::Owned(safe)
}

/// A path in an image or a tree as people and JSON get it: "." for the root.
pub fn path_from_root(path: &Path) -> &OsStr {
    match path.as_os_str() {
        root if root.is_empty() => OsStr::new("."),
        path => path,
    }
}

/// A name as people can read it. Bytes that are not UTF-8 become `\xff` and the like; [`printable`] handles
/// the rest.
pub fn shown(name: impl AsRef<OsStr>) -> String {
    use std::os::unix::ffi::OsStrExt;
    let mut safe = String::new();
    for chunk in name.as_ref().as_bytes().utf8_chunks() {
        safe.push_str(&printable(chunk.valid()));
        for byte in chunk.invalid() {
            let written = write!(safe, "\\x{byte:02x}");
            debug_assert!(written.is_ok());
        }
    }
    safe
}

fn is_dangerous(c: char) -> bool {
    // A terminal obeys line ends too, but error messages of libraries contain them on purpose. No message of
    // brisk does.
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn nothing_reaches_the_terminal_that_it_obeys() {
        assert_eq!(shown("plain ünïcode"), "plain ünïcode");
        assert_eq!(shown("a\u{1b}[2Jb\n"), "a\\u{1b}[2Jb\\u{a}");
        assert_eq!(shown("gpj.\u{202e}exe"), "gpj.\\u{202e}exe");
        assert_eq!(shown(OsStr::from_bytes(b"a\xff\x9bb")), "a\\xff\\x9bb");
    }
}
