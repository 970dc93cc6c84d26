//! Checking an image by reading and decoding everything in it.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use super::block_reader::Block;
use super::contents_budget::ContentsBudget;
use super::file_reader::FileReader;
use super::image::Image;
use super::inode_reader::{Inode, InodeKind, InodeRef};
use super::shared_block::FRAGMENT_TABLE;
use super::walk::{Walk, WalkEntry};
use crate::error::{Allowed, Error, ErrorKind, Location, Result};
use crate::ordered;
use crate::work::Work;

/// Faults that a check describes. More are counted: who keeps what is described must not keep a
/// gigabyte of it.
pub(crate) const MOST_FAULTS: u64 = 100;

/// What [`Image::check`] read and decoded. The feature `sections` brings the field of that name, and checks sections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Checked {
    /// Inodes; a hard-linked file counts once.
    pub inodes: u64,
    /// Directories among them, each listed to its end.
    pub directories: u64,
    /// Files among them.
    pub files: u64,
    /// Size of the files, holes included.
    pub bytes: u64,
    /// Stored blocks with contents of one file.
    pub blocks: u64,
    /// Blocks that several files share.
    pub shared_blocks: u64,
    /// Extended attributes; a set that several inodes have counts once.
    pub xattrs: u64,
    /// Sections behind the image.
    #[cfg(feature = "sections")]
    pub sections: u64,
    /// Faults in all this. Only the first 100 are described.
    pub faults: u64,
    /// Whether the whole tree was seen; a fault in its metadata prevents that.
    pub whole_tree: bool,
}

impl Image {
    /// Reads and decodes everything: each inode, listing, block and attribute, the table of inode
    /// numbers, and, with the feature `sections`, each section, whose digest must be right.
    ///
    /// Each of the first 100 faults goes to `on_fault` at once, in the order of the tree, with the
    /// path in the image of the file that it harms, if that is known. A damaged block does not end
    /// the check. Damaged metadata end the walk of the tree, and the check goes on with what belongs
    /// to no tree. A damaged list of a table is one fault, and ends the check of that table.
    ///
    /// SquashFS has no checksums, so a block that still decodes passes, and so does every block
    /// that is stored raw.
    ///
    /// Each thread of `work` holds one decoded block.
    ///
    /// # Errors
    ///
    /// `Io` if the image cannot be read, `Limit` if it needs more than its
    /// [`Limits`](crate::Limits), also if its files have more contents than those allow, and `Unsupported` for what a later version wrote. Damage is no
    /// error but a fault.
    pub fn check(
        &self,
        work: &Work,
        mut on_fault: impl FnMut(Option<&Path>, Error),
    ) -> Result<Checked> {
        let mut faults = 0;
        let mut sort = |path: Option<&Path>, result: Result<()>| match result {
            Err(e) if e.kind() == ErrorKind::Corrupt => {
                faults += 1;
                if faults <= MOST_FAULTS {
                    on_fault(path, self.name(e));
                }
                Ok(())
            }
            result => result.map_err(|e| self.name(e)),
        };
        let mut jobs = Jobs::new(self, work);
        ordered::for_each(
            work.thread_count(),
            work.thread_count().saturating_mul(8),
            &mut jobs,
            || vec![0; self.block_size() as usize],
            |buf, job| {
                let Job { path, part, bytes } = job;
                let result = self.check_part(part, buf);
                (path, result, work.tell(bytes))
            },
            |(path, result, goes_on)| {
                sort(path.as_deref(), result)?;
                goes_on
            },
        )?;
        let mut checked = jobs.checked;
        let count = u64::from(self.inode_count());
        if checked.whole_tree && checked.inodes != count {
            let fault = Error::field(
                Location::Byte(4),
                "inode count",
                count,
                Allowed::Only(checked.inodes),
            );
            sort(None, Err(fault))?;
        }
        #[cfg(feature = "sections")]
        match self.inner.stored.sections() {
            Ok(sections) => {
                for section in &sections {
                    sort(None, self.inner.stored.check_section(section))?;
                    checked.sections += 1;
                }
            }
            Err(e) => sort(None, Err(e))?,
        }
        checked.faults = faults;
        Ok(checked)
    }

