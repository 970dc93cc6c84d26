use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use brisk_io::ByteSource;

use super::hash_blocks::{HashBlock, HashBlocks};
use super::levels::{DIGESTS, Level, Levels};
use super::root_hash::{RootHash, SaltedHash};
use super::tree_file::TreeFile;
use super::{BLOCK, Verity};
use crate::error::{Allowed, Corrupt, Error, ErrorKind, Location, Result};
use crate::format::verity_superblock::{self, TREE, VeritySuperblock};
use crate::ordered;
use crate::work::Work;

/// The most bytes that one read takes from the file.
const MOST_READ: u64 = 1 << 20;

/// The kernel is asked to read this many hash blocks of the first level at once, when the first of them is needed: the
/// digests of 64 MiB.
const AHEAD: u64 = 128;

/// What errors about the data of a verified file call it.
const FILE: &str = "file";

/// A file whose blocks are compared with a hash tree each time that they are read.
///
/// It ends where the tree ends: what the file has behind it cannot be read. A read whose blocks differ from the tree
/// fails with [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt), and says which file differs at which byte. Threads can
/// share one value; each hashes what it reads.
pub struct VerifiedFile {
    data: Box<dyn ByteSource>,
    name: PathBuf,
    hashes: Box<dyn ByteSource>,
    hashes_name: PathBuf,
    /// The byte of `hashes` at which the first hash block starts.
    hashes_at: u64,
    data_blocks: u64,
    levels: Levels,
    salted: SaltedHash,
    root: RootHash,
    kept: HashBlocks,
    /// One bit for each group of hash blocks of the first level: whether the kernel was asked to read them.
    ahead: Vec<AtomicU64>,
    /// The descriptors of the files that it reads, as far as they are files.
    descriptors: Vec<RawFd>,
    /// Buffers of reads that are over. There are as many as threads that ever read at the same time.
    buffers: Mutex<Vec<Vec<u8>>>,
}

impl VerifiedFile {
    /// The image in `file`, which has the name `path`, compared with this tree.
    pub(super) fn of_tree(
        tree: TreeFile,
        path: &Path,
        file: File,
        verity: &Verity,
    ) -> Result<Self> {
        let (tree_path, superblock) = (tree.path.clone(), tree.superblock);
        let descriptor = file.as_raw_fd();
        let mut verified = Self::new(file, path, tree, verity.root)?;
        verified.descriptors.push(descriptor);
        match verity.data_len {
            Some(len) if len != verified.data_len() => {
                let at = Location::Byte(superblock.saturating_add(72));
                let allowed = Allowed::Only(len / BLOCK);
                let field = "number of data blocks";
                let fault = Error::field(at, field, verified.data_blocks, allowed).about(TREE);
                Err(fault.with_path(tree_path))
            }
            _ => Ok(verified),
        }
    }

    /// The image in `file`, which has the name `path`, as this tree says that it is, like
    /// [`of_its_own_root`](Self::of_its_own_root).
    ///
    /// # Errors
    ///
    /// Those of [`VerifiedFile::new`].
    pub fn of_root_of(tree: TreeFile, path: &Path, file: File) -> Result<Self> {
        let tree_path = tree.path.clone();
        let root = || {
            let mut superblock = [0; verity_superblock::LEN];
            let read = tree
                .source
                .read_exact_bytes_at(tree.superblock, &mut superblock);
            read.map_err(|e| Error::io("read the superblock of the verity tree", e))?;
            let superblock = VeritySuperblock::parse(&superblock, tree.superblock)?;
            let mut top = [0; BLOCK as usize];
            let read = match Levels::of(superblock.data_blocks).get(0) {
                // The root hash of a single block is its digest.
                None => file.read_exact_bytes_at(0, &mut top),
                Some(_) => {
                    let behind = tree.superblock + verity_superblock::LEN as u64;
                    let at = behind.next_multiple_of(BLOCK);
                    tree.source.read_exact_bytes_at(at, &mut top)
                }
            };
            read.map_err(|e| Error::io("read the top of the verity tree", e))?;
            Ok(RootHash(SaltedHash::new(&superblock.salt).of(&top)))
        };
        let root = root().map_err(|e: Error| e.with_path(tree_path))?;
        Self::new(file, path, tree, root)
    }

