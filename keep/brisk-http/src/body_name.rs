use std::fmt;

use twox_hash::XxHash3_128;

/// The name of a body: its digest, its length, and whose it is.
///
/// A policy names its body, and a body is used only with a policy that names it, so no answer mixes two responses. The
/// digest (XXH3 with 128 bits) tells the bodies of one URL apart. It can be forged, so bodies are kept for each URL, and
/// for the credentials on which the response depends: an origin can pass a body off as another one of its own only, and
/// the holder of one credential cannot pass one off as that of another credential.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct BodyName {
    pub(crate) digest: [u8; 16],
    pub(crate) len: u64,
    /// A digest of the credentials on which the response depends. Zero if it depends on none.
    pub(crate) owner: [u8; 8],
}

impl BodyName {
    /// The name of these bytes, as a body that depends on no credentials.
    pub fn of(body: &[u8]) -> Self {
        let mut hasher = BodyHasher::default();
        hasher.update(body);
        hasher.finish()
    }

    /// The number of bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// What the name says of the bytes, and not for whom they are: the digest, and the length in little-endian order.
    pub fn content(&self) -> [u8; 24] {
        let mut bytes = [0; 24];
        let (digest, len) = bytes.split_at_mut(16);
        digest.copy_from_slice(&self.digest);
        len.copy_from_slice(&self.len.to_le_bytes());
        bytes
    }

    /// Whether the body has no bytes. Such a body is not stored.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes of the name: the digest, the length in little-endian order, and the digest of the credentials.
    pub fn to_bytes(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        let (content, owner) = bytes.split_at_mut(24);
        content.copy_from_slice(&self.content());
        owner.copy_from_slice(&self.owner);
        bytes
    }
}

impl fmt::Debug for BodyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digest = u128::from_be_bytes(self.digest);
        write!(f, "BodyName({digest:032x}, {} bytes)", self.len)
    }
}

/// Names a body that comes piece by piece.
#[derive(Clone, Default)]
pub struct BodyHasher {
    hasher: XxHash3_128,
    len: u64,
}

impl BodyHasher {
    /// Adds a piece.
    pub fn update(&mut self, piece: &[u8]) {
        self.hasher.write(piece);
        self.len = self.len.saturating_add(piece.len() as u64);
    }

    /// The name of all pieces.
    pub fn finish(&self) -> BodyName {
        BodyName {
            digest: self.hasher.finish_128().to_be_bytes(),
            len: self.len,
            owner: [0; 8],
        }
    }
}

impl fmt::Debug for BodyHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyHasher")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_make_no_difference() {
        let mut hasher = BodyHasher::default();
        hasher.update(b"a p");
        hasher.update(b"");
        hasher.update(b"age");
        assert_eq!(hasher.finish(), BodyName::of(b"a page"));
        assert_ne!(BodyName::of(b"a page"), BodyName::of(b"a pagf"));
        assert_eq!(BodyName::of(b"").to_bytes()[16..], [0; 16]);
        assert!(BodyName::of(b"").is_empty());
    }
}
