//! Compressing blocks: [`Compression`] says how, and an [`Encoder`] does it.

pub(crate) mod compression;
#[cfg(feature = "gzip")]
mod gzip;
mod library;
#[cfg(feature = "lz4")]
mod lz4;
#[cfg(feature = "lzo-encode")]
mod lzo;
#[cfg(feature = "xz")]
mod xz;
#[cfg(feature = "zstd")]
mod zstd;

pub(crate) use compression::Compression;

use self::library::Encode;
use crate::error::Result;

/// Compresses blocks, one at a time.
///
/// What a block becomes depends on the block and the [`Compression`] alone, never on what the
/// encoder did before.
pub(crate) struct Encoder {
    /// None if everything is stored as it is.
    library: Option<Box<dyn Encode + Send>>,
    /// As long as the longest block so far, so that no call has to zero a buffer before the
    /// library writes to it.
    scratch: Vec<u8>,
}

impl Encoder {
    /// An encoder of data blocks of at most `block_size` bytes.
    pub(crate) fn new(compression: &Compression, block_size: u32) -> Result<Self> {
        compression.check(block_size)?;
        Ok(Self {
            library: library(compression, block_size)?,
            scratch: Vec::new(),
        })
    }

    /// An encoder of metadata blocks.
    #[cfg(feature = "write")]
    pub(crate) fn for_metadata(compression: &Compression) -> Result<Self> {
        Self::new(&compression.for_metadata(), super::METADATA_BLOCK)
    }

    /// Replaces the contents of `out` by the compressed `input`.
    ///
    /// Returns `false`, and leaves `out` empty, if the input does not get smaller. It is then
    /// stored as it is.
    pub(crate) fn encode(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        out.clear();
        let mut scratch = std::mem::take(&mut self.scratch);
        if scratch.len() < input.len() {
            scratch.resize(input.len(), 0);
        }
        let found = self.encode_to(input, &mut scratch)?;
        if let Some(len) = found {
            out.extend_from_slice(&scratch[..len]);
        }
        self.scratch = scratch;
        Ok(found.is_some())
    }

    /// Puts the compressed `input` at the start of `out`, and returns its length; what follows is
    /// unspecified.
    ///
    /// Returns `None` if the result is not smaller than the input, or does not fit into `out`. The
    /// input is then stored as it is.
    pub(crate) fn encode_to(&mut self, input: &[u8], out: &mut [u8]) -> Result<Option<usize>> {
        // The room is one byte less than the input, so the libraries stop as soon as a block does
        // not get smaller. A block of one byte never does.
        let Some(room) = input.len().checked_sub(1).filter(|&room| room > 0) else {
            return Ok(None);
        };
        let room = room.min(out.len());
        let out = &mut out[..room];
        match &mut self.library {
            Some(library) => library.encode(input, out),
            None => Ok(None),
        }
    }
}

/// The library that `compression` asks for; none if everything is stored as it is.
#[cfg_attr(
    not(feature = "xz"),
    expect(unused_variables, reason = "only xz has to know the size of a block")
)]
fn library(compression: &Compression, block_size: u32) -> Result<Option<Box<dyn Encode + Send>>> {
    match *compression {
        Compression::None => Ok(None),
        #[cfg(feature = "gzip")]
        Compression::Gzip { level } => Ok(Some(Box::new(gzip::Encoder::new(level)?))),
        #[cfg(feature = "lzo-encode")]
        Compression::Lzo {} => Ok(Some(Box::new(lzo::Encoder::new()))),
        #[cfg(feature = "lz4")]
        Compression::Lz4 { high } => Ok(Some(Box::new(lz4::Encoder::new(high)))),
        #[cfg(feature = "xz")]
        Compression::Xz {
            preset,
            extreme,
            dict_size,
            filters,
        } => {
            let dict_size = dict_size.unwrap_or(block_size);
            let encoder = xz::Encoder::new(preset, extreme, dict_size, filters);
            Ok(Some(Box::new(encoder)))
        }
        #[cfg(feature = "zstd")]
        Compression::Zstd { level } => Ok(Some(Box::new(zstd::Encoder::new(level)?))),
        #[allow(unreachable_patterns, reason = "reachable only if a codec is left out")]
        _ => Err(compression.left_out()),
    }
}

/// The library that compresses with `compression`, and its version: what the bytes depend on beside
/// the options. The library itself says its version, or the header that it was compiled with.
#[cfg(feature = "write")]
pub(crate) fn library_version(compression: &Compression) -> String {
    match compression.codec() {
        #[cfg(feature = "gzip")]
        Some(super::Codec::Gzip) => gzip::version(),
        #[cfg(feature = "lzo-encode")]
        Some(super::Codec::Lzo) => lzo::version(),
        #[cfg(feature = "lz4")]
        Some(super::Codec::Lz4) => lz4::version(),
        #[cfg(feature = "xz")]
        Some(super::Codec::Xz) => xz::version(),
        #[cfg(feature = "zstd")]
        Some(super::Codec::Zstd) => zstd::version(),
        _ => "none".to_owned(),
    }
}
