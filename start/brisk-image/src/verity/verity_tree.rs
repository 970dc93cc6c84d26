use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::path::Path;

use brisk_io::ByteSource;
use serde::Serialize;
use sha2::{Digest, Sha256};
use zerocopy::IntoBytes;

use super::BLOCK;
use super::levels::{DIGESTS, Level, Levels};
use super::root_hash::{RootHash, SaltedHash};
use crate::error::{Error, Result};
use crate::format::section::{self, SectionKind};
use crate::format::verity_superblock::{LEN, MOST_BLOCKS, SUPERBLOCK_IN_SECTION, VeritySuperblock};
use crate::ordered;
use crate::output::{Output, OutputFile};
use crate::read::image::{Image, OpenOptions};
use crate::work::Work;
use crate::write::stream_output::StreamOutput;

/// Hash blocks that are computed at the same time, for each thread.
const WINDOW: usize = 8;

/// A dm-verity hash tree, in memory: about 1/128 of the data.
///
/// Salt and UUID come from the data, so the same data gives the same tree, at any number of threads.
pub struct VerityTree {
    superblock: [u8; LEN],
    /// All hash blocks, the top first.
    hashes: Vec<u8>,
    root: RootHash,
    data_blocks: u64,
}

/// What is known of a written tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct VeritySummary {
    /// Root hash: 64 hexadecimal digits.
    pub root_hash: String,
    /// Size of what the tree covers, from the start of the file.
    pub data_bytes: u64,
    /// Size of the tree, with its superblock.
    #[serde(rename = "hash_tree_bytes")]
    pub tree_bytes: u64,
    /// The byte of its file at which the superblock starts: the option `--hash-offset` of `veritysetup`.
    pub hash_offset: u64,
}

impl VerityTree {
    /// Builds the tree of the first `len` bytes of `data`, which must be whole blocks of 4096 bytes.
    ///
    /// # Errors
    ///
    /// `Input` if `len` is zero, no multiple of 4096 or more than 16 TiB. `Io` if the data cannot be read, and
    /// `Cancelled`.
    pub fn build(data: &dyn ByteSource, len: u64, work: &Work) -> Result<Self> {
        let data_blocks = len / BLOCK;
        if !len.is_multiple_of(BLOCK) || !(1..=MOST_BLOCKS).contains(&data_blocks) {
            return Err(Error::input(format!(
                "the verity tree would cover {len} bytes, allowed is a multiple of {BLOCK} from {BLOCK} to {}",
                MOST_BLOCKS * BLOCK
            )));
        }
        let mut first = [0; BLOCK as usize];
        data.read_exact_bytes_at(0, &mut first)
            .map_err(|e| Error::io("read what the verity tree is to cover", e))?;
        let salt = Sha256::new()
            .chain_update(b"brisk verity salt 1\n")
            .chain_update(len.to_le_bytes())
            .chain_update(first)
            .finalize();
        Self::with_salt(data, data_blocks, &salt, work)
    }

    fn with_salt(
        data: &dyn ByteSource,
        data_blocks: u64,
        salt: &[u8],
        work: &Work,
    ) -> Result<Self> {
        let levels = Levels::of(data_blocks);
        let salted = SaltedHash::new(salt);
        let too_large = || Error::limit("the verity tree", levels.blocks(), usize::MAX as u64);
        let all = usize::try_from(levels.blocks() * BLOCK).map_err(|_| too_large())?;
        let mut hashes = vec![0; all];
        let root = match levels.get(0) {
            None => {
                let mut block = [0; BLOCK as usize];
                data.read_exact_bytes_at(0, &mut block)
                    .map_err(|e| Error::io("read what the verity tree is to cover", e))?;
                salted.of(&block)
            }
            Some(level) => {
                digest_data(
                    data,
                    data_blocks,
                    &salted,
                    bytes_of(&mut hashes, level),
                    work,
                )?;
                digest_levels(&levels, &mut hashes, &salted);
                // The top is the first block.
                salted.of(&hashes[..BLOCK as usize])
            }
        };
        let superblock = VeritySuperblock {
            data_blocks,
            salt: salt.to_vec(),
        };
        let wire = superblock.to_wire(uuid(&root));
        let wire = wire.ok_or_else(|| Error::limit("the salt", salt.len() as u64, 256))?;
        let mut bytes = [0; LEN];
        bytes.copy_from_slice(wire.as_bytes());
        Ok(Self {
            superblock: bytes,
            hashes,
            root: RootHash(root),
            data_blocks,
        })
    }