    /// Reads the whole file, and compares it with the tree. Tells `work` the bytes.
    ///
    /// # Errors
    ///
    /// As [`VerifiedFile::check`], for the first block that differs, and `Cancelled`.
    pub fn check_all(&self, work: &Work) -> Result<()> {
        let pieces = self.data_len().div_ceil(MOST_READ);
        ordered::for_each(
            work.thread_count(),
            2 * work.thread_count(),
            (0..pieces).map(|piece| piece * MOST_READ),
            Vec::new,
            |buffer, at| {
                let len = MOST_READ.min(self.data_len() - at);
                buffer.resize(len as usize, 0);
                let read = self.read_compared(at, buffer)?;
                read.map_err(|e| Error::io("read the file", e).with_path(&self.name))?;
                Ok::<_, Error>(len)
            },
            |len| work.tell(len?),
        )
    }

    /// Reads whole blocks, once more if they are wrong and the source can get them again. The inner error is one of reading.
    fn read_compared(&self, at: u64, blocks: &mut [u8]) -> Result<io::Result<()>> {
        if let Err(e) = self.data.read_exact_bytes_at(at, blocks) {
            return Ok(Err(e));
        }
        match self.check(at, blocks) {
            Err(e) if e.kind() == ErrorKind::Corrupt => {
                let end = at.saturating_add(blocks.len() as u64);
                if !self.data.read_again(&(at..end)) {
                    return Err(e);
                }
                if let Err(e) = self.data.read_exact_bytes_at(at, blocks) {
                    return Ok(Err(e));
                }
                self.check(at, blocks).map(Ok)
            }
            checked => checked.map(Ok),
        }
    }

    /// What it is compared with.
    pub fn verity(&self) -> Verity {
        Verity {
            root: self.root,
            data_len: Some(self.data_len()),
        }
    }

    /// The numbers of the descriptors that it reads from, for a process that closes all others.
    pub fn descriptors(&self) -> &[RawFd] {
        &self.descriptors
    }

    /// The bytes of `data`, compared with the tree in `tree`, whose top must have the digest `root`. Errors call the
    /// data `name`.
    ///
    /// This reads the superblock and the last hash block of each level, and nothing else.
    ///
    /// # Errors
    ///
    /// `Corrupt` if the tree is damaged, is not of this root hash, covers another number of blocks than the root hash says,
    /// or is longer than its file or the data. `Unsupported`
    /// for other versions, block sizes and hash algorithms. `Io` if it cannot be read.
    pub fn new(
        data: impl ByteSource + 'static,
        name: &Path,
        tree: TreeFile,
        root: RootHash,
    ) -> Result<Self> {
        let path = tree.path.clone();
        Self::from_parts(Box::new(data), name, tree, root).map_err(|e| e.with_path(path))
    }

    fn from_parts(
        data: Box<dyn ByteSource>,
        name: &Path,
        tree: TreeFile,
        root: RootHash,
    ) -> Result<Self> {
        let at = tree.superblock;
        let have = tree.source.size();
        let have = have.map_err(|e| Error::io("read the length of the verity tree", e))?;
        let have = have.saturating_sub(at);
        let truncated = |what, need, have| {
            let fault = Corrupt::Truncated { what, need, have };
            Error::corrupt(Location::Byte(at), fault).about(TREE)
        };
        let mut superblock = [0; verity_superblock::LEN];
        if have < superblock.len() as u64 {
            let need = superblock.len() as u64;
            return Err(truncated("the superblock", need, have));
        }
        let read = tree.source.read_exact_bytes_at(at, &mut superblock);
        read.map_err(|e| Error::io("read the superblock of the verity tree", e))?;
        let VeritySuperblock { data_blocks, salt } = VeritySuperblock::parse(&superblock, at)?;
        let levels = Levels::of(data_blocks);
        let behind = at.saturating_add(verity_superblock::LEN as u64);
        let hashes_at = behind.checked_next_multiple_of(BLOCK);
        let hashes_at = hashes_at.ok_or_else(|| truncated("the first hash block", BLOCK, 0))?;
        // Both are far below 2^63.
        let need = levels.blocks() * BLOCK + (hashes_at - at);
        if have < need {
            return Err(truncated("the tree", need, have));
        }
        let data_len = data.size();
        let data_len = data_len.map_err(|e| Error::io("read the length of the file", e))?;
        if data_len < data_blocks * BLOCK {
            let (need, what) = (data_blocks * BLOCK, "the file under the tree");
            return Err(truncated(what, need, data_len));
        }
        let groups = levels
            .get(0)
            .map_or(0, |level| level.blocks.div_ceil(AHEAD));
        let verified = Self {
            data,
            name: name.to_owned(),
            hashes: tree.source,
            hashes_name: tree.path,
            hashes_at,
            data_blocks,
            kept: HashBlocks::of(levels.blocks()),
            ahead: (0..groups.div_ceil(64))
                .map(|_| AtomicU64::new(0))
                .collect(),
            levels,
            salted: SaltedHash::new(&salt),
            root,
            descriptors: tree.descriptor.into_iter().collect(),
            buffers: Mutex::default(),
        };
        verified.check_ends(at)?;
        Ok(verified)
    }

