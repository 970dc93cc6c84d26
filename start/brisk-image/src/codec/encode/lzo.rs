//! LZO1X compression.
//!
//! lzokay-native works on raw pointers, and nobody has proven that it is sound. So it is no part of the
//! default features.

use std::io;

use lzokay_native::Dict;

use super::library::Encode;
use crate::error::{Error, Result};

pub(super) struct Encoder(Dict);

impl Encoder {
    pub(super) fn new() -> Self {
        Self(Dict::new())
    }
}

impl Encode for Encoder {
    fn encode(&mut self, input: &[u8], out: &mut [u8]) -> Result<Option<usize>> {
        let encoded = lzokay_native::compress_with_dict(input, &mut self.0)
            .map_err(|e| Error::io("compress a block as lzo", io::Error::other(e)))?;
        let Some(out) = out.get_mut(..encoded.len()) else {
            return Ok(None);
        };
        out.copy_from_slice(&encoded);
        Ok(Some(encoded.len()))
    }
}

/// The only version that `Cargo.toml` allows. The crate itself does not say it.
const VERSION: &str = "0.1.0";

pub(super) fn version() -> String {
    format!("lzokay-native {VERSION}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_other_version_can_be_built() {
        let manifest = include_str!("../../../Cargo.toml");
        // Cargo writes the manifest of a package anew, with a table for each dependency.
        let section = manifest.rsplit("lzokay-native").next().unwrap_or_default();
        let line: String = section.lines().take(3).collect();
        assert!(line.contains(&format!("\"={VERSION}\"")), "{line}");
    }

    /// The kernel takes a first byte of 17 as the mark of `lzo-rle`.
    #[test]
    fn never_starts_with_the_mark_of_another_variant() {
        let mut encoder = Encoder::new();
        let mut out = [0; 2000];
        for len in 4..600 {
            let input: Vec<u8> = (0..len).map(|i| u8::try_from(i % 7).unwrap()).collect();
            if encoder.encode(&input, &mut out).unwrap().is_some() {
                assert_ne!(out[0], 17, "{len}");
            }
        }
    }
}
