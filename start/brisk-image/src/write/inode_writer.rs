//! The inode table and the directory table.

use std::collections::HashMap;

use zerocopy::IntoBytes;

use super::data_writer::Contents;
use super::metadata_writer::MetadataWriter;
use crate::codec::Compression;
use crate::error::{Error, Result};
use crate::format::dir_listing::{DirIndex, Entry, Header, MAX_RUN, UNSTORED};
use crate::format::inode::{self as wire, FileType, NONE, WireType};
use crate::format::metadata::{METADATA_BLOCK, MetaRef};
use crate::read::inode_reader::Device;
use crate::tree::file_type;
use crate::tree::{InodeId, Tree, TreeInode, TreeKind};

/// Index entries that one directory has at most.
const MAX_INDEX: usize = u16::MAX as usize;

/// Both tables as they are stored, and what others need to point into them.
pub(crate) struct Tables {
    pub(crate) inodes: Vec<u8>,
    pub(crate) directories: Vec<u8>,
    pub(crate) root: MetaRef,
    /// Where each inode stands, in the order of their numbers.
    pub(crate) references: Vec<MetaRef>,
    /// Users and groups, in the order in which inodes point to them.
    pub(crate) ids: Vec<u32>,
}

/// Writes the inodes and directories of `tree`, whose files ended up where `contents` says.
pub(crate) fn write(
    tree: &Tree,
    contents: &HashMap<InodeId, Contents>,
    compression: &Compression,
) -> Result<Tables> {
    let order = tree.post_order();
    let mut numbers = vec![0u32; tree.inodes.len()];
    for (&inode, number) in order.iter().zip(1u32..) {
        numbers[inode] = number;
    }
    let mut writer = Writer {
        tree,
        contents,
        numbers,
        parents: parents(tree),
        links: links(tree),
        inodes: MetadataWriter::new(compression)?,
        directories: MetadataWriter::new(compression)?,
        references: vec![None; tree.inodes.len()],
        ids: Ids::default(),
    };
    for &inode in &order {
        writer.write(inode)?;
    }
    let at = |inode: &InodeId| {
        writer.references[*inode].ok_or_else(|| Error::input("an inode was not written"))
    };
    let references = order.iter().map(at).collect::<Result<Vec<_>>>()?;
    let root = at(&0)?;
    Ok(Tables {
        inodes: writer.inodes.finish()?.0,
        directories: writer.directories.finish()?.0,
        root,
        references,
        ids: writer.ids.list,
    })
}

/// The directory that each directory is in; the root is in itself.
fn parents(tree: &Tree) -> Vec<InodeId> {
    let mut parents = vec![0; tree.inodes.len()];
    for directory in 0..tree.inodes.len() {
        for (_, inode) in tree.entries(directory) {
            parents[*inode] = directory;
        }
    }
    parents
}

/// The names that each inode has, and for a directory two and one for each directory in it.
fn links(tree: &Tree) -> Vec<u32> {
    let mut links = vec![0u32; tree.inodes.len()];
    for directory in 0..tree.inodes.len() {
        if !matches!(tree.inodes[directory].kind, TreeKind::Directory(_)) {
            continue;
        }
        links[directory] += 2;
        for (_, inode) in tree.entries(directory) {
            match tree.inodes[*inode].kind {
                TreeKind::Directory(_) => links[directory] += 1,
                _ => links[*inode] += 1,
            }
        }
    }
    links
}

/// Users and groups by their index in the id table.
#[derive(Default)]
struct Ids {
    list: Vec<u32>,
    known: HashMap<u32, u16>,
}

impl Ids {
    fn index(&mut self, id: u32) -> Result<u16> {
        if let Some(&index) = self.known.get(&id) {
            return Ok(index);
        }
        // The superblock counts them in 16 bits.
        let index = u16::try_from(self.list.len())
            .ok()
            .filter(|&index| index < u16::MAX)
            .ok_or_else(|| {
                Error::limit("the number of different users and groups", 65_536, 65_535)
            })?;
        self.list.push(id);
        self.known.insert(id, index);
        Ok(index)
    }
}

