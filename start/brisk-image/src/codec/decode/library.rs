//! What a library does that decodes a block.

use std::fmt;

/// A library that decodes blocks.
pub(super) trait Decode {
    /// Decodes `input` to the start of `out`, and returns how many bytes it decodes to.
    ///
    /// The bytes behind them in `out` are unspecified, as are all of them after an error. It is an error
    /// if `out` is too small.
    fn decode(&mut self, input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError>;
}

/// Why a block does not decode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DecodeError {
    pub(crate) reason: String,
}

#[allow(dead_code, reason = "a build without any codec decodes nothing")]
impl DecodeError {
    pub(super) fn new(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
        }
    }

    pub(super) fn too_long(allowed: usize) -> Self {
        Self::new(format!("decodes to more than {allowed} bytes"))
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for DecodeError {}
