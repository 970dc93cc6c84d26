use std::fmt;
use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher24};

/// A key with which credentials are digested before they are stored.
///
/// A cache has one of its own, for example from the kernel's random numbers, in a file that only its user may read.
/// Without it, a reader of the cache cannot try passwords against what is stored.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret([u8; 16]);

impl Secret {
    /// The secret of these bytes, which nobody else may guess.
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// A digest of the value of a field (SipHash-2-4 with 128 bits). Equal values of two fields have different digests.
    pub(crate) fn digest<'a>(
        &self,
        field: &[u8],
        lines: impl Iterator<Item = &'a [u8]>,
    ) -> [u8; 16] {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        // The length before each piece keeps pieces apart.
        let mut piece = |bytes: &[u8]| {
            hasher.write(&(bytes.len() as u64).to_le_bytes());
            hasher.write(bytes);
        };
        piece(field);
        lines.for_each(piece);
        hasher.finish128().as_bytes()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_depends_on_secret_field_and_lines() {
        let digest = |secret: u8, field: &str, lines: &[&str]| {
            Secret::new([secret; 16]).digest(field.as_bytes(), lines.iter().map(|l| l.as_bytes()))
        };
        let one = digest(1, "authorization", &["Bearer a", "b"]);
        assert_eq!(one, digest(1, "authorization", &["Bearer a", "b"]));
        for other in [
            digest(2, "authorization", &["Bearer a", "b"]),
            digest(1, "cookie", &["Bearer a", "b"]),
            digest(1, "authorization", &["Bearer ab"]),
            digest(1, "authorization", &["Bearer a", "", "b"]),
        ] {
            assert_ne!(one, other);
        }
        assert_eq!(format!("{:?}", Secret::new([7; 16])), "Secret(..)");
    }
}