    /// Says now if the tree is of another root hash, as every read would fail, or of another number of data blocks, which
    /// would hide the last of them. The superblock is at byte `superblock`.
    ///
    /// The number is no part of what is hashed, but follows from it. Behind its last digest, a level has zeros up to the
    /// end of its last hash block, and no block has zeros as its digest.
    fn check_ends(&self, superblock: u64) -> Result<()> {
        let levels: Vec<_> = (0..).map_while(|n| self.levels.get(n)).collect();
        // The data blocks under one digest of a level. There are at most five levels.
        let under = |number| DIGESTS.saturating_pow(number as u32);
        // From the top down: what is said of a level is true if those above are right.
        for (number, level) in levels.iter().enumerate().rev() {
            let before = (level.blocks - 1) * DIGESTS;
            let last = self.hash_block(number, level.blocks - 1)?;
            let digests = (0..DIGESTS).rev().find(|n| digest_in(&last, *n) != [0; 32]);
            let digests = before + digests.map_or(0, |last| last + 1);
            let most = digests.saturating_mul(under(number));
            let least = (most + 1).saturating_sub(under(number));
            if !(least..=most).contains(&self.data_blocks) {
                let at = Location::Byte(superblock.saturating_add(72));
                let allowed = match number {
                    0 => Allowed::Only(most),
                    _ => Allowed::Range(least, most),
                };
                let field = "number of data blocks";
                let fault = Error::field(at, field, self.data_blocks, allowed).about(TREE);
                return Err(fault.with_path(&self.hashes_name));
            }
        }
        Ok(())
    }

    /// What errors call the file.
    pub fn name(&self) -> &Path {
        &self.name
    }

    /// The root hash that all blocks are compared with.
    pub fn root_hash(&self) -> RootHash {
        self.root
    }

    /// The number of bytes that the tree covers.
    pub fn data_len(&self) -> u64 {
        self.data_blocks * BLOCK
    }

    /// Compares whole blocks with the tree. The caller has read them from the file, from byte `at` on.
    ///
    /// # Errors
    ///
    /// `Corrupt` if a block differs, is not in the tree, or is not whole. `Io` if the tree cannot be read.
    pub fn check(&self, at: u64, blocks: &[u8]) -> Result<()> {
        let whole = at.is_multiple_of(BLOCK) && (blocks.len() as u64).is_multiple_of(BLOCK);
        let end = at.saturating_add(blocks.len() as u64);
        if !whole || end > self.data_len() {
            let what = "a read of whole blocks under the verity tree";
            let (need, have) = (blocks.len() as u64, self.data_len().saturating_sub(at));
            let fault = Corrupt::Truncated { what, need, have };
            let fault = Error::corrupt(Location::Byte(at), fault).about(FILE);
            return Err(fault.with_path(&self.name));
        }
        let first = at / BLOCK;
        let mut digests: Option<(u64, HashBlock)> = None;
        for (number, block) in (first..).zip(blocks.chunks_exact(BLOCK as usize)) {
            let group = number / DIGESTS;
            if self.levels.get(0).is_some() && digests.as_ref().is_none_or(|(of, _)| *of != group) {
                digests = Some((group, self.hash_block(0, group)?));
            }
            let expected = match &digests {
                Some((_, digests)) => digest_in(digests, number),
                None => self.root.0,
            };
            let found = self.salted.of(block);
            if found != expected {
                let differs = Corrupt::Digest {
                    what: "block",
                    number,
                    found,
                    expected,
                };
                let fault = Error::corrupt(Location::Byte(number * BLOCK), differs);
                return Err(fault.about(FILE).with_path(&self.name));
            }
        }
        Ok(())
    }

