use std::fmt;
use std::str::FromStr;

use sha2::digest::Output;
use sha2::{Digest, Sha256};

use crate::error::Error;

/// Hexadecimal digits of a root hash.
const DIGITS: usize = 64;

/// The SHA-256 digest of the top of a hash tree. It stands for all bytes under the tree.
///
/// As text it is 64 hexadecimal digits, as `veritysetup` prints it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RootHash(pub(super) [u8; 32]);

impl RootHash {
    /// The digest.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for RootHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for RootHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for RootHash {
    type Err = Error;

    /// Ignores white space around the digits, because files with a root hash end with a newline or without.
    fn from_str(text: &str) -> Result<Self, Error> {
        let digits = text.trim();
        let value = |digit: u8| char::from(digit).to_digit(16);
        let mut digest = [0; 32];
        let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
        let mut all = pairs.len() == digest.len() && rest.is_empty();
        for (byte, [high, low]) in digest.iter_mut().zip(pairs) {
            match (value(*high), value(*low)) {
                // Two digits are at most 255.
                (Some(high), Some(low)) => *byte = (high << 4 | low) as u8,
                _ => all = false,
            }
        }
        match all {
            true => Ok(Self(digest)),
            false => {
                let found: String = digits.chars().take(DIGITS + 1).collect();
                let text = format!(
                    "root hash is \"{found}\" ({} characters), allowed are {DIGITS} hexadecimal digits",
                    digits.chars().count()
                );
                Err(Error::input(text))
            }
        }
    }
}

/// Hashes blocks behind the salt of a tree.
#[derive(Clone)]
pub(super) struct SaltedHash(Sha256);

impl SaltedHash {
    pub(super) fn new(salt: &[u8]) -> Self {
        Self(Sha256::new().chain_update(salt))
    }

    pub(super) fn of(&self, block: &[u8]) -> [u8; 32] {
        let hash: Output<Sha256> = self.0.clone().chain_update(block).finalize();
        hash.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_hash_is_64_digits() {
        let digits = "00ff".repeat(16);
        let root: RootHash = format!(" {digits}\n").parse().unwrap();
        assert_eq!(root.to_string(), digits);
        assert_eq!(digits.to_uppercase().parse::<RootHash>().unwrap(), root);
        for (text, found) in [
            ("", "\"\" (0 characters)"),
            ("ab", "\"ab\" (2 characters)"),
            ("/etc/passwd", "\"/etc/passwd\" (11 characters)"),
            ("\u{1b}[2J", "\"\\u{1b}[2J\" (4 characters)"),
        ] {
            let e = text.parse::<RootHash>().unwrap_err();
            let allowed = "allowed are 64 hexadecimal digits";
            assert_eq!(e.to_string(), format!("root hash is {found}, {allowed}"));
        }
        assert!("g".repeat(64).parse::<RootHash>().is_err());
        assert!("0".repeat(65).parse::<RootHash>().is_err());
        assert!("0".repeat(66).parse::<RootHash>().is_err());
    }
}
