/// What reading an image may use, whatever the image says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes that one call may allocate: a block list, the attributes of an inode. 256 MiB.
    pub memory: u64,
    /// Bytes of decoded data blocks that are kept for reads that come back. 64 MiB.
    pub block_cache: u64,
    /// Bytes of decoded metadata that are kept. 16 MiB.
    pub metadata_cache: u64,
    /// Directories below each other. 4096; `PATH_MAX` bounds what Linux can name to 2048.
    pub depth: usize,
}

impl Limits {
    /// 256 MiB for one call, 64 MiB of decoded data, 16 MiB of decoded metadata, and a depth of 4096.
    pub const fn new() -> Self {
        Self {
            memory: 256 << 20,
            block_cache: 64 << 20,
            metadata_cache: 16 << 20,
            depth: 4096,
        }
    }

    /// Bytes that one call may allocate.
    #[must_use]
    pub const fn memory(mut self, bytes: u64) -> Self {
        self.memory = bytes;
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
