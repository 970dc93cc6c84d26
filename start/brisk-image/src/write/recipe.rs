//! How an image was made, so that it can be made again.

use serde::{Deserialize, Serialize};

use crate::codec::Compression;
use crate::error::{Error, Result};
use crate::format::section::SectionKind;
use crate::read::image::Image;

/// Bytes of a recorded recipe: patterns of some ten thousand files.
const MOST_RECIPE: u64 = 4 << 20;

/// How an image was made: every option that the bytes depend on, and the versions of what made
/// them.
///
/// The same tree packed with the same recipe by the same versions is the same bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Recipe {
    /// Version of brisk.
    pub brisk: String,
    /// The library that compressed, and the version that it says, such as `zstd 1.5.7`; `none` if nothing was compressed.
    pub library: String,
    /// How data and metadata are compressed.
    pub compression: Compression,
    /// Size of a data block.
    pub block_size: u32,
    /// Whether small files share blocks.
    #[serde(rename = "fragments")]
    pub shared_blocks: bool,
    /// Whether the tails of larger files share blocks, too.
    pub tails: bool,
    /// Whether files with the same contents are stored once.
    pub deduplicate: bool,
    /// Whether inodes can be found by number.
    pub export: bool,
    /// Patterns of the files that come first.
    ///
    /// Absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub order: Vec<String>,
    /// Patterns of the files that are stored raw.
    ///
    /// Absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub raw: Vec<String>,
}

impl Recipe {
    /// Whether blocks with the same contents are the same bytes by both recipes: made by the same versions, too, if that is
    /// asked for.
    pub(crate) fn blocks_are_of(&self, other: &Self, same_versions: bool) -> bool {
        let options = |recipe: &Self| (recipe.compression, recipe.block_size);
        let by_same = self.brisk == other.brisk && self.library == other.library;
        options(self) == options(other) && (by_same || !same_versions)
    }

    pub(crate) fn encode(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(|e| Error::io("write the recipe", e.into()))
    }
}

impl Image {
    /// How the image was made; none if that is not recorded, as in images by other tools.
    ///
    /// # Errors
    ///
    /// `Corrupt` if the section is damaged, and `Unsupported` if a later version wrote it.
    pub fn recipe(&self) -> Result<Option<Recipe>> {
        let section = self
            .inner
            .stored
            .section(SectionKind::RECIPE, MOST_RECIPE)
            .map_err(|e| self.name(e))?;
        let Some((_, bytes)) = section else {
            return Ok(None);
        };
        serde_json::from_slice(&bytes).map(Some).map_err(|e| {
            self.name(Error::unsupported(crate::error::Unsupported::Other(
                format!("the recipe cannot be read ({e}); it may be of a later version"),
            )))
        })
    }
}
