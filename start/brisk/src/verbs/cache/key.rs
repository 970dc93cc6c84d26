use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use anyhow::Context;
use brisk_terminal::names::shown;

/// A key.
#[derive(Debug, clap::Args)]
pub(super) struct KeyArg {
    /// The key.
    key: OsString,

    /// KEY is in hexadecimal, as key_hex of the JSON has it.
    #[arg(long)]
    hex: bool,
}

impl KeyArg {
    pub(super) fn bytes(&self) -> anyhow::Result<Vec<u8>> {
        if !self.hex {
            return Ok(self.key.as_bytes().to_vec());
        }
        let text = self.key.to_str().unwrap_or_default();
        from_hex(text).with_context(|| {
            format!(
                "--hex: the key is {}, allowed is an even number of hexadecimal digits",
                shown(&self.key)
            )
        })
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let digit = |b: u8| {
        char::from(b)
            .to_digit(16)
            .and_then(|n| u8::try_from(n).ok())
    };
    let byte = |&[a, b]: &[u8; 2]| Some(digit(a)? << 4 | digit(b)?);
    let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
    bytes.filter(|bytes| rest.is_empty() && !bytes.is_empty())
}

/// A key as people can read it.
pub(super) fn shown_key(key: &[u8]) -> String {
    shown(OsStr::from_bytes(key))
}

/// A key as JSON can hold it. If it is not UTF-8, the second value has its bytes in hexadecimal.
pub(super) fn json_key(key: &[u8]) -> (Cow<'_, str>, Option<String>) {
    crate::json::name(OsStr::from_bytes(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_digits_are_read_in_pairs() {
        assert_eq!(from_hex("61fF00"), Some(vec![0x61, 0xff, 0]));
        for wrong in ["", "6", "6g", "+1", "0x61", "é"] {
            assert_eq!(from_hex(wrong), None, "{wrong}");
        }
    }
}
