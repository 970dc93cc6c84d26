//! Words for a shell.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// A word as a shell takes it: in quotes if it needs them.
pub fn shell_word(word: &OsStr) -> OsString {
    let plain =
        |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+=:,@%".contains(byte) || *byte >= 0x80;
    let bytes = word.as_bytes();
    if !bytes.is_empty() && bytes.iter().all(plain) {
        return word.to_owned();
    }
    let mut quoted = b"'".to_vec();
    for &byte in bytes {
        match byte {
            b'\'' => quoted.extend(br"'\''"),
            byte => quoted.push(byte),
        }
    }
    quoted.push(b'\'');
    OsString::from_vec(quoted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_take_them_for_something_else() {
        for (word, expected) in [
            ("a/b-c", "a/b-c"),
            ("", "''"),
            ("a b", "'a b'"),
            ("it's", r"'it'\''s'"),
            ("$x", "'$x'"),
            ("~", "'~'"),
            ("http://[::1]/", "'http://[::1]/'"),
        ] {
            assert_eq!(shell_word(OsStr::new(word)), *expected);
        }
    }
}
