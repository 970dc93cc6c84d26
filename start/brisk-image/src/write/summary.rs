//! What a written image holds.

use serde::Serialize;

use super::data_writer::Tally;
#[cfg(feature = "profile")]
use crate::hot_pack::writer::HotSummary;
use crate::verity::VeritySummary;

/// What a written image holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Summary {
    /// Inodes; a hard-linked file counts once.
    pub inodes: u64,
    /// Files among them.
    pub files: u64,
    /// Directories among them.
    pub directories: u64,
    /// What became of the contents.
    pub data: Tally,
    /// Size of the SquashFS image.
    pub bytes_used: u64,
    /// Size of the file, with padding and the sections behind the image.
    pub file_bytes: u64,
    /// Threads that compressed.
    pub threads: usize,
    /// The hot pack behind the image.
    ///
    /// Absent without one.
    #[cfg(feature = "profile")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hot_pack: Option<HotSummary>,
    /// The hash tree behind the image.
    ///
    /// Absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verity: Option<VeritySummary>,
}
