use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use brisk_io::{Mapping, ReadAt};
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

use super::inode_reader::{Inode, InodeRef};
use super::limits::Limits;
use super::locate;
use super::lookup_table::LookupTable;
use super::meta_reader::MetaBlock;
use crate::codec::{Codec, Decoder};
use crate::error::{Allowed, Corrupt, Error, Place, Result};
use crate::format::codec_options::{self, CodecOptions};
use crate::format::metadata::{HEADER, MetadataHeader};
use crate::format::section::SectionKind;
use crate::format::superblock::{Superblock, flag};
use crate::format::table::TableShape;
use crate::format::xattr;

/// A checked view of a SquashFS 4.0 image.
///
/// Opening reads the superblock and the codec's options; everything else is read when it is asked
/// for. A clone is another handle on the same image and costs one reference count.
///
/// All bytes of an image are untrusted: whatever they hold, a call ends, with a result or an
/// [`Error`] that names the place, and allocates no more than its [`Limits`] allow.
#[derive(Clone)]
pub struct Image {
    pub(crate) inner: Arc<Inner>,
}

/// How to open an [`Image`].
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    offset: Option<u64>,
    mapped: bool,
    limits: Limits,
}

impl OpenOptions {
    /// Finds the image by itself, reads by `pread`, and has the default [`Limits`].
    pub fn new() -> Self {
        Self::default()
    }

    /// The image starts at this byte of the file.
    ///
    /// Without it the image starts at the first byte, or behind the ELF program that carries it,
    /// as in an AppImage.
    #[must_use]
    pub fn offset(mut self, bytes: u64) -> Self {
        self.offset = Some(bytes);
        self
    }

    /// Maps the file, so that files stored raw can be borrowed
    /// ([`FileReader::as_slice`](crate::FileReader::as_slice)) and reads cost no system call.
    ///
    /// The file must keep its length and bytes as long as the image is open: see [`Mapping`].
    #[must_use]
    pub fn mapped(mut self, yes: bool) -> Self {
        self.mapped = yes;
        self
    }

    /// Other limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }
}

enum Source {
    Positioned(Box<dyn ReadAt>),
    Mapped(Mapping),
}

impl Source {
    fn as_read_at(&self) -> &dyn ReadAt {
        match self {
            Self::Positioned(source) => source.as_ref(),
            Self::Mapped(mapping) => mapping,
        }
    }
}

/// The key of a decoded data block: where it is stored, and the word that says how.
pub(crate) type BlockKey = (u64, u32);

/// What a cached block costs beside its bytes: the key, the counts, two allocations, and the
/// cache's own books. Without it, an image of blocks of a few bytes each, or of none, which are
/// never evicted, would take many times the memory of the limit.
const BOOKS: u64 = 192;

/// The part of a cache that what was asked for again can take from what is new. Of the 0.97 that is usual
/// a small cache has less than one block left, so that a new block is gone with the next one.
const HOT: f64 = 0.5;

/// Bytes of the tables of an image, up to which they are fetched as it is opened.
const TABLES_AHEAD: u64 = 1 << 20;

#[derive(Clone)]
pub(crate) struct Bytes;

impl Weighter<u64, Arc<MetaBlock>> for Bytes {
    fn weight(&self, _: &u64, block: &Arc<MetaBlock>) -> u64 {
        BOOKS + block.bytes.len() as u64
    }
}

impl Weighter<BlockKey, Arc<Vec<u8>>> for Bytes {
    fn weight(&self, _: &BlockKey, block: &Arc<Vec<u8>>) -> u64 {
        BOOKS + block.as_slice().len() as u64
    }
}

pub(crate) struct Inner {
    source: Source,
    /// The byte of the source at which the image starts.
    start: u64,
    pub(crate) path: Option<PathBuf>,
    pub(crate) superblock: Superblock,
    codec_options: Option<CodecOptions>,
    pub(crate) limits: Limits,
    pub(crate) metadata: Cache<u64, Arc<MetaBlock>, Bytes>,
    pub(crate) blocks: Cache<BlockKey, Arc<Vec<u8>>, Bytes>,
    /// Workers without work: as many as there were threads reading at once.
    idle: Mutex<Vec<Worker>>,
    ids: OnceLock<Box<[u32]>>,
    pub(crate) fragments: LookupTable,
    exports: Option<LookupTable>,
    pub(crate) xattrs: OnceLock<Option<XattrTable>>,
}

