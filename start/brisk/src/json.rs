//! The parts that all JSON of brisk has in common.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use brisk_image::FileType;
use serde::Serialize;

/// A name as JSON can hold it. If the name is not UTF-8, the second value has its bytes in hexadecimal.
pub fn name(name: &(impl AsRef<OsStr> + ?Sized)) -> (Cow<'_, str>, Option<String>) {
    let name = name.as_ref();
    match name.to_str() {
        Some(text) => (Cow::Borrowed(text), None),
        None => {
            let bytes = name.as_bytes().iter().map(|byte| format!("{byte:02x}"));
            (name.to_string_lossy(), Some(bytes.collect()))
        }
    }
}

/// The same of a name that is made for it.
pub fn owned_name(owned: impl AsRef<OsStr>) -> (String, Option<String>) {
    let (text, hex) = name(&owned);
    (text.into_owned(), hex)
}

/// The same of a name that may be missing.
pub fn optional_name(
    optional: Option<&(impl AsRef<OsStr> + ?Sized)>,
) -> (Option<Cow<'_, str>>, Option<String>) {
    let (text, hex) = optional.map(name).unzip();
    (text, hex.flatten())
}

/// Words as JSON can hold them.
pub fn names(words: &[impl AsRef<OsStr>]) -> Vec<Cow<'_, str>> {
    words.iter().map(|word| name(word).0).collect()
}

/// The name of a type of file. Every verb has the same names.
pub fn file_type(of: FileType) -> &'static str {
    match of {
        FileType::Directory => "directory",
        FileType::File => "file",
        FileType::Symlink => "symlink",
        FileType::BlockDevice => "block",
        FileType::CharDevice => "char",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
    }
}

/// Prints `value` on stdout.
pub fn print(value: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_string_pretty(value)?;
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_any_name_are_kept() {
        assert_eq!(name("ü"), ("ü".into(), None));
        let odd = OsStr::from_bytes(b"a\xff");
        assert_eq!(name(odd), ("a\u{fffd}".into(), Some("61ff".to_owned())));
    }
}
