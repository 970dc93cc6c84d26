//! Where the bytes of an image are.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::path::PathBuf;

use super::image::Image;
use super::inode_reader::{File, Inode, InodeKind, InodeRef};
use super::open_image::OpenImage;
use super::shared_block::FRAGMENT_TABLE;
use crate::error::{Error, Result};
use crate::format::superblock::{Superblock, flag};
use crate::format::table::TableShape;

/// Where the bytes of an image are, by what they hold and how it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Files, each hard-linked one counted once.
    pub files: u64,
    /// Bytes of those files.
    pub bytes: u64,
    /// Blocks of one file that are compressed.
    pub compressed: Stored,
    /// Blocks of one file that are stored as they are.
    pub raw: Stored,
    /// Blocks that several files share.
    pub shared: Stored,
    /// Bytes of blocks of zeros, which are not stored.
    pub sparse: u64,
    /// Bytes of files whose contents are stored for another one.
    pub duplicates: u64,
    /// Bytes of the image before its tables that hold no contents: the superblock, the codec's
    /// options, and what aligns raw files.
    pub other: u64,
    /// The tables, in the order in which they are stored, and their stored bytes.
    pub tables: Vec<(&'static str, u64)>,
    /// The sections behind the image: kind, where their contents start, and their bytes. The feature
    /// `sections` brings this field.
    #[cfg(feature = "sections")]
    pub sections: Vec<(String, u64, u64)>,
    /// The largest files, the largest first; those of one size by path.
    pub largest: Vec<LargeFile>,
    /// How many files are how small. The last step has all of them.
    pub sizes: Vec<SizeStep>,
}

/// Bytes of files, and what they take in the image.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Stored {
    /// Decoded size.
    pub bytes: u64,
    /// Stored size.
    #[cfg_attr(feature = "serde", serde(rename = "stored_bytes"))]
    pub stored: u64,
}

/// A file among the largest.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LargeFile {
    /// The path in the image, of its first name.
    pub path: PathBuf,
    /// Bytes of the file.
    pub bytes: u64,
    /// Stored bytes of the blocks that are its own, or those of the file it is a duplicate of.
    pub stored: u64,
    /// Bytes of its end that are in a block shared with others.
    pub shared: u64,
}

/// Files of at most one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct SizeStep {
    /// 1024, then twice as much each time, up to a size that all files fit in.
    #[cfg_attr(feature = "serde", serde(rename = "at_most_bytes"))]
    pub at_most: u64,
    /// Files of at most this size.
    pub files: u64,
    /// Size of these files together.
    pub bytes: u64,
}

/// The first of the [`SizeStep`]s; each next one is twice as large.
const FIRST_STEP: u64 = 1024;

impl Image {
    /// Where the bytes of the image are, with the `top` largest files.
    ///
    /// Reads all metadata and no contents.
    ///
    /// # Errors
    ///
    /// `Corrupt` if metadata are damaged, and `Limit` if the image needs more than its
    /// [`Limits`](crate::Limits).
    pub fn usage(&self, top: usize) -> Result<Usage> {
        let mut count = Count::new(top);
        for entry in self.walk()? {
            let (path, inode) = entry?.into_parts();
            let InodeKind::File(file) = inode.kind() else {
                continue;
            };
            if inode.nlink() > 1 && !count.linked.insert(inode.reference()) {
                continue;
            }
            let kept = (count.linked.len() + count.known.len()) as u64;
            let (needs, limit) = (kept * 64, self.inner.stored.limits.memory);
            if needs > limit {
                return Err(self.name(Error::limit("the list of stored files", needs, limit)));
            }
            count.add(self, path, &inode, file)?;
        }
        let mut usage = count.finish();
        self.inner
            .count_blocks_and_tables(&mut usage)
            .map_err(|e| self.name(e))?;
        Ok(usage)
    }

    /// What the flag bits of the superblock say, in words.
    pub fn flag_names(&self) -> Vec<&'static str> {
        let names = [
            (flag::RAW_INODES, "inodes stored raw"),
            (flag::RAW_DATA, "data stored raw"),
            (0x0004, "check (unused)"),
            (flag::RAW_FRAGMENTS, "fragments stored raw"),
            (flag::NO_FRAGMENTS, "no fragments"),
            (flag::ALWAYS_FRAGMENTS, "tails in fragments"),
            (flag::DEDUPLICATED, "deduplicated"),
            (flag::EXPORTABLE, "exportable"),
            (flag::RAW_XATTRS, "xattrs stored raw"),
            (flag::NO_XATTRS, "no xattrs"),
            (flag::CODEC_OPTIONS, "codec options"),
            (flag::RAW_IDS, "ids stored raw"),
        ];
        let set = |(bit, _): &(u16, _)| self.flags() & bit != 0;
        names
            .into_iter()
            .filter(set)
            .map(|(_, name)| name)
            .collect()
    }
}