    /// The root hash.
    pub fn root_hash(&self) -> RootHash {
        self.root
    }

    /// Writes the tree as a file of its own: the superblock first, and the hash blocks from byte 4096.
    ///
    /// # Errors
    ///
    /// `Io`. The file appears whole or not at all.
    pub fn write(&self, path: &Path) -> Result<VeritySummary> {
        let mut out = OutputFile::create(path)?;
        out.append(&self.superblock)?;
        out.pad_to(BLOCK)?;
        out.append(&self.hashes)?;
        let tree_bytes = out.len();
        out.finish()?;
        Ok(self.summary(tree_bytes, 0))
    }

    /// Appends the tree as a section, behind the data that it covers.
    pub(crate) fn append_section(&self, out: &mut dyn Output) -> Result<VeritySummary> {
        let before = SUPERBLOCK_IN_SECTION as usize - section::HEADER;
        let behind = BLOCK as usize - SUPERBLOCK_IN_SECTION as usize - LEN;
        let mut front = vec![0; before];
        front.extend_from_slice(&self.superblock);
        front.resize(front.len() + behind, 0);
        let header = section::Wire::of_parts(SectionKind::VERITY, &[&front, &self.hashes]);
        out.append(header.as_bytes())?;
        out.append(&front)?;
        out.append(&self.hashes)?;
        let tree_bytes = front.len() - before + self.hashes.len();
        let superblock = self.data_blocks * BLOCK + SUPERBLOCK_IN_SECTION;
        Ok(self.summary(tree_bytes as u64, superblock))
    }

    fn summary(&self, tree_bytes: u64, hash_offset: u64) -> VeritySummary {
        VeritySummary {
            root_hash: self.root.to_string(),
            data_bytes: self.data_blocks * BLOCK,
            tree_bytes,
            hash_offset,
        }
    }
}

/// Puts a tree behind the image in `file`, as [`ImageWriter::verity`](crate::ImageWriter::verity) does. The image starts at
/// byte `offset`, or where [`Image::open`] finds it. The tree covers the whole file before it.
///
/// The tree starts at the first multiple of 4096 behind the image and its sections: zeros there become more or fewer.
///
/// # Errors
///
/// `Corrupt` if the file has no image. `Input` if no tree fits: the image does not start at a multiple of 4096, has a tree
/// already, or has other bytes than zeros behind it. `Io` and `Cancelled`, after which the file may have a part of a tree.
pub fn append_tree(file: &File, offset: Option<u64>, work: &Work) -> Result<VeritySummary> {
    append_tree_at(file, place_of_tree(file, offset)?, work)
}

/// Puts a tree of the first `end` bytes of the file behind them, in place of what is there. Zeros are added if the file is shorter.
///
/// # Errors
///
/// `Input` if `end` is no multiple of 4096. `Io` and `Cancelled`, after which the file may have a part of a tree.
pub fn append_tree_at(file: &File, end: u64, work: &Work) -> Result<VeritySummary> {
    let io = |e| Error::io("append the verity tree", e);
    file.set_len(end).map_err(io)?;
    let tree = VerityTree::build(file, end, work)?;
    let mut stream = file;
    stream.seek(SeekFrom::Start(end)).map_err(io)?;
    let mut out = StreamOutput::new(stream)?;
    let summary = tree.append_section(&mut out)?;
    out.finish()?;
    Ok(summary)
}

