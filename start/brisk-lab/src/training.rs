//! Which launch a profile was recorded from.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The launch that a hot pack's profile was recorded from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Training {
    /// The launch that is measured.
    Same,
    /// The same program on other inputs.
    Another,
    /// None: the profile has pages that the launch never asks for.
    Wrong,
}

impl fmt::Display for Training {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Same => "same",
            Self::Another => "another",
            Self::Wrong => "wrong",
        })
    }
}
