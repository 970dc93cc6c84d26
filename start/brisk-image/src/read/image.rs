use std::path::Path;
use std::sync::Arc;

use brisk_io::{ByteSource, open_at_once};

use super::inode_reader::{Inode, InodeRef};
use super::limits::Limits;
use super::open_image::OpenImage;
use super::stored_image::{Source, StoredImage};
use crate::codec::{Codec, CodecOptions, Decoders};
use crate::error::{Allowed, Corrupt, Error, Location, Result};
#[cfg(feature = "verity")]
use crate::verity::VerifiedFile;

/// A checked view of a SquashFS 4.0 image.
///
/// Opening reads the superblock and the codec's options; everything else is read when it is asked
/// for. A clone is another handle on the same image and costs one reference count.
///
/// All bytes of an image are untrusted: whatever they hold, a call ends, with a result or an
/// [`Error`] that says where the fault is, and allocates no more than its [`Limits`] allow.
#[derive(Clone)]
pub struct Image {
    pub(crate) inner: Arc<OpenImage>,
}

/// How to open an [`Image`].
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    offset: Option<u64>,
    decoders: Decoders,
    limits: Limits,
}

impl OpenOptions {
    /// Finds the image by itself, and has the default [`Limits`].
    pub fn new() -> Self {
        Self::default()
    }

    /// The image starts at this byte of the file.
    ///
    /// Without it the image starts at the first byte, or behind the ELF program that carries it,
    /// as in an AppImage, or in a partition of a SIF file, or in the first MiB of a script.
    #[must_use]
    pub fn offset(mut self, bytes: u64) -> Self {
        self.offset = Some(bytes);
        self
    }

    /// Decodes with libraries in safe Rust only, even where this build has a faster one in C.
    ///
    /// Opening fails with [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if this build has no
    /// such library for the codec of the image. The [features](crate#features) of this crate bring them.
    #[must_use]
    pub fn rust_decoders(mut self, yes: bool) -> Self {
        self.decoders = match yes {
            true => Decoders::Rust,
            false => Decoders::Fastest,
        };
        self
    }

