use std::fmt;
use std::ops::Deref;

use smallvec::SmallVec;

/// The bytes of a key, without an allocation unless they are many.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyBytes(SmallVec<[u8; 64]>);

impl KeyBytes {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Has none again.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds bytes.
    #[inline]
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Adds a byte.
    #[inline]
    pub fn push(&mut self, byte: u8) {
        self.0.push(byte);
    }

    /// Adds zeros up to a multiple of 8 bytes. No key is the beginning of another one, so this changes no order.
    #[inline]
    pub(crate) fn pad(&mut self) {
        self.0.resize(self.0.len().next_multiple_of(8), 0);
    }
}

impl Deref for KeyBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for KeyBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x?}", &**self)
    }
}
