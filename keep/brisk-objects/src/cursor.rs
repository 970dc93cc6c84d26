use crate::error::Error;

/// Where a page of a query ended. The next one begins behind it, also in another process or after a restart, and whatever
/// was inserted or deleted meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// What the query goes through: the number of a layout and an index.
    pub(crate) of: u64,
    pub(crate) is_reversed: bool,
    /// The last entry.
    pub(crate) last: Vec<u8>,
}

/// The version of the bytes.
const VERSION: u8 = 1;

impl Cursor {
    /// The cursor as bytes, for a link or a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let head = [VERSION, u8::from(self.is_reversed)];
        [head.as_slice(), &self.of.to_le_bytes(), &self.last].concat()
    }

    /// The cursor of bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Cursor`] if the bytes are none.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let parts = || {
            let (&[version, reversed], rest) = bytes.split_first_chunk()?;
            let (of, last) = rest.split_first_chunk()?;
            let is_known = version == VERSION && reversed <= 1;
            is_known.then(|| Self {
                of: u64::from_le_bytes(*of),
                is_reversed: reversed == 1,
                last: last.to_vec(),
            })
        };
        parts().ok_or(Error::Cursor)
    }
}
