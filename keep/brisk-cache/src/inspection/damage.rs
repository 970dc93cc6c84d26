use std::fmt;

use crate::format::fault::Fault;

/// Something in a file of a cache that is not as the format demands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// The name of the file in the directory.
    pub file: String,
    /// The byte of the file at which the damaged header, slot, record or chunk begins.
    pub at: u64,
    /// What is wrong: the field, what was found, and what is allowed.
    pub message: String,
    /// The key that cannot be read for that reason, if it is known.
    pub key: Option<Vec<u8>>,
}

impl Damage {
    pub(super) fn of(file: &str, start: u64, fault: &Fault) -> Self {
        Self::new(file, start.saturating_add(fault.at), fault)
    }

    pub(super) fn new(file: &str, at: u64, message: impl fmt::Display) -> Self {
        Self {
            file: file.to_owned(),
            at,
            message: message.to_string(),
            key: None,
        }
    }

    pub(super) fn with_key(mut self, key: Option<Vec<u8>>) -> Self {
        self.key = key;
        self
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, byte {}: {}", self.file, self.at, self.message)
    }
}