struct Writer<'a> {
    tree: &'a Tree,
    contents: &'a HashMap<InodeId, Contents>,
    /// From 1, in the order in which inodes are written.
    numbers: Vec<u32>,
    parents: Vec<InodeId>,
    links: Vec<u32>,
    inodes: MetadataWriter,
    directories: MetadataWriter,
    references: Vec<Option<MetaRef>>,
    ids: Ids,
}

/// Where a directory's listing ended up.
struct Listing {
    start: MetaRef,
    len: u32,
    index: Vec<(DirIndex, InodeName)>,
}

type InodeName = Box<[u8]>;

impl Writer<'_> {
    fn write(&mut self, inode: InodeId) -> Result<()> {
        let tree = self.tree;
        let node = &tree.inodes[inode];
        match &node.kind {
            TreeKind::Directory(_) => {
                let listing = self.write_listing(inode)?;
                self.references[inode] = Some(self.inodes.position()?);
                self.write_directory(inode, &listing)
            }
            kind => {
                self.references[inode] = Some(self.inodes.position()?);
                match kind {
                    TreeKind::File { len, .. } => self.write_file(inode, *len),
                    TreeKind::Symlink(target) => self.write_symlink(inode, target),
                    TreeKind::BlockDevice(device) => {
                        self.write_device(inode, FileType::BlockDevice, *device)
                    }
                    TreeKind::CharDevice(device) => {
                        self.write_device(inode, FileType::CharDevice, *device)
                    }
                    TreeKind::Fifo => self.write_ipc(inode, FileType::Fifo),
                    TreeKind::Socket | TreeKind::Directory(_) => {
                        self.write_ipc(inode, FileType::Socket)
                    }
                }
            }
        }
    }

    fn xattr(&self, inode: InodeId) -> u32 {
        self.tree.inodes[inode].xattrs.unwrap_or(NONE)
    }

    fn write_common(&mut self, inode: InodeId, kind: FileType, extended: bool) -> Result<()> {
        let TreeInode { attributes, .. } = self.tree.inodes[inode];
        let common = wire::Common {
            kind: WireType { kind, extended }.encode().into(),
            mode: attributes.permissions.into(),
            uid_index: self.ids.index(attributes.uid)?.into(),
            gid_index: self.ids.index(attributes.gid)?.into(),
            mtime: attributes.mtime.into(),
            number: self.numbers[inode].into(),
        };
        self.inodes.append(common.as_bytes())
    }

    fn write_file(&mut self, inode: InodeId, len: u64) -> Result<()> {
        let empty = Contents::default();
        let contents = self.contents.get(&inode).unwrap_or(&empty);
        let (fragment, fragment_offset) = contents.tail.unwrap_or((NONE, 0));
        let (nlink, xattr) = (self.links[inode], self.xattr(inode));
        let short = (u32::try_from(contents.start), u32::try_from(len));
        match short {
            (Ok(start), Ok(len)) if nlink == 1 && xattr == NONE && contents.sparse == 0 => {
                self.write_common(inode, FileType::File, false)?;
                let file = wire::File {
                    blocks_start: start.into(),
                    fragment: fragment.into(),
                    fragment_offset: fragment_offset.into(),
                    len: len.into(),
                };
                self.inodes.append(file.as_bytes())?;
            }
            _ => {
                self.write_common(inode, FileType::File, true)?;
                let file = wire::ExtFile {
                    blocks_start: contents.start.into(),
                    len: len.into(),
                    // Linux takes it from the length, for the count of 512-byte sectors.
                    sparse: contents.sparse.min(len.saturating_sub(1)).into(),
                    nlink: nlink.into(),
                    fragment: fragment.into(),
                    fragment_offset: fragment_offset.into(),
                    xattr: xattr.into(),
                };
                self.inodes.append(file.as_bytes())?;
            }
        }
        for block in &contents.blocks {
            self.inodes.append(&block.encode().to_le_bytes())?;
        }
        Ok(())
    }

    fn write_symlink(&mut self, inode: InodeId, target: &[u8]) -> Result<()> {
        let target_len = u32::try_from(target.len())
            .ok()
            .filter(|len| (1..=wire::MAX_TARGET).contains(len))
            .ok_or_else(|| {
                Error::limit(
                    "the target of a symbolic link",
                    target.len() as u64,
                    wire::MAX_TARGET.into(),
                )
            })?;
        let xattr = self.xattr(inode);
        self.write_common(inode, FileType::Symlink, xattr != NONE)?;
        let link = wire::Symlink {
            nlink: self.links[inode].into(),
            target_len: target_len.into(),
        };
        self.inodes.append(link.as_bytes())?;
        self.inodes.append(target)?;
        self.write_xattr(xattr)
    }

    fn write_device(&mut self, inode: InodeId, kind: FileType, device: Device) -> Result<()> {
        let Device { major, minor } = device;
        let rdev = wire::encode_rdev(major, minor).ok_or_else(|| {
            Error::input(format!(
                "device number is {major}:{minor}, allowed is at most 4095:1048575"
            ))
        })?;
        let xattr = self.xattr(inode);
        self.write_common(inode, kind, xattr != NONE)?;
        let device = wire::Device {
            nlink: self.links[inode].into(),
            rdev: rdev.into(),
        };
        self.inodes.append(device.as_bytes())?;
        self.write_xattr(xattr)
    }

    fn write_ipc(&mut self, inode: InodeId, kind: FileType) -> Result<()> {
        let xattr = self.xattr(inode);
        self.write_common(inode, kind, xattr != NONE)?;
        let ipc = wire::Ipc {
            nlink: self.links[inode].into(),
        };
        self.inodes.append(ipc.as_bytes())?;
        self.write_xattr(xattr)
    }

    /// The index at the end of extended inodes.
    fn write_xattr(&mut self, xattr: u32) -> Result<()> {
        match xattr {
            NONE => Ok(()),
            _ => self.inodes.append(&xattr.to_le_bytes()),
        }
    }

    fn write_directory(&mut self, inode: InodeId, listing: &Listing) -> Result<()> {
        let parent = match inode {
            // The root's parent has the number that no inode has.
            0 => self.numbers[0].wrapping_add(1),
            _ => self.numbers[self.parents[inode]],
        };
        let (nlink, xattr) = (self.links[inode], self.xattr(inode));
        let block = block_of(listing.start, "the directory table")?;
        let offset = offset_of(listing.start);
        let stored_len = listing.len + UNSTORED;
        match u16::try_from(stored_len) {
            Ok(len) if xattr == NONE && listing.index.is_empty() => {
                self.write_common(inode, FileType::Directory, false)?;
                let directory = wire::Directory {
                    listing_block: block.into(),
                    nlink: nlink.into(),
                    listing_len: len.into(),
                    listing_offset: offset.into(),
                    parent: parent.into(),
                };
                self.inodes.append(directory.as_bytes())
            }
            _ => {
                self.write_common(inode, FileType::Directory, true)?;
                let directory = wire::ExtDirectory {
                    nlink: nlink.into(),
                    listing_len: stored_len.into(),
                    listing_block: block.into(),
                    parent: parent.into(),
                    // `write_listing` keeps the index below 2^16 entries.
                    index_count: u16::try_from(listing.index.len())
                        .unwrap_or(u16::MAX)
                        .into(),
                    listing_offset: offset.into(),
                    xattr: xattr.into(),
                };
                self.inodes.append(directory.as_bytes())?;
                for (index, name) in &listing.index {
                    self.inodes.append(index.as_bytes())?;
                    self.inodes.append(name)?;
                }
                Ok(())
            }
        }
    }

    fn write_listing(&mut self, directory: InodeId) -> Result<Listing> {
        let tree = self.tree;
        let start = self.directories.position()?;
        let mut listing = Listing {
            start,
            len: 0,
            index: Vec::new(),
        };
        let mut entries = tree.entries(directory);
        // The decoded metadata block of the last header that the index, or the inode, points to.
        let mut indexed = 0;
        while !entries.is_empty() {
            let (run, bytes) = self.run(entries, listing.len as usize + start.offset())?;
            let (now, later) = entries.split_at(run);
            let block = (listing.len as usize + start.offset()) / METADATA_BLOCK;
            if block > indexed && listing.index.len() < MAX_INDEX {
                let name = &now[0].0;
                let index = DirIndex {
                    listing_pos: listing.len.into(),
                    block: block_of(self.directories.position()?, "the directory table")?.into(),
                    name_len: name_len(name)?.into(),
                };
                listing.index.push((index, name.clone()));
                indexed = block;
            }
            self.directories.append(&bytes)?;
            // A listing passes 4 GiB only with more entries than there are inode numbers.
            let len = u32::try_from(bytes.len())
                .ok()
                .and_then(|len| listing.len.checked_add(len));
            listing.len = len
                .filter(|len| len.checked_add(UNSTORED).is_some())
                .ok_or_else(|| {
                    Error::limit("the listing of a directory", u64::MAX, u32::MAX.into())
                })?;
            entries = later;
        }
        Ok(listing)
    }

    /// The longest run of `entries` that can stand behind one header: how many, and their bytes.
    ///
    /// A header that starts at decoded byte `at` of the table ends its run where the next metadata
    /// block starts, so that an index can point to the next header.
    fn run(&self, entries: &[(Box<[u8]>, InodeId)], at: usize) -> Result<(usize, Vec<u8>)> {
        let reference = |inode: InodeId| {
            self.references[inode].ok_or_else(|| Error::input("an inode was not written"))
        };
        let first = entries[0].1;
        let block = reference(first)?.block();
        let base = self.numbers[first];
        let mut bytes = vec![0; size_of::<Header>()];
        let mut count = 0u32;
        for (name, inode) in entries {
            let position = reference(*inode)?;
            let delta = i64::from(self.numbers[*inode]) - i64::from(base);
            let Ok(delta) = i16::try_from(delta) else {
                break;
            };
            let len = size_of::<Entry>() + name.len();
            let crosses = (at + bytes.len() + len) / METADATA_BLOCK > at / METADATA_BLOCK;
            if count == MAX_RUN || position.block() != block || (crosses && count > 0) {
                break;
            }
            let entry = Entry {
                inode_offset: offset_of(position).into(),
                number_delta: delta.into(),
                kind: file_type(&self.tree.inodes[*inode].kind).to_wire().into(),
                name_len: u16::try_from(name_len(name)?).unwrap_or(u16::MAX).into(),
            };
            bytes.extend_from_slice(entry.as_bytes());
            bytes.extend_from_slice(name);
            count += 1;
        }
        let header = Header {
            count: (count - 1).into(),
            inode_block: block_of(reference(first)?, "the inode table")?.into(),
            inode_number: base.into(),
        };
        bytes[..size_of::<Header>()].copy_from_slice(header.as_bytes());
        Ok((count as usize, bytes))
    }
}

/// The block as 32 bits, which is what inodes and listings have for it.
fn block_of(position: MetaRef, table: &'static str) -> Result<u32> {
    u32::try_from(position.block())
        .map_err(|_| Error::limit(table, position.block(), u32::MAX.into()))
}

fn offset_of(position: MetaRef) -> u16 {
    // A `MetaRef` has an offset below 8192.
    u16::try_from(position.offset()).unwrap_or(u16::MAX)
}

/// The length of a name less one.
fn name_len(name: &[u8]) -> Result<u32> {
    u32::try_from(name.len())
        .ok()
        .and_then(|len| len.checked_sub(1))
        .ok_or_else(|| Error::input("a name is empty"))
}