    fn check_part(&self, part: Part, buf: &mut [u8]) -> Result<()> {
        match part {
            Part::Block { reader, block, len } => reader.read_block(block, &mut buf[..len]),
            Part::Tail { reader, offset } => {
                // Less than a block is left.
                reader.read_at(offset, buf).map(|_| ())
            }
            Part::SharedBlock(number) => match self.read_shared_block(number, buf)? {
                0 => Err(self.short_shared_block(number, 1, 0)),
                _ => Ok(()),
            },
            Part::Failed(e) => Err(e),
        }
    }
}

/// Something to be decoded, or a fault that was met on the way to it.
struct Job {
    /// The file in the image that it belongs to.
    path: Option<Arc<Path>>,
    part: Part,
    /// Bytes of a file that are then dealt with.
    bytes: u64,
}

enum Part {
    Block {
        reader: FileReader,
        block: Block,
        /// Bytes that it decodes to.
        len: usize,
    },
    /// The end of a file, in a block that it shares.
    Tail {
        reader: FileReader,
        offset: u64,
    },
    /// A shared block that no file led to.
    SharedBlock(u32),
    Failed(Error),
}

/// Goes through the tree, and makes the jobs as they are asked for.
struct Jobs<'a> {
    image: &'a Image,
    walk: Option<Walk<'a>>,
    work: &'a Work,
    /// The file whose blocks are given out, and the next of them.
    current: Option<(Arc<Path>, FileReader, usize)>,
    /// Inodes with several names that were met.
    linked: HashSet<InodeRef>,
    /// Sets of attributes that were read.
    xattrs: HashSet<u32>,
    /// Shared blocks that files led to.
    seen_shared_blocks: HashSet<u32>,
    next_shared_block: u32,
    contents: ContentsBudget,
    /// Whether inodes are looked up by their numbers.
    checks_numbers: bool,
    /// Faults that are to be given out next.
    failed: Vec<Error>,
    checked: Checked,
}

impl<'a> Jobs<'a> {
    fn new(image: &'a Image, work: &'a Work) -> Self {
        let (walk, mut failed) = match image.walk() {
            Ok(walk) => (Some(walk), Vec::new()),
            Err(e) => (None, vec![e]),
        };
        let mut checks_numbers = true;
        // A list that is damaged would be a fault for each inode, and for each shared block.
        if let Some(exports) = &image.inner.exports
            && let Err(e) = exports.check_list(&image.inner.metadata)
        {
            checks_numbers = false;
            failed.push(e);
        }
        let mut next_shared_block = 0;
        if let Err(e) = image.inner.fragments.check_list(&image.inner.metadata) {
            next_shared_block = image.shared_block_count();
            failed.push(e);
        }
        Self {
            image,
            walk,
            work,
            current: None,
            linked: HashSet::new(),
            xattrs: HashSet::new(),
            seen_shared_blocks: HashSet::new(),
            next_shared_block,
            contents: ContentsBudget::new(image),
            checks_numbers,
            failed,
            checked: Checked::default(),
        }
    }

    /// The next part of the file that is given out at the moment.
    fn next_part(&mut self) -> Option<Job> {
        let (path, reader, next) = self.current.as_mut()?;
        while let Some(stored) = reader.blocks().stored(*next) {
            let i = *next;
            *next += 1;
            let len = reader.block_len(i);
            let bytes = len as u64;
            let block = reader.blocks().get(i).filter(|_| !stored.is_sparse());
            let Some(block) = block else {
                match self.work.tell(bytes) {
                    Ok(()) => continue,
                    Err(e) => {
                        return Some(Job {
                            path: None,
                            part: Part::Failed(e),
                            bytes: 0,
                        });
                    }
                }
            };
            self.checked.blocks += 1;
            return Some(Job {
                path: Some(path.clone()),
                part: Part::Block {
                    reader: reader.clone(),
                    block,
                    len,
                },
                bytes,
            });
        }
        let (path, reader, blocks) = self.current.take()?;
        if !reader.has_tail() {
            return None;
        }
        let offset = blocks as u64 * u64::from(self.image.block_size());
        let bytes = reader.len().saturating_sub(offset);
        let part = Part::Tail { reader, offset };
        Some(Job {
            path: Some(path),
            part,
            bytes,
        })
    }

