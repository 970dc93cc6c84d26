//! Answers from an image.

use std::ffi::OsStr;
use std::io::IoSlice;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use brisk_image::{Image, Inode, InodeKind};
use rustix::io::Errno;

use super::file_system::{FileSystem, SeekTo};
use super::listing::Listings;
use super::node::{Fail, Nodes};
use super::options::ServeOptions;
use super::read_ahead::{Answered, ReadAhead};
use super::readers::Readers;
use super::recorder::Recorder;
use super::wire::{AttrOut, EntryOut, StatfsOut};
use crate::hot_pack::fill::Fill;

/// The longest name, in bytes, as in SquashFS.
const MAX_NAME: u32 = 256;

/// Zeros for holes. A longer hole needs several of these.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// An image to serve.
pub(super) struct ServedImage<'a> {
    pub(super) nodes: Nodes<'a>,
    listings: Listings<'a>,
    readers: Readers,
    pub(super) ahead: Option<ReadAhead>,
    fill: Option<Arc<Fill>>,
    /// While it records, nothing is put into the page cache unasked.
    recorder: Option<Arc<Recorder>>,
}

impl<'a> ServedImage<'a> {
    pub(super) fn new(image: &'a Image, options: &ServeOptions) -> Self {
        Self {
            nodes: Nodes {
                image,
                owners: options.owners,
            },
            listings: Listings::default(),
            readers: Readers::default(),
            ahead: options.read_ahead.then(ReadAhead::default),
            fill: options.fill.clone(),
            recorder: options.exact_recorder().cloned(),
        }
    }
}

impl ServedImage<'_> {
    /// Records that the kernel is about to know a node.
    fn known(&self, inode: &Inode, nodeid: u64) {
        if let Some(ahead) = &self.ahead
            && let Some(block) = self.nodes.image.shared_block(inode)
        {
            ahead.neighbours.know(block, nodeid);
        }
    }
}

impl FileSystem for ServedImage<'_> {
    fn look_up(&self, directory: u64, name: &[u8]) -> Result<Option<EntryOut>, Fail> {
        let directory = self.nodes.directory(directory)?;
        let image = self.nodes.image;
        Ok(
            match image.lookup_in(&directory, OsStr::from_bytes(name))? {
                Some(entry) => {
                    let inode = image.entry_inode(&entry)?;
                    let entry = self.nodes.entry(&inode);
                    self.known(&inode, entry.nodeid);
                    Some(entry)
                }
                None => None,
            },
        )
    }

    fn attributes(&self, node: u64) -> Result<AttrOut, Fail> {
        let inode = self.nodes.inode(node)?;
        Ok(self.nodes.attr_out(&inode))
    }

    fn link(&self, node: u64) -> Result<Vec<u8>, Fail> {
        match self.nodes.inode(node)?.kind() {
            InodeKind::Symlink(target) => Ok(target.as_bytes().to_vec()),
            _ => Err(Errno::INVAL.into()),
        }
    }

    /// Answers with slices of decoded blocks. A short answer would mean the end of the file, so this answers
    /// with all bytes or with EIO.
    fn read(
        &self,
        node: u64,
        offset: u64,
        size: u32,
        answer: &mut dyn FnMut(&[IoSlice<'_>]) -> Result<(), Errno>,
    ) -> Result<u64, Fail> {
        let reader = self.readers.get(self.nodes, node)?;
        let end = offset.saturating_add(size.into()).min(reader.len());
        let late = |fill: &Arc<Fill>| fill.late(node, offset..end, reader.len(), &mut *answer);
        let absent = |fill: &Arc<Fill>| fill.absent_frame(node, offset..end, reader.len());
        if let Some(absent) = self.fill.as_ref().and_then(absent) {
            return Err(Fail::Absent(absent));
        }
        if let Some(answered) = self.fill.as_ref().and_then(late) {
            answered?;
            return Ok(end.saturating_sub(offset));
        }
        let mut pieces = Vec::new();
        let mut at = offset;
        while at < end {
            // At most `size`, which has 32 bits.
            let piece = reader
                .piece(at, (end - at) as usize)
                .map_err(|e| Fail::from(e).of_file(&reader))?;
            at += piece.len() as u64;
            pieces.push(piece);
        }
        let mut slices = Vec::with_capacity(pieces.len());
        for piece in &pieces {
            match piece.as_slice() {
                Some(bytes) => slices.push(IoSlice::new(bytes)),
                None => {
                    let mut left = piece.len();
                    while left > 0 {
                        let zeros = &ZEROS[..left.min(ZEROS.len())];
                        slices.push(IoSlice::new(zeros));
                        left -= zeros.len();
                    }
                }
            }
        }
        answer(&slices)?;
        let recorded = self.recorder.as_ref().is_some_and(|r| r.is_recording());
        if let (Some(ahead), false) = (&self.ahead, recorded) {
            ahead.follow(Answered {
                nodeid: node,
                reader,
                start: offset,
                pieces,
                block_size: self.nodes.image.block_size().into(),
                alone: self.recorder.is_some(),
            });
        }
        Ok(end.saturating_sub(offset))
    }

    /// As the kernel's SquashFS says.
    fn seek(&self, node: u64, offset: u64, to: SeekTo) -> Result<u64, Fail> {
        let reader = self.readers.get(self.nodes, node)?;
        let found = match to {
            SeekTo::Data => reader.next_data(offset),
            SeekTo::Hole => reader.next_hole(offset),
        };
        Ok(found.ok_or(Errno::NXIO)?)
    }

    fn list(&self, node: u64, offset: u64, size: usize, plus: bool) -> Result<Vec<u8>, Fail> {
        let known = |inode: &Inode, nodeid| self.known(inode, nodeid);
        self.listings
            .read(self.nodes, node, offset, (size, plus), &known)
    }

    /// The same as the kernel's SquashFS says: all blocks are in use.
    fn statistics(&self) -> Result<StatfsOut, Fail> {
        let image = self.nodes.image;
        let block_size = image.block_size();
        Ok(StatfsOut {
            blocks: image.bytes_used().div_ceil(block_size.into()),
            bfree: 0,
            bavail: 0,
            files: image.inode_count().into(),
            ffree: 0,
            bsize: block_size,
            namelen: MAX_NAME,
            frsize: block_size,
            padding: 0,
            spare: [0; 6],
        })
    }

    fn xattr(&self, node: u64, name: &[u8]) -> Result<Vec<u8>, Fail> {
        let image = self.nodes.image;
        if !image.has_xattrs() {
            return Err(Errno::NOSYS.into());
        }
        let inode = self.nodes.inode(node)?;
        let xattrs = image.xattrs(&inode)?;
        let found = xattrs.iter().find(|xattr| xattr.name().as_bytes() == name);
        Ok(found.ok_or(Errno::NODATA)?.value().to_vec())
    }

    fn xattr_names(&self, node: u64) -> Result<Vec<u8>, Fail> {
        let image = self.nodes.image;
        if !image.has_xattrs() {
            return Err(Errno::NOSYS.into());
        }
        let inode = self.nodes.inode(node)?;
        let mut names = Vec::new();
        for xattr in image.xattrs(&inode)? {
            names.extend_from_slice(xattr.name().as_bytes());
            names.push(0);
        }
        Ok(names)
    }
}