/// Where contents are stored: the first stored block, the shared block and the byte in it, and how
/// long the file is. Duplicates have the same.
type StoredContents = (Option<u64>, Option<(u32, u32)>, u64);

/// What is known of a file among the largest: bytes, path, stored bytes, shared bytes. Of two of
/// one size, the one with the lower path is the larger.
type Candidate = Reverse<(u64, Reverse<PathBuf>, u64, u64)>;

struct Count {
    usage: Usage,
    top: usize,
    /// The largest so far, the smallest of them first.
    largest: BinaryHeap<Candidate>,
    linked: HashSet<InodeRef>,
    known: HashSet<StoredContents>,
    /// Files and bytes, by the number of the step that is the first to have them.
    steps: [(u64, u64); 64],
}

impl Count {
    fn new(top: usize) -> Self {
        let usage = Usage {
            files: 0,
            bytes: 0,
            compressed: Stored::default(),
            raw: Stored::default(),
            shared: Stored::default(),
            sparse: 0,
            duplicates: 0,
            other: 0,
            tables: Vec::new(),
            #[cfg(feature = "sections")]
            sections: Vec::new(),
            largest: Vec::new(),
            sizes: Vec::new(),
        };
        Self {
            usage,
            top,
            largest: BinaryHeap::new(),
            linked: HashSet::new(),
            known: HashSet::new(),
            steps: [(0, 0); 64],
        }
    }

    fn add(&mut self, image: &Image, path: PathBuf, inode: &Inode, file: &File) -> Result<()> {
        let reader = image.file(inode)?;
        let stored_as = reader.stored_as();
        let stored = stored_as.compressed_stored + stored_as.raw;
        let usage = &mut self.usage;
        usage.files += 1;
        usage.bytes = usage.bytes.saturating_add(file.len);
        let first = reader.blocks().iter().find(|b| !b.stored.is_sparse());
        let tail = file.tail.filter(|_| reader.has_tail());
        let contents = (first.map(|block| block.start), tail, file.len);
        let is_stored = first.is_some() || tail.is_some();
        if is_stored && !self.known.insert(contents) {
            usage.duplicates = usage.duplicates.saturating_add(file.len);
        } else {
            usage.compressed.bytes += stored_as.compressed;
            usage.compressed.stored += stored_as.compressed_stored;
            usage.raw.bytes += stored_as.raw;
            usage.raw.stored += stored_as.raw;
            usage.sparse = usage.sparse.saturating_add(stored_as.sparse);
            usage.shared.bytes += stored_as.shared;
        }
        // `ilog2` of what is left over a power of two names the next one.
        let step = match file.len.div_ceil(FIRST_STEP).saturating_sub(1) {
            0 => 0,
            over => over.ilog2() as usize + 1,
        };
        let (files, bytes) = &mut self.steps[step];
        *files += 1;
        *bytes = bytes.saturating_add(file.len);
        let candidate = Reverse((file.len, Reverse(path), stored, stored_as.shared));
        self.largest.push(candidate);
        if self.largest.len() > self.top {
            self.largest.pop();
        }
        Ok(())
    }

    fn finish(mut self) -> Usage {
        let (mut files, mut bytes) = (0, 0u64);
        for (i, step) in self.steps.into_iter().enumerate() {
            if files == self.usage.files {
                break;
            }
            files += step.0;
            bytes = bytes.saturating_add(step.1);
            let at_most = FIRST_STEP << i;
            self.usage.sizes.push(SizeStep {
                at_most,
                files,
                bytes,
            });
        }
        let largest = self.largest.into_sorted_vec().into_iter();
        let large = |Reverse((bytes, Reverse(path), stored, shared))| LargeFile {
            path,
            bytes,
            stored,
            shared,
        };
        self.usage.largest = largest.map(large).collect();
        self.usage
    }
}

impl OpenImage {
    fn count_blocks_and_tables(&self, usage: &mut Usage) -> Result<()> {
        for number in 0..self.stored.superblock.fragment_count() {
            let block = self.shared_block(number, FRAGMENT_TABLE)?;
            usage.shared.stored += u64::from(block.stored.len());
        }
        usage.tables = self.tables()?;
        #[cfg(feature = "sections")]
        for section in self.stored.sections()? {
            let kind = section.kind.0.escape_ascii().to_string();
            usage.sections.push((kind, section.start, section.len));
        }
        let stored = usage.compressed.stored + usage.raw.stored + usage.shared.stored;
        usage.other = self.stored.superblock.inode_table().saturating_sub(stored);
        Ok(())
    }

