//! Numbers that are the same for the same seed.

/// A generator that gives the same numbers for the same seed.
pub(super) struct Numbers(pub(super) u64);

impl Numbers {
    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(super) fn below(&mut self, most: u64) -> u64 {
        (self.next() >> 11) % most
    }
}