/// What decoding needs, kept from one block to the next.
pub(crate) struct Worker {
    pub(crate) decoder: Decoder,
    /// Stored bytes, where they cannot be borrowed from a mapping.
    pub(crate) stored: Vec<u8>,
}

/// Where attributes are stored.
pub(crate) struct XattrTable {
    /// Where the keys and values start.
    pub(crate) pairs: u64,
    /// Where they end: the list of the sets' places.
    pub(crate) end: u64,
    pub(crate) sets: LookupTable,
}

impl Image {
    /// Opens the image in the file at `path`.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such file, `Io` if it cannot be read, `Corrupt` if it holds no image
    /// or a damaged one, and `Unsupported` for SquashFS before 4.0 and for compressors that no kernel
    /// reads.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, &OpenOptions::new())
    }

    /// Opens the image in the file at `path` as `options` say.
    pub fn open_with(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self> {
        let path = path.as_ref();
        let open = || -> Result<Self> {
            let file = File::open(path).map_err(|e| Error::io("open the image", e))?;
            let source = if options.mapped {
                Source::Mapped(Mapping::shared(&file).map_err(|e| Error::io("map the image", e))?)
            } else {
                Source::Positioned(Box::new(file))
            };
            let image = Self::from_parts(source, Some(path.to_owned()), options)?;
            image.inner.read_tables_ahead();
            Ok(image)
        };
        open().map_err(|e| e.with_path(path))
    }

    /// Opens the image in `source`, such as a slice of memory or a window of a larger file.
    pub fn from_source(source: impl ReadAt + 'static, options: &OpenOptions) -> Result<Self> {
        Self::from_parts(Source::Positioned(Box::new(source)), None, options)
    }

    fn from_parts(source: Source, path: Option<PathBuf>, options: &OpenOptions) -> Result<Self> {
        let bytes = source.as_read_at();
        let start = match options.offset {
            Some(start) => start,
            None => locate::image_start(bytes)?,
        };
        let source_len = bytes
            .len()
            .map_err(|e| Error::io("read the length of the image", e))?;
        let image_len = source_len.saturating_sub(start);
        if image_len < Superblock::LEN as u64 {
            let (what, need) = ("the superblock", Superblock::LEN as u64);
            let fault = Corrupt::Truncated {
                what,
                need,
                have: image_len,
            };
            return Err(Error::corrupt(Place::Byte(0), fault));
        }
        let mut header = [0; Superblock::LEN];
        bytes
            .read_exact_at(start, &mut header)
            .map_err(|e| Error::io("read the superblock", e))?;
        let superblock = Superblock::parse(&header, image_len)?;
        let limits = options.limits;
        let mut inner = Inner {
            source,
            start,
            path,
            superblock,
            codec_options: None,
            limits,
            metadata: cache(limits.metadata_cache, 8192),
            blocks: cache(limits.block_cache, superblock.block_size().into()),
            idle: Mutex::default(),
            ids: OnceLock::new(),
            fragments: LookupTable::new(
                "the fragment table",
                "fragment number",
                // Invariant 6 of the superblock: without a table there are no fragments.
                superblock.fragment_table().unwrap_or(0),
                TableShape {
                    count: superblock.fragment_count().into(),
                    entry_len: 16,
                },
            ),
            exports: superblock.export_table().map(|list| {
                let shape = TableShape {
                    count: superblock.inode_count().into(),
                    entry_len: 8,
                };
                LookupTable::new("the export table", "inode number less one", list, shape)
            }),
            xattrs: OnceLock::new(),
        };
        inner.codec_options = inner.read_codec_options()?;
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// The root directory.
    pub fn root(&self) -> Result<Inode> {
        let root = self.inode(InodeRef(self.inner.superblock.root_inode()))?;
        if !root.is_dir() {
            let inode = root.file_type().name();
            let fault = Corrupt::Root { inode };
            return Err(self.name(Error::corrupt(Place::Byte(32), fault)));
        }
        Ok(root)
    }

    /// Where the root directory stands, without reading it.
    pub fn root_reference(&self) -> InodeRef {
        InodeRef(self.inner.superblock.root_inode())
    }

    /// The inode that `reference` points to.
    pub fn inode(&self, reference: InodeRef) -> Result<Inode> {
        self.inner.read_inode(reference).map_err(|e| self.name(e))
    }

    /// The inode with this number, from 1; none if the image has no export table.
    pub fn inode_by_number(&self, number: u32) -> Result<Option<Inode>> {
        let Some(exports) = &self.inner.exports else {
            return Ok(None);
        };
        let read = || {
            let mut word = [0; 8];
            let at = Place::Byte(88);
            // Number 0 wraps to one that no table has.
            exports.read(
                &self.inner,
                u64::from(number).wrapping_sub(1),
                &mut word,
                at,
            )?;
            InodeRef::parse(u64::from_le_bytes(word), at)
        };
        let inode = self.inode(read().map_err(|e| self.name(e))?)?;
        if inode.number != number {
            let at = self.inner.inode_cursor(inode.reference)?.place();
            let allowed = Allowed::Only(number.into());
            let fault = Error::field(at, "inode number", inode.number, allowed);
            return Err(self.name(fault));
        }
        Ok(Some(inode))
    }

    /// The compressor that blocks are stored with, where they are not stored raw.
    pub fn codec(&self) -> Codec {
        self.inner.superblock.codec()
    }

    /// The codec's options, if the image records any.
    pub fn codec_options(&self) -> Option<&CodecOptions> {
        self.inner.codec_options.as_ref()
    }

    /// Bytes in a data block: a power of two from 4 KiB to 1 MiB.
    pub fn block_size(&self) -> u32 {
        self.inner.superblock.block_size()
    }

    /// Inodes in the image, each hard-linked one counted once.
    pub fn inode_count(&self) -> u32 {
        self.inner.superblock.inode_count()
    }

    /// Blocks that hold the contents of several small files.
    pub fn fragment_count(&self) -> u32 {
        self.inner.superblock.fragment_count()
    }

    /// Bytes of the SquashFS image itself, without padding and sections.
    pub fn bytes_used(&self) -> u64 {
        self.inner.superblock.bytes_used()
    }

    /// Where in its file the image starts, in bytes.
    pub fn offset(&self) -> u64 {
        self.inner.start
    }

    /// When the image was made, in seconds since 1970.
    pub fn mkfs_time(&self) -> u32 {
        self.inner.superblock.mkfs_time()
    }

    /// True if blocks, metadata and attributes are all stored as they are.
    pub fn is_uncompressed(&self) -> bool {
        let raw = flag::RAW_INODES | flag::RAW_DATA | flag::RAW_FRAGMENTS;
        self.inner.superblock.flags() & raw == raw
    }

    /// True if inodes can be found by number, as NFS needs.
    pub fn is_exportable(&self) -> bool {
        self.inner.exports.is_some()
    }

    /// True if the image has a table of extended attributes, even if no inode uses it.
    pub fn has_xattrs(&self) -> bool {
        self.inner.superblock.xattr_table().is_some()
    }

    /// Keeps at most `bytes` of decoded data blocks from now on, in the place of
    /// [`Limits::block_cache`]. All clones of the image share them.
    pub fn set_block_cache(&self, bytes: u64) {
        self.inner.blocks.set_capacity(bytes);
    }

    /// The flag bits of the superblock.
    pub fn flags(&self) -> u16 {
        self.inner.superblock.flags()
    }

    /// The file that the image was opened from.
    pub fn path(&self) -> Option<&Path> {
        self.inner.path.as_deref()
    }

    /// The directory that the tree belongs at, as an absolute path, if the image records one.
    pub fn recorded_place(&self) -> Result<Option<PathBuf>> {
        self.inner.recorded_place().map_err(|e| self.name(e))
    }

    /// The error about this image.
    pub(crate) fn name(&self, error: Error) -> Error {
        match &self.inner.path {
            Some(path) => error.with_path(path),
            None => error,
        }
    }
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Image")
            .field("path", &self.inner.path)
            .field("superblock", &self.inner.superblock)
            .finish_non_exhaustive()
    }
}