    /// The stored bytes of each table, each with the list of its blocks.
    fn tables(&self) -> Result<Vec<(&'static str, u64)>> {
        let superblock: &Superblock = &self.stored.superblock;
        let mut spans = Vec::new();
        for (name, list, count, entry_len) in [
            (
                "fragments",
                superblock.fragment_table(),
                u64::from(superblock.fragment_count()),
                16,
            ),
            (
                "export",
                superblock.export_table(),
                superblock.inode_count().into(),
                8,
            ),
            (
                "ids",
                Some(superblock.id_table()),
                superblock.id_count().into(),
                4,
            ),
        ] {
            let Some(list) = list else { continue };
            let blocks = TableShape { count, entry_len }.blocks();
            let start = match blocks {
                0 => list,
                _ => {
                    let mut first = [0; 8];
                    self.stored
                        .read_into(list, &mut first, "the list of a table's blocks")?;
                    u64::from_le_bytes(first)
                }
            };
            spans.push((name, start, list.saturating_add(blocks * 8)));
        }
        if let Some(table) = self.xattr_table()? {
            let shape = TableShape {
                count: table.sets.count(),
                entry_len: 16,
            };
            // The header of the list has 16 bytes.
            let end = table.end.saturating_add(16 + shape.blocks() * 8);
            spans.push(("xattrs", table.pairs, end));
        }
        spans.sort_by_key(|&(_, start, _)| start);
        let (inodes, directories) = (superblock.inode_table(), superblock.directory_table());
        let directories_end = spans.first().map_or(superblock.bytes_used(), |s| s.1);
        let first = [
            ("inodes", inodes, directories),
            ("directories", directories, directories_end),
        ];
        let len = |(name, start, end): (_, u64, u64)| (name, end.saturating_sub(start));
        Ok(first.into_iter().chain(spans).map(len).collect())
    }
}

#[cfg(all(test, feature = "write"))]
mod tests {
    use super::*;
    use crate::read::image::OpenOptions;
    use crate::rules::PlanRules;
    use crate::{ImageWriter, Tree, TreeRules};

    fn usage(files: &[(&str, Vec<u8>)], writer: ImageWriter, top: usize) -> (Usage, u64) {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        std::fs::create_dir(&tree).unwrap();
        for (name, bytes) in files {
            std::fs::write(tree.join(name), bytes).unwrap();
        }
        let tree = Tree::from_directory(&tree, &TreeRules::default()).unwrap();
        let path = dir.path().join("image");
        writer.write(&tree, &path).unwrap();
        let image = Image::open_with(&path, &OpenOptions::new()).unwrap();
        (image.usage(top).unwrap(), image.bytes_used())
    }

    #[test]
    fn every_byte_of_the_image_is_in_one_class() {
        let noise: Vec<u8> = (0..20_000u32)
            .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect();
        let files = [
            ("a", vec![b'a'; 200_000]),
            ("b", vec![b'a'; 200_000]),
            ("c", vec![0; 300_000]),
            ("d", b"small".to_vec()),
            ("e", b"little".to_vec()),
            ("f", noise.clone()),
        ];
        let rules = PlanRules::new(vec![], vec!["f".into()]).unwrap();
        let writer = ImageWriter::new().rules(rules);
        let (usage, bytes_used) = usage(&files, writer, 2);
        assert_eq!((usage.files, usage.bytes), (6, 720_011));
        assert_eq!(usage.duplicates, 200_000);
        assert_eq!(usage.sparse, 300_000);
        assert_eq!(usage.compressed.bytes, 200_000);
        assert_eq!(
            usage.raw,
            Stored {
                bytes: 20_000,
                stored: 20_000
            }
        );
        assert_eq!(usage.shared.bytes, 11);
        let data = usage.compressed.stored + usage.raw.stored + usage.shared.stored;
        let tables: u64 = usage.tables.iter().map(|(_, bytes)| bytes).sum();
        assert_eq!(data + usage.other + tables, bytes_used);
        let names: Vec<_> = usage.tables.iter().map(|(name, _)| *name).collect();
        assert_eq!(
            names,
            ["inodes", "directories", "fragments", "export", "ids"]
        );
        let largest: Vec<_> = usage
            .largest
            .iter()
            .map(|f| (f.path.to_str(), f.bytes))
            .collect();
        assert_eq!(largest, [(Some("c"), 300_000), (Some("a"), 200_000)]);
    }

    #[test]
    fn sizes_at_a_step_count_as_below_it() {
        let of = |len| vec![b'x'; len];
        let files = [
            ("0", of(0)),
            ("1", of(1024)),
            ("2", of(1025)),
            ("3", of(2048)),
            ("4", of(2049)),
            ("5", of(5000)),
        ];
        let (usage, _) = usage(&files, ImageWriter::new(), 0);
        let step = |at_most, files, bytes| SizeStep {
            at_most,
            files,
            bytes,
        };
        assert_eq!(
            usage.sizes,
            [
                step(1024, 2, 1024),
                step(2048, 4, 4097),
                step(4096, 5, 6146),
                step(8192, 6, 11146),
            ]
        );
        assert_eq!(usage.largest, []);
    }
}
