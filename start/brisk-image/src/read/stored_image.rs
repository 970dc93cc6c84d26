//! The stored bytes of an image, and what decodes them.

use std::path::{Path, PathBuf};
#[cfg(feature = "verity")]
use std::sync::Arc;
use std::sync::{Mutex, PoisonError};

use brisk_io::ByteSource;

use super::limits::Limits;
use super::locate;
use crate::codec::{CodecOptions, Decoder, Decoders};
use crate::error::{Allowed, Corrupt, Error, Location, Result};
use crate::format::codec_options;
use crate::format::metadata::{HEADER, MetadataHeader};
use crate::format::superblock::{Superblock, flag};
use crate::mapping::ImmutableMapping;
#[cfg(feature = "verity")]
use crate::verity::VerifiedFile;

/// An image with tables of at most this many bytes has them fetched when it is opened.
const TABLES_AHEAD: u64 = 1 << 20;

/// Where the bytes of an image come from.
pub(crate) enum Source {
    Positioned(Box<dyn ByteSource>),
    Mapped(ImmutableMapping),
    #[cfg(feature = "verity")]
    Verified(Arc<VerifiedFile>),
}

impl Source {
    fn as_read_at(&self) -> &dyn ByteSource {
        match self {
            Self::Positioned(source) => source.as_ref(),
            Self::Mapped(mapping) => mapping,
            #[cfg(feature = "verity")]
            Self::Verified(file) => file.as_ref(),
        }
    }
}

/// The stored bytes of an image, from its superblock to the end of its source.
pub(crate) struct StoredImage {
    source: Source,
    /// The byte of the source at which the image starts.
    pub(crate) start: u64,
    pub(crate) path: Option<PathBuf>,
    pub(crate) superblock: Superblock,
    pub(crate) limits: Limits,
    decoders: Decoders,
    /// Workers without work. There are as many workers as threads that ever read at the same time.
    idle: Mutex<Vec<Worker>>,
}

/// What a thread needs to decode a block. It is kept for the next block.
pub(crate) struct Worker {
    /// None before the first block that is compressed.
    pub(crate) decoder: Option<Decoder>,
    /// Stored bytes, unless they are borrowed from a mapping.
    pub(crate) stored: Vec<u8>,
}

impl StoredImage {
    /// Finds the image in `source`, at `offset` if that is given, and checks its superblock.
    pub(crate) fn open(
        source: Source,
        path: Option<&Path>,
        offset: Option<u64>,
        limits: Limits,
        decoders: Decoders,
    ) -> Result<Self> {
        let bytes = source.as_read_at();
        let start = match offset {
            Some(start) => start,
            None => locate::image_start(bytes)?,
        };
        let source_len = bytes
            .size()
            .map_err(|e| Error::io("read the length of the image", e))?;
        let image_len = source_len.saturating_sub(start);
        if image_len < Superblock::LEN as u64 {
            let (what, need) = ("the superblock", Superblock::LEN as u64);
            let fault = Corrupt::Truncated {
                what,
                need,
                have: image_len,
            };
            return Err(Error::corrupt(Location::Byte(0), fault));
        }
        let mut header = [0; Superblock::LEN];
        bytes
            .read_exact_bytes_at(start, &mut header)
            .map_err(|e| Error::io("read the superblock", e))?;
        let superblock = Superblock::parse(&header, image_len)?;
        if !superblock.is_raw() {
            // Said now, as every read would fail.
            Decoder::new(superblock.codec(), decoders)?;
        }
        Ok(Self {
            source,
            start,
            path: path.map(Path::to_owned),
            superblock,
            limits,
            decoders,
            idle: Mutex::default(),
        })
    }

    /// Asks the kernel to read all tables now: they are small, and read in pieces from all over the place.
    pub(crate) fn read_tables_ahead(&self) {
        let tables = self.superblock.inode_table()..self.superblock.bytes_used();
        if self.mapping().is_none() && tables.end - tables.start <= TABLES_AHEAD {
            self.source.as_read_at().will_read(
                self.start.saturating_add(tables.start)..self.start.saturating_add(tables.end),
            );
        }
    }

    /// The options of the codec, if the image records any.
    pub(crate) fn read_codec_options(&self) -> Result<Option<CodecOptions>> {
        if !self.superblock.has(flag::CODEC_OPTIONS) {
            return Ok(None);
        }
        let at = Superblock::LEN as u64;
        let what = "the codec's options";
        let mut header = [0; HEADER];
        self.read_into(at, &mut header, what)?;
        let header = MetadataHeader::parse(header, at)?;
        if !header.is_raw() {
            let word = u16::from_le_bytes(header.encode());
            let allowed = Allowed::Text("with bit 15, as they are never compressed");
            let field = "header of the codec's options";
            return Err(Error::field(Location::Byte(at), field, word, allowed));
        }
        let mut bytes = vec![0; header.len()];
        self.read_into(at + HEADER as u64, &mut bytes, what)?;
        let location = Location::Byte(at + HEADER as u64);
        codec_options::parse(self.superblock.codec(), &bytes, location).map(Some)
    }

