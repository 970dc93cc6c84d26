/// What reading an image may use, whatever the image says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    /// For a profile: a text of 32 MiB, as much as is ever written.
    pub fn of_profiles() -> Self {
        Self {
            memory: 1 << 30,
            ..Self::default()
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: 256 << 20,
            block_cache: 64 << 20,
            metadata_cache: 16 << 20,
            depth: 4096,
        }
    }
}