fn cache<K, V>(bytes: u64, item: u64) -> Cache<K, V, Bytes>
where
    K: std::hash::Hash + Eq,
    V: Clone,
    Bytes: Weighter<K, V>,
{
    let items = usize::try_from(bytes / item).unwrap_or(usize::MAX).max(1);
    let options = OptionsBuilder::new()
        .estimated_items_capacity(items)
        .weight_capacity(bytes)
        .hot_allocation(HOT)
        .build();
    match options {
        Ok(options) => {
            let (hashes, life) = (DefaultHashBuilder::default(), DefaultLifecycle::default());
            Cache::with_options(options, Bytes, hashes, life)
        }
        // Not with both capacities given.
        Err(_) => Cache::with_weighter(items, bytes, Bytes),
    }
}

impl Inner {
    /// Has the tables fetched while nobody waits for them: they are small, and read in pieces all over
    /// the place.
    fn read_tables_ahead(&self) {
        let tables = self.superblock.inode_table()..self.superblock.bytes_used();
        if let Source::Positioned(source) = &self.source
            && tables.end - tables.start <= TABLES_AHEAD
        {
            source.will_read(
                self.start.saturating_add(tables.start)..self.start.saturating_add(tables.end),
            );
        }
    }

    fn recorded_place(&self) -> Result<Option<PathBuf>> {
        use std::os::unix::ffi::OsStringExt;
        let Some((section, bytes)) = self.section(SectionKind::PLACE)? else {
            return Ok(None);
        };
        if bytes.first() != Some(&b'/') || bytes.contains(&0) {
            let (name, why) = (bytes, "is not an absolute path");
            let fault = Corrupt::Name { name, why };
            return Err(Error::corrupt(Place::Byte(section.start), fault));
        }
        Ok(Some(OsString::from_vec(bytes).into()))
    }

