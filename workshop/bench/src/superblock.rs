//! The fields by which two images of one tree are compared.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use brisk_io::ByteSource;

/// Fields of a SquashFS 4.0 superblock. They are read here and not by brisk, because the bench trusts neither
/// tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Superblock {
    /// Bytes of a data block.
    pub block_size: u32,
    /// 1 gzip, 2 lzma, 3 lzo, 4 xz, 5 lz4, 6 zstd.
    pub compressor: u16,
    /// Bytes of the image without the padding at its end.
    pub bytes_used: u64,
    /// Bytes of the file that holds it.
    pub file_size: u64,
}

impl Superblock {
    const LEN: usize = 96;
    const MAGIC: u32 = 0x7371_7368;

    /// Reads the superblock of the image at `path`.
    pub fn read(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        let mut bytes = [0; Self::LEN];
        file.read_exact_bytes_at(0, &mut bytes)
            .with_context(|| format!("cannot read the superblock of {}", path.display()))?;
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let u32_at = |at: usize| u32::from(u16_at(at)) | u32::from(u16_at(at + 2)) << 16;
        let magic = u32_at(0);
        ensure!(
            magic == Self::MAGIC,
            "{} is not an image: its magic number is {magic:#010x}",
            path.display()
        );
        Ok(Self {
            block_size: u32_at(12),
            compressor: u16_at(20),
            bytes_used: u64::from(u32_at(40)) | u64::from(u32_at(44)) << 32,
            file_size: file.metadata()?.len(),
        })
    }
}