/// Where in `file` a tree can start. All that the file has from there on is zeros.
fn place_of_tree(file: &File, offset: Option<u64>) -> Result<u64> {
    let io = |e: io::Error| Error::io("read what the verity tree is to cover", e);
    let mut options = OpenOptions::new();
    if let Some(offset) = offset {
        options = options.offset(offset);
    }
    let image = Image::from_source(file.try_clone().map_err(io)?, &options)?;
    if image.verity_start()?.is_some() {
        return Err(Error::input("the image has a verity tree already"));
    }
    let start = image.offset();
    let next = image.inner.stored.next_section()?;
    let end = next.and_then(|next| start.checked_add(next));
    let end = end.filter(|end| end.is_multiple_of(BLOCK));
    let end = end.ok_or_else(|| {
        Error::input(format!(
            "the image starts at byte {start} of its file, where it can have no verity tree behind it; allowed is a \
             multiple of {BLOCK}"
        ))
    })?;
    let len = ByteSource::size(file).map_err(io)?;
    let mut buf = vec![0; 1 << 16];
    let mut at = end;
    while at < len {
        let left = usize::try_from(len - at).unwrap_or(usize::MAX);
        let part = &mut buf[..left.min(1 << 16)];
        file.read_exact_bytes_at(at, part).map_err(io)?;
        if let Some(other) = part.iter().position(|byte| *byte != 0) {
            return Err(Error::input(format!(
                "byte {} of the file is behind the image and not zero, so it belongs to something else, and no verity tree can be put there",
                at + other as u64
            )));
        }
        at += part.len() as u64;
    }
    Ok(end)
}

/// The bytes of one level.
fn bytes_of(hashes: &mut [u8], level: Level) -> &mut [u8] {
    let place = |block: u64| (block * BLOCK) as usize;
    &mut hashes[place(level.first)..place(level.first + level.blocks)]
}

/// Fills `out`, the first level, with the digests of the data.
fn digest_data(
    data: &dyn ByteSource,
    data_blocks: u64,
    salted: &SaltedHash,
    out: &mut [u8],
    work: &Work,
) -> Result<()> {
    // A job is what one hash block is about.
    let jobs = (0..data_blocks.div_ceil(DIGESTS)).map(|job| {
        let first = job * DIGESTS;
        first..data_blocks.min(first + DIGESTS)
    });
    let threads = work.thread_count();
    let mut hash_blocks = out.chunks_exact_mut(BLOCK as usize);
    ordered::for_each(
        threads,
        threads * WINDOW,
        jobs,
        || vec![0; (DIGESTS * BLOCK) as usize],
        |buffer, job| {
            let blocks = &mut buffer[..((job.end - job.start) * BLOCK) as usize];
            data.read_exact_bytes_at(job.start * BLOCK, blocks)
                .map_err(|e| Error::io("read what the verity tree is to cover", e))?;
            let digests = blocks.chunks_exact(BLOCK as usize);
            Ok::<_, Error>(
                digests
                    .flat_map(|block| salted.of(block))
                    .collect::<Vec<_>>(),
            )
        },
        |digests| {
            let digests = digests?;
            if let Some(hash_block) = hash_blocks.next() {
                hash_block[..digests.len()].copy_from_slice(&digests);
            }
            work.tell(digests.len() as u64 / 32 * BLOCK)
        },
    )
}

/// Fills each level above the first with the digests of the one below.
fn digest_levels(levels: &Levels, hashes: &mut [u8], salted: &SaltedHash) {
    let all = (0..).map_while(|number| levels.get(number));
    let above = (1..).map_while(|number| levels.get(number));
    for (below, level) in all.zip(above) {
        let blocks = bytes_of(hashes, below).chunks_exact(BLOCK as usize);
        let digests: Vec<_> = blocks.flat_map(|block| salted.of(block)).collect();
        bytes_of(hashes, level)[..digests.len()].copy_from_slice(&digests);
    }
}

/// A UUID of the variant for own schemes (RFC 9562, version 8), made from the root hash.
fn uuid(root: &[u8; 32]) -> [u8; 16] {
    let digest = Sha256::new()
        .chain_update(b"brisk verity uuid 1\n")
        .chain_update(root)
        .finalize();
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&digest[..16]);
    uuid[6] = uuid[6] & 0x0f | 0x80;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}