    /// Reads all metadata of what is at `path`.
    fn enter(&mut self, path: &Path, inode: &Inode) -> Result<()> {
        if inode.nlink() > 1 && !inode.is_dir() && !self.linked.insert(inode.reference()) {
            return Ok(());
        }
        // Of the three, each entry takes less than this.
        let kept = self.linked.len() + self.xattrs.len() + self.seen_shared_blocks.len();
        let (needs, limit) = (kept as u64 * 32, self.image.inner.stored.limits.memory);
        if needs > limit {
            return Err(Error::limit("the list of what was checked", needs, limit));
        }
        self.checked.inodes += 1;
        if let Some(index) = inode.xattr
            && self.xattrs.insert(index)
        {
            let xattrs = self.image.xattrs(inode)?;
            self.checked.xattrs += xattrs.len() as u64;
            self.contents.add_xattrs(&xattrs)?;
        }
        if self.checks_numbers {
            self.check_number(inode)?;
        }
        match inode.kind() {
            InodeKind::Directory(_) => self.checked.directories += 1,
            InodeKind::File(file) => {
                self.checked.files += 1;
                self.checked.bytes = self.checked.bytes.saturating_add(file.len);
                self.contents.add_file(file)?;
                let reader = self.image.file(inode)?;
                if let Some((number, _)) = file.tail.filter(|_| reader.has_tail()) {
                    self.seen_shared_blocks.insert(number);
                }
                self.current = Some((path.into(), reader, 0));
            }
            _ => {}
        }
        Ok(())
    }

    /// Checks that an inode is found by its number.
    fn check_number(&self, inode: &Inode) -> Result<()> {
        let found = match self.image.inode_by_number(inode.number())? {
            Some(found) if found.reference() != inode.reference() => found.reference().0.encode(),
            _ => return Ok(()),
        };
        let at = self.image.inner.inode_cursor(inode.reference())?.location();
        let allowed = Allowed::Only(inode.reference().0.encode());
        let field = "reference that the export table has for the inode's number";
        Err(Error::field(at, field, found, allowed))
    }

    fn next_unseen_shared_block(&mut self) -> Option<Job> {
        let job = |part| Job {
            path: None,
            part,
            bytes: 0,
        };
        while self.next_shared_block < self.image.shared_block_count() {
            let number = self.next_shared_block;
            self.next_shared_block += 1;
            self.checked.shared_blocks += 1;
            if self.seen_shared_blocks.contains(&number) {
                continue;
            }
            let whole = self.image.block_size().into();
            if let Err(e) = self.contents.spend(whole) {
                return Some(job(Part::Failed(e)));
            }
            if let Err(e) = self.image.inner.fragment(number, FRAGMENT_TABLE) {
                // All entries of a metadata block are damaged if one is.
                let per_block = self.image.inner.fragments.per_block();
                let next = (u64::from(number) / per_block + 1) * per_block;
                self.next_shared_block = u32::try_from(next).unwrap_or(u32::MAX);
                return Some(job(Part::Failed(e)));
            }
            return Some(job(Part::SharedBlock(number)));
        }
        None
    }
}

impl Iterator for Jobs<'_> {
    type Item = Job;

    fn next(&mut self) -> Option<Job> {
        loop {
            if let Some(job) = self.next_part() {
                return Some(job);
            }
            let failed = |path: Option<&Path>, e| Job {
                path: path.map(Arc::from),
                part: Part::Failed(e),
                bytes: 0,
            };
            if let Some(e) = self.failed.pop() {
                return Some(failed(None, e));
            }
            match self.walk.as_mut().and_then(Iterator::next) {
                Some(Ok(entry)) => {
                    let (path, inode) = WalkEntry::into_parts(entry);
                    if let Err(e) = self.enter(&path, &inode) {
                        return Some(failed(Some(&path), e));
                    }
                }
                Some(Err(e)) => {
                    self.walk = None;
                    return Some(failed(None, e));
                }
                None => {
                    self.checked.whole_tree |= self.walk.take().is_some();
                    return self.next_unseen_shared_block();
                }
            }
        }
    }
}