    /// Block `number` of a level, which is right: it was compared with the level above, up to the root hash.
    fn hash_block(&self, level: usize, number: u64) -> Result<HashBlock> {
        let Level { first, .. } = self.level(level)?;
        let place = first + number;
        if let Some(block) = self.kept.get(place) {
            return Ok(block);
        }
        let expected = match self.levels.get(level + 1) {
            Some(_) => digest_in(&self.hash_block(level + 1, number / DIGESTS)?, number),
            None => self.root.0,
        };
        if level == 0 {
            self.read_ahead_of(number);
        }
        let at = self.hashes_at + place * BLOCK;
        let mut block = [0; BLOCK as usize];
        let mut read = || {
            let read = self.hashes.read_exact_bytes_at(at, &mut block);
            read.map_err(|e| Error::io("read the verity tree", e).with_path(&self.hashes_name))?;
            Ok::<_, Error>(self.salted.of(&block))
        };
        let mut found = read()?;
        if found != expected && self.hashes.read_again(&(at..at + BLOCK)) {
            found = read()?;
        }
        if found != expected {
            let differs = Corrupt::Digest {
                what: match self.levels.get(level + 1) {
                    Some(_) => "hash block",
                    None => "the top hash block",
                },
                number: place,
                found,
                expected,
            };
            let fault = Error::corrupt(Location::Byte(at), differs).about(TREE);
            return Err(fault.with_path(&self.hashes_name));
        }
        let block = Arc::new(block);
        self.kept.keep(place, &block);
        Ok(block)
    }

    /// The caller names only levels that exist.
    fn level(&self, number: usize) -> Result<Level> {
        let level = self.levels.get(number);
        level.ok_or_else(|| Error::limit("a level of the verity tree", number as u64, 0))
    }

    /// Asks the kernel for the hash blocks around one of the first level, once.
    fn read_ahead_of(&self, number: u64) {
        let group = number / AHEAD;
        let (Some(level), Some(word)) = (
            self.levels.get(0),
            usize::try_from(group / 64)
                .ok()
                .and_then(|word| self.ahead.get(word)),
        ) else {
            return;
        };
        let bit = 1 << (group % 64);
        if word.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            let end = level.blocks.min((group + 1) * AHEAD);
            let place = |block: u64| self.hashes_at + (level.first + block) * BLOCK;
            self.hashes.will_read(place(group * AHEAD)..place(end));
        }
    }

    fn with_buffer<R>(&self, use_it: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        let buffers = || self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut buffer = buffers().pop().unwrap_or_default();
        let result = use_it(&mut buffer);
        buffers().push(buffer);
        result
    }
}

/// The digest of block `number` of the level below.
fn digest_in(block: &HashBlock, number: u64) -> [u8; 32] {
    let (digests, _) = block.as_chunks::<32>();
    // A block has as many digests as this.
    let place = usize::try_from(number % DIGESTS).unwrap_or(0);
    digests.get(place).copied().unwrap_or_default()
}

impl ByteSource for VerifiedFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.data_len())
    }

    fn read_bytes_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let left = self.data_len().saturating_sub(offset);
        let len = left.min(buf.len() as u64);
        if len == 0 {
            return Ok(0);
        }
        let start = offset - offset % BLOCK;
        // Not past `data_len`, which is a multiple of the block size.
        let end = (offset + len)
            .next_multiple_of(BLOCK)
            .min(start + MOST_READ);
        let (len, skipped) = (len.min(end - offset) as usize, (offset - start) as usize);
        self.with_buffer(|buffer| {
            let whole = (end - start) as usize;
            if buffer.len() < whole {
                buffer.resize(whole, 0);
            }
            let blocks = &mut buffer[..whole];
            self.read_compared(start, blocks)??;
            buf[..len].copy_from_slice(&blocks[skipped..skipped + len]);
            Ok(len)
        })
    }

    fn will_read(&self, bytes: Range<u64>) {
        self.data.will_read(bytes);
    }
}

impl fmt::Debug for VerifiedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerifiedFile")
            .field("name", &self.name)
            .field("root", &self.root)
            .finish_non_exhaustive()
    }
}