    /// Lends `use_it` `len` bytes of the image from `at`, borrowed from the mapping or read into `scratch`.
    ///
    /// A page of the mapping that the system cannot give reads as zeros, so the result is then an
    /// error.
    pub(crate) fn with_bytes<R>(
        &self,
        at: u64,
        len: usize,
        what: &'static str,
        scratch: &mut Vec<u8>,
        use_it: impl FnOnce(&[u8]) -> Result<R>,
    ) -> Result<R> {
        self.check_inside(at, len as u64, what)?;
        if let Some(bytes) = self.mapped(at, len) {
            let result = use_it(bytes);
            self.check_mapping()?;
            return result;
        }
        // Growing fills with zeros, so a buffer that is used again is only filled once.
        if scratch.len() < len {
            scratch.resize(len, 0);
        }
        let buf = &mut scratch[..len];
        self.read_outside(at, buf, "read the image")?;
        use_it(buf)
    }

    /// Checks that the system gave all pages that were borrowed from the mapping so far.
    pub(crate) fn check_mapping(&self) -> Result<()> {
        match self.mapping() {
            Some(mapping) => mapping.check().map_err(|e| Error::io("read the image", e)),
            None => Ok(()),
        }
    }

    fn mapping(&self) -> Option<&ImmutableMapping> {
        match &self.source {
            Source::Mapped(mapping) => Some(mapping),
            _ => None,
        }
    }

    /// The file that the image is in, if its blocks are compared with a hash tree.
    #[cfg(feature = "verity")]
    pub(crate) fn verified(&self) -> Option<&Arc<VerifiedFile>> {
        match &self.source {
            Source::Verified(file) => Some(file),
            _ => None,
        }
    }

    /// Fills `buf` from byte `at` of the image.
    pub(crate) fn read_into(&self, at: u64, buf: &mut [u8], what: &'static str) -> Result<()> {
        self.check_inside(at, buf.len() as u64, what)?;
        self.read_outside(at, buf, "read the image")
    }

    /// Checks that the image has `len` bytes from `at`.
    pub(crate) fn check_inside(&self, at: u64, len: u64, what: &'static str) -> Result<()> {
        let have = self.superblock.bytes_used().saturating_sub(at);
        if len > have {
            let fault = Corrupt::Truncated {
                what,
                need: len,
                have,
            };
            return Err(Error::corrupt(Location::Byte(at), fault));
        }
        Ok(())
    }

    /// `len` bytes from `at`, borrowed from the mapping; none if nothing is mapped.
    pub(crate) fn mapped(&self, at: u64, len: usize) -> Option<&[u8]> {
        let mapping = self.mapping()?;
        let start = usize::try_from(self.start.checked_add(at)?).ok()?;
        mapping.as_slice().get(start..start.checked_add(len)?)
    }

    /// Fills `buf` from byte `at`, which may lie behind the image, in a section.
    pub(crate) fn read_outside(&self, at: u64, buf: &mut [u8], doing: &'static str) -> Result<()> {
        let start = self.start.saturating_add(at);
        self.source
            .as_read_at()
            .read_exact_bytes_at(start, buf)
            .map_err(|e| Error::io(doing, e))
    }

    /// As [`ByteSource::read_bytes_at`], from byte `at` of the image, which may lie behind it, in a section.
    #[cfg(feature = "profile")]
    pub(crate) fn read_source_at(&self, at: u64, buf: &mut [u8]) -> std::io::Result<usize> {
        let start = self.start.saturating_add(at);
        self.source.as_read_at().read_bytes_at(start, buf)
    }

    /// Bytes from the start of the image to the end of its source.
    #[cfg(feature = "sections")]
    pub(crate) fn source_len(&self) -> Result<u64> {
        Ok(self.file_len()?.saturating_sub(self.start))
    }

    /// Bytes of its source.
    pub(crate) fn file_len(&self) -> Result<u64> {
        let len = self.source.as_read_at().size();
        len.map_err(|e| Error::io("read the length of the image", e))
    }

    /// Decodes the `len` stored bytes at `at` into `out`, and returns how much came out.
    pub(crate) fn decode_at(
        &self,
        at: u64,
        len: usize,
        out: &mut [u8],
        what: &'static str,
    ) -> Result<usize> {
        self.with_worker(|worker| {
            let Worker { decoder, stored } = worker;
            self.with_bytes(at, len, what, stored, |stored| {
                self.decode_with(decoder, stored, out, at, what)
            })
        })
    }

    /// Decodes `stored`, which stands at byte `at`, into `out`, and returns how much came out.
    pub(crate) fn decode_with(
        &self,
        decoder: &mut Option<Decoder>,
        stored: &[u8],
        out: &mut [u8],
        at: u64,
        what: &'static str,
    ) -> Result<usize> {
        let decoder = match decoder {
            Some(decoder) => decoder,
            None => decoder.insert(Decoder::new(self.superblock.codec(), self.decoders)?),
        };
        decoder.decode(stored, out).map_err(|e| {
            let codec = self.superblock.codec().name();
            let fault = Corrupt::Decode {
                what,
                codec,
                reason: e.reason,
            };
            Error::corrupt(Location::Byte(at), fault)
        })
    }

    /// Lends `use_it` a decoder and a buffer of its own.
    pub(crate) fn with_worker<R>(&self, use_it: impl FnOnce(&mut Worker) -> R) -> R {
        let idle = self
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        let mut worker = idle.unwrap_or_else(|| Worker {
            decoder: None,
            stored: Vec::new(),
        });
        let result = use_it(&mut worker);
        self.idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(worker);
        result
    }
}
