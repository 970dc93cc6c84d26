//! What the profile of a replay or of a hot pack is of.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Of which launch the profile of a hot pack was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Training {
    /// Of the one that is measured.
    Same,
    /// Of the same program on other inputs.
    Another,
    /// Of none: it has pages that the launch never asks for.
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