    /// Other limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }
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
            let file = open_at_once(path).map_err(|e| Error::io("open the image", e))?;
            let source = Source::Positioned(Box::new(file));
            let image = Self::from_parts(source, Some(path), options)?;
            image.inner.stored.read_tables_ahead();
            Ok(image)
        };
        open().map_err(|e| e.with_path(path))
    }

    /// Checks that the system gave every page of a mapped image that was read so far, as
    /// [`Mapping::check`](brisk_io::Mapping::check) does. Calls that copy check this themselves.
    /// For an image that is not mapped, there is nothing to check.
    ///
    /// # Errors
    ///
    /// `Io` if the system did not give a page.
    pub fn check_mapping(&self) -> Result<()> {
        let checked = self.inner.stored.check_mapping();
        checked.map_err(|e| self.name(e))
    }

    /// Bytes of what the image was opened in: of its file, with what is before and behind the image. Of a verified one, those
    /// that its hash tree covers.
    ///
    /// # Errors
    ///
    /// `Io` if that cannot be found out.
    pub fn file_len(&self) -> Result<u64> {
        self.inner.stored.file_len().map_err(|e| self.name(e))
    }

    /// Opens the image in `source`, such as a slice of memory or a window of a larger file.
    pub fn from_source(source: impl ByteSource + 'static, options: &OpenOptions) -> Result<Self> {
        Self::from_parts(Source::Positioned(Box::new(source)), None, options)
    }

    /// Opens the image in `file`. Each block is compared with the hash tree before anything decodes it, whenever it is
    /// read. The image ends where the tree ends: sections behind that do not exist.
    ///
    /// The feature `verity` brings this.
    ///
    /// # Errors
    ///
    /// As [`Image::open`]. `Corrupt` if a block differs from the tree, also later, in all calls that read.
    #[cfg(feature = "verity")]
    pub fn open_verified(file: Arc<VerifiedFile>, options: &OpenOptions) -> Result<Self> {
        let path = file.name().to_owned();
        let image = Self::from_parts(Source::Verified(file), Some(&path), options);
        image.map_err(|e| e.with_path(path))
    }

    /// The file that the image is in, if [`Image::open_verified`] opened it.
    #[cfg(feature = "verity")]
    pub fn verified(&self) -> Option<&Arc<VerifiedFile>> {
        self.inner.stored.verified()
    }

    pub(crate) fn from_parts(
        source: Source,
        path: Option<&Path>,
        options: &OpenOptions,
    ) -> Result<Self> {
        let stored = StoredImage::open(
            source,
            path,
            options.offset,
            options.limits,
            options.decoders,
        )?;
        Ok(Self {
            inner: Arc::new(OpenImage::new(stored)?),
        })
    }

    /// The root directory.
    pub fn root(&self) -> Result<Inode> {
        let root = self.inode(InodeRef(self.inner.stored.superblock.root_inode()))?;
        if !root.is_dir() {
            let inode = root.file_type().name();
            let fault = Corrupt::Root { inode };
            return Err(self.name(Error::corrupt(Location::Byte(32), fault)));
        }
        Ok(root)
    }

    /// Where the root directory stands, without reading it.
    pub fn root_reference(&self) -> InodeRef {
        InodeRef(self.inner.stored.superblock.root_inode())
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
            let at = Location::Byte(88);
            // Number 0 wraps to one that no table has.
            exports.read(
                &self.inner.metadata,
                u64::from(number).wrapping_sub(1),
                &mut word,
                at,
            )?;
            InodeRef::parse(u64::from_le_bytes(word), at)
        };
        let inode = self.inode(read().map_err(|e| self.name(e))?)?;
        if inode.number != number {
            let at = self.inner.inode_cursor(inode.reference)?.location();
            let allowed = Allowed::Only(number.into());
            let fault = Error::field(at, "inode number", inode.number, allowed);
            return Err(self.name(fault));
        }
        Ok(Some(inode))
    }

    /// The compressor that blocks are stored with, where they are not stored raw.
    pub fn codec(&self) -> Codec {
        self.inner.stored.superblock.codec()
    }

    /// The codec's options, if the image records any.
    pub fn codec_options(&self) -> Option<&CodecOptions> {
        self.inner.codec_options.as_ref()
    }

    /// Bytes in a data block: a power of two from 4 KiB to 1 MiB.
    pub fn block_size(&self) -> u32 {
        self.inner.stored.superblock.block_size()
    }

    /// Inodes in the image, each hard-linked one counted once.
    pub fn inode_count(&self) -> u32 {
        self.inner.stored.superblock.inode_count()
    }

    /// Bytes of the SquashFS image itself, without padding and sections.
    pub fn bytes_used(&self) -> u64 {
        self.inner.stored.superblock.bytes_used()
    }

    /// Where the tables start, from the start of the image: the first byte of the table of inodes. They go on up to
    /// [`bytes_used`](Self::bytes_used).
    pub fn tables_start(&self) -> u64 {
        self.inner.stored.superblock.inode_table()
    }

    /// Where in its file the image starts, in bytes.
    pub fn offset(&self) -> u64 {
        self.inner.stored.start
    }

    /// When the image was made, in seconds since 1970.
    pub fn mkfs_time(&self) -> u32 {
        self.inner.stored.superblock.mkfs_time()
    }

    /// True if inodes, listings and the contents of files are stored as they are.
    pub fn is_uncompressed(&self) -> bool {
        self.inner.stored.superblock.is_raw()
    }

    /// True if inodes can be found by number, as NFS needs.
    pub fn is_exportable(&self) -> bool {
        self.inner.exports.is_some()
    }

    /// True if the image has a table of extended attributes, even if no inode uses it.
    pub fn has_xattrs(&self) -> bool {
        self.inner.stored.superblock.xattr_table().is_some()
    }

    /// Keeps at most `bytes` of decoded data blocks from now on, instead of
    /// [`Limits::block_cache`]. All clones of the image share them.
    pub fn set_block_cache(&self, bytes: u64) {
        self.inner.blocks.set_cache(bytes);
    }

    /// The flag bits of the superblock.
    pub fn flags(&self) -> u16 {
        self.inner.stored.superblock.flags()
    }

    /// The file that the image was opened from.
    pub fn path(&self) -> Option<&Path> {
        self.inner.stored.path.as_deref()
    }

    /// The error about this image.
    pub(crate) fn name(&self, error: Error) -> Error {
        match &self.inner.stored.path {
            Some(path) => error.with_path(path),
            None => error,
        }
    }
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Image")
            .field("path", &self.inner.stored.path)
            .field("superblock", &self.inner.stored.superblock)
            .finish_non_exhaustive()
    }
}