    fn read_codec_options(&self) -> Result<Option<CodecOptions>> {
        if !self.superblock.has(flag::CODEC_OPTIONS) {
            return Ok(None);
        }
        let at = Superblock::LEN as u64;
        let mut scratch = Vec::new();
        let what = "the codec's options";
        let header = self.stored(at, HEADER, what, &mut scratch)?;
        let header = MetadataHeader::parse([header[0], header[1]], at)?;
        if !header.is_raw() {
            let word = u16::from_le_bytes(header.encode());
            let allowed = Allowed::Text("with bit 15, as they are never compressed");
            let field = "header of the codec's options";
            return Err(Error::field(Place::Byte(at), field, word, allowed));
        }
        let mut scratch = Vec::new();
        let bytes = self.stored(at + HEADER as u64, header.len(), what, &mut scratch)?;
        let place = Place::Byte(at + HEADER as u64);
        codec_options::parse(self.superblock.codec(), bytes, place).map(Some)
    }

    /// `len` bytes of the image from `at`, borrowed from the mapping or read into `scratch`.
    pub(crate) fn stored<'a>(
        &'a self,
        at: u64,
        len: usize,
        what: &'static str,
        scratch: &'a mut Vec<u8>,
    ) -> Result<&'a [u8]> {
        self.check_inside(at, len as u64, what)?;
        if let Some(bytes) = self.mapped(at, len) {
            return Ok(bytes);
        }
        // Growing fills with zeros, so a buffer that is used again is only filled once.
        if scratch.len() < len {
            scratch.resize(len, 0);
        }
        let buf = &mut scratch[..len];
        self.read_outside(at, buf, "read the image")?;
        Ok(buf)
    }

    /// Fills `buf` from byte `at` of the image, which has them.
    pub(crate) fn stored_into(&self, at: u64, buf: &mut [u8], what: &'static str) -> Result<()> {
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
            return Err(Error::corrupt(Place::Byte(at), fault));
        }
        Ok(())
    }

    /// `len` bytes from `at` as the mapping has them; none if nothing is mapped.
    pub(crate) fn mapped(&self, at: u64, len: usize) -> Option<&[u8]> {
        let Source::Mapped(mapping) = &self.source else {
            return None;
        };
        let start = usize::try_from(self.start.checked_add(at)?).ok()?;
        mapping.as_slice().get(start..start.checked_add(len)?)
    }

    /// Fills `buf` from byte `at`, which may lie behind the image, in a section.
    pub(crate) fn read_outside(&self, at: u64, buf: &mut [u8], doing: &'static str) -> Result<()> {
        let start = self.start.saturating_add(at);
        self.source
            .as_read_at()
            .read_exact_at(start, buf)
            .map_err(|e| Error::io(doing, e))
    }

    /// As [`ReadAt::read_at`], from byte `at` of the image, which may lie behind it, in a section.
    pub(crate) fn read_source_at(&self, at: u64, buf: &mut [u8]) -> std::io::Result<usize> {
        let start = self.start.saturating_add(at);
        self.source.as_read_at().read_at(start, buf)
    }

    /// Bytes from the start of the image to the end of its source.
    pub(crate) fn source_len(&self) -> Result<u64> {
        let len = self
            .source
            .as_read_at()
            .len()
            .map_err(|e| Error::io("read the length of the image", e))?;
        Ok(len.saturating_sub(self.start))
    }

    /// Decodes the `len` stored bytes at `at` into `out`, and returns how much came out.
    pub(crate) fn decode_stored(
        &self,
        at: u64,
        len: usize,
        out: &mut [u8],
        what: &'static str,
    ) -> Result<usize> {
        self.with_worker(|worker| {
            let stored = self.stored(at, len, what, &mut worker.stored)?;
            self.decode_with(&mut worker.decoder, stored, out, at, what)
        })
    }

    /// Decodes `stored`, which stands at byte `at`, into `out`, and returns how much came out.
    pub(crate) fn decode_with(
        &self,
        decoder: &mut Decoder,
        stored: &[u8],
        out: &mut [u8],
        at: u64,
        what: &'static str,
    ) -> Result<usize> {
        decoder.decode(stored, out).map_err(|e| {
            let codec = self.superblock.codec().name();
            let fault = Corrupt::Decode {
                what,
                codec,
                reason: e.reason,
            };
            Error::corrupt(Place::Byte(at), fault)
        })
    }

    /// Lends `use_it` a decoder and a buffer that nobody else uses.
    pub(crate) fn with_worker<R>(&self, use_it: impl FnOnce(&mut Worker) -> R) -> R {
        let idle = self
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        let mut worker = idle.unwrap_or_else(|| Worker {
            decoder: Decoder::new(self.superblock.codec()),
            stored: Vec::new(),
        });
        let result = use_it(&mut worker);
        self.idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(worker);
        result
    }

    /// The user or group that entry `index` of the id table says.
    pub(crate) fn id(&self, index: u16, from: Place) -> Result<u32> {
        let ids = match self.ids.get() {
            Some(ids) => ids,
            None => {
                let ids = self.read_ids()?;
                self.ids.get_or_init(|| ids)
            }
        };
        ids.get(usize::from(index)).copied().ok_or_else(|| {
            let allowed = crate::error::Allowed::AtMost((ids.len() as u64).saturating_sub(1));
            Error::field(from, "user or group index", index, allowed)
        })
    }

    fn read_ids(&self) -> Result<Box<[u32]>> {
        let count = u64::from(self.superblock.id_count());
        let shape = TableShape {
            count,
            entry_len: 4,
        };
        let table = LookupTable::new(
            "the id table",
            "id index",
            self.superblock.id_table(),
            shape,
        );
        (0..count)
            .map(|i| {
                let mut id = [0; 4];
                table.read(self, i, &mut id, Place::Byte(26))?;
                Ok(u32::from_le_bytes(id))
            })
            .collect()
    }

    /// Where attributes are stored; none if the image has none.
    pub(crate) fn xattr_table(&self) -> Result<Option<&XattrTable>> {
        if self.xattrs.get().is_none() {
            let table = match self.superblock.xattr_table() {
                Some(at) => Some(self.read_xattr_table(at)?),
                None => None,
            };
            // Another thread may have been quicker, with the same result.
            self.xattrs.get_or_init(|| table);
        }
        Ok(self.xattrs.get().and_then(Option::as_ref))
    }

    fn read_xattr_table(&self, at: u64) -> Result<XattrTable> {
        let mut bytes = [0; size_of::<xattr::TableHeader>()];
        self.stored_into(at, &mut bytes, "the xattr table")?;
        let header: xattr::TableHeader = zerocopy::transmute!(bytes);
        let pairs = header.pairs_start.get();
        if !(96..at).contains(&pairs) {
            let allowed = crate::error::Allowed::Range(96, at.saturating_sub(1));
            return Err(Error::field(
                Place::Byte(at),
                "start of the xattrs",
                pairs,
                allowed,
            ));
        }
        let shape = TableShape {
            count: header.count.get().into(),
            entry_len: 16,
        };
        let list = at + size_of::<xattr::TableHeader>() as u64;
        Ok(XattrTable {
            pairs,
            end: at,
            sets: LookupTable::new("the xattr table", "xattr index", list, shape),
        })
    }
}