#[cfg(all(test, feature = "write"))]
mod tests {
    use super::*;
    use crate::read::image::OpenOptions;
    use crate::{ImageWriter, Tree, TreeRules};

    /// An image of a file of several blocks, two small ones and an attribute-free directory.
    fn image() -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        std::fs::create_dir_all(tree.join("d")).unwrap();
        let text: String = (0..60_000u64).map(|n| format!("{} ", n * n)).collect();
        std::fs::write(tree.join("d/large"), text).unwrap();
        std::fs::write(tree.join("one"), "one").unwrap();
        std::fs::write(tree.join("two"), "two").unwrap();
        std::fs::hard_link(tree.join("one"), tree.join("uno")).unwrap();
        let tree = Tree::from_directory(&tree, &TreeRules::default()).unwrap();
        let path = dir.path().join("image");
        ImageWriter::new().write(&tree, &path).unwrap();
        std::fs::read(&path).unwrap()
    }

    fn check(bytes: Vec<u8>, threads: usize) -> (Checked, Vec<(Option<String>, String)>) {
        let image = Image::from_source(bytes, &OpenOptions::new()).unwrap();
        let mut faults = Vec::new();
        let checked = image
            .check(&Work::new().threads(threads), |path, e| {
                faults.push((path.map(|p| p.display().to_string()), e.to_string()));
            })
            .unwrap();
        (checked, faults)
    }

    #[test]
    fn a_sound_image_is_counted_whole() {
        for threads in [1, 4] {
            let (checked, faults) = check(image(), threads);
            assert_eq!(faults, []);
            let expected = Checked {
                inodes: 5,
                directories: 2,
                files: 3,
                bytes: (0..60_000u64)
                    .map(|n| (n * n).to_string().len() as u64 + 1)
                    .sum::<u64>()
                    + 6,
                blocks: 5,
                shared_blocks: 1,
                xattrs: 0,
                sections: 1,
                faults: 0,
                whole_tree: true,
            };
            assert_eq!(checked, expected);
        }
    }

    #[test]
    fn each_damage_is_said_with_its_file() {
        let mut bytes = image();
        // The first block is behind the superblock; zstd 15 needs no options.
        bytes[96] ^= 0xff;
        // The digest of the section.
        let used = u64::from_le_bytes(bytes[40..48].try_into().unwrap());
        let section = used.next_multiple_of(4096) as usize;
        bytes[section + 64] ^= 1;
        // The count of inodes.
        bytes[4] += 1;
        let (checked, faults) = check(bytes, 2);
        assert_eq!((checked.faults, checked.whole_tree), (3, true));
        assert_eq!(faults[0].0.as_deref(), Some("d/large"));
        assert!(
            faults[0]
                .1
                .starts_with("corrupt image at byte 96: a data block does not decode as zstd: "),
            "{}",
            faults[0].1
        );
        assert_eq!(
            faults[1..],
            [
                (
                    None,
                    "corrupt image at byte 4: inode count is 6, allowed is 5".to_owned()
                ),
                (
                    None,
                    format!(
                        "corrupt image at byte {section}: a section does not decode as its contents: \
                         the digest in its header is of other bytes"
                    )
                ),
            ]
        );
    }

    #[test]
    fn damaged_metadata_end_the_walk_but_not_the_check() {
        let mut bytes = image();
        let table = u64::from_le_bytes(bytes[72..80].try_into().unwrap()) as usize;
        bytes[table + 2..table + 6].fill(0xff);
        let (checked, faults) = check(bytes, 2);
        assert_eq!(faults.len(), 1);
        assert_eq!((checked.whole_tree, checked.sections), (false, 1));
        assert_eq!(checked.shared_blocks, 1);
    }
}
