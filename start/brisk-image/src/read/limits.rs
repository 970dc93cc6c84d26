/// Names that one walk may give, beside [`NAMES_PER_BYTE`].
const NAMES: u64 = 100_000;

/// Names that one walk may give for each byte of an image. Of the densest trees, an image of
/// nothing but empty files takes 4 bytes for each name, and one of nothing but hard links 0.9.
const NAMES_PER_BYTE: u64 = 2;

/// Bytes of paths, and of targets of symbolic links, that one walk may give, for each name.
const PATH_BYTES_PER_NAME: u64 = 256;

/// Bytes that the files of an image may have, beside [`CONTENTS_PER_BYTE`].
const CONTENTS: u64 = 1 << 30;

/// Bytes that the files of an image may have for each byte of it. Programs have 2 to 5, and logs
/// less than 100.
const CONTENTS_PER_BYTE: u64 = 1000;

/// What reading an image may use, whatever the image says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes that one call may allocate: the attributes of an inode, a table. 256 MiB.
    pub memory: u64,
    /// Bytes of the list of one file's blocks, which has 5 for each. 40 MiB, so that a file has 1 TiB in blocks of 128 KiB,
    /// or 32 GiB in the smallest ones. No more than `memory`.
    pub block_list: u64,
    /// Bytes of decoded data blocks that are kept for reads that come back. 64 MiB.
    pub block_cache: u64,
    /// Bytes of decoded metadata that are kept. 16 MiB.
    pub metadata_cache: u64,
    /// Directories below each other. 4096; `PATH_MAX` bounds what Linux can name to 2048.
    pub depth: usize,
    /// Names that one walk of an image gives. None for 100,000 and two for each byte of the image.
    /// The paths that a walk gives may have 256 bytes for each of these names, together with the
    /// targets of symbolic links.
    pub names: Option<u64>,
    /// Bytes that the files of an image have, where all are read: to be extracted, packed, compared
    /// or checked. None for 1 GiB and 1000 for each byte of the image. A block of a hole counts as
    /// 128 bytes, and a byte of an extended attribute as 32.
    pub contents: Option<u64>,
}

impl Limits {
    /// 256 MiB for one call, 40 MiB for a list of blocks, 64 MiB of decoded data, 16 MiB of decoded
    /// metadata, a depth of 4096, and names and contents in proportion to the image.
    pub const fn new() -> Self {
        Self {
            memory: 256 << 20,
            block_list: 40 << 20,
            block_cache: 64 << 20,
            metadata_cache: 16 << 20,
            depth: 4096,
            names: None,
            contents: None,
        }
    }

    /// Bytes that one call may allocate.
    #[must_use]
    pub const fn memory(mut self, bytes: u64) -> Self {
        self.memory = bytes;
        self
    }

    /// Bytes of the list of one file's blocks.
    #[must_use]
    pub const fn block_list(mut self, bytes: u64) -> Self {
        self.block_list = bytes;
        self
    }

    /// Bytes of decoded data blocks that are kept.
    #[must_use]
    pub const fn block_cache(mut self, bytes: u64) -> Self {
        self.block_cache = bytes;
        self
    }

    /// Bytes of decoded metadata that are kept.
    #[must_use]
    pub const fn metadata_cache(mut self, bytes: u64) -> Self {
        self.metadata_cache = bytes;
        self
    }

    /// Directories below each other.
    #[must_use]
    pub const fn depth(mut self, directories: usize) -> Self {
        self.depth = directories;
        self
    }

    /// Names that one walk of an image gives, whatever the length of the image.
    #[must_use]
    pub const fn names(mut self, names: u64) -> Self {
        self.names = Some(names);
        self
    }

    /// Bytes that the files of an image have, whatever the length of the image.
    #[must_use]
    pub const fn contents(mut self, bytes: u64) -> Self {
        self.contents = Some(bytes);
        self
    }

    /// Names that one walk of an image of `image_len` bytes gives.
    pub(crate) fn names_of(&self, image_len: u64) -> u64 {
        let per_byte = image_len.saturating_mul(NAMES_PER_BYTE);
        self.names.unwrap_or(NAMES.saturating_add(per_byte))
    }

    /// Bytes of all paths, and of targets of symbolic links, that one walk gives.
    pub(crate) fn path_bytes_of(&self, image_len: u64) -> u64 {
        self.names_of(image_len).saturating_mul(PATH_BYTES_PER_NAME)
    }

    /// Bytes that the files of an image of `image_len` bytes have.
    pub(crate) fn contents_of(&self, image_len: u64) -> u64 {
        let per_byte = image_len.saturating_mul(CONTENTS_PER_BYTE);
        self.contents.unwrap_or(CONTENTS.saturating_add(per_byte))
    }

    /// For a profile: a text of 32 MiB, as much as is ever written.
    pub fn of_profiles() -> Self {
        Self::new().memory(1 << 30)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::new()
    }
}
