//! Directory listings, part by part.

use std::collections::VecDeque;
use std::iter::Peekable;
use std::sync::{Mutex, PoisonError};

use brisk_image::listing::ReadDir;
use brisk_image::{Inode, InodeKind};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::node::{Fail, Nodes};
use super::wire::{Dirent, EntryOut};

/// How many cursors are kept.
const CURSORS: usize = 32;

/// Cursors of listings that are probably read on. An image stores a listing so that it can only be read from
/// its start. Without a cursor, each part would be read from there.
#[derive(Default)]
pub(super) struct Listings<'a> {
    /// The last used cursor is first.
    cursors: Mutex<VecDeque<Cursor<'a>>>,
}

/// A position in a listing.
struct Cursor<'a> {
    nodeid: u64,
    /// The position as the kernel counts it: 0 is before ".", 1 before "..", and `n + 2` before entry `n` of
    /// the image.
    offset: u64,
    entries: Peekable<ReadDir<'a>>,
}

impl<'a> Listings<'a> {
    /// At most `size` bytes of the directory with node `nodeid`, from `offset` on: in the form of READDIR, or
    /// with `plus` in the form of READDIRPLUS, with attributes. Calls `known` with each inode that the kernel
    /// knows then. Empty at the end.
    pub(super) fn read(
        &self,
        nodes: Nodes<'a>,
        nodeid: u64,
        offset: u64,
        (size, plus): (usize, bool),
        known: &dyn Fn(&Inode, u64),
    ) -> Result<Vec<u8>, Fail> {
        let directory = nodes.directory(nodeid)?;
        let mut cursor = match self.take(nodeid, offset) {
            Some(cursor) => cursor,
            None => start(nodes, nodeid, &directory, offset)?,
        };
        let mut part = Part {
            bytes: Vec::with_capacity(size),
            size,
            plus,
        };
        let own = u64::from(directory.number());
        while cursor.offset < 2 {
            let (name, ino) = match cursor.offset {
                0 => (".", own),
                _ => ("..", parent_number(nodes, &directory)),
            };
            // "." and ".." need no node, because the kernel knows both.
            let kind = brisk_image::FileType::Directory.mode_bits();
            if !part.push(
                name.as_bytes(),
                ino,
                cursor.offset + 1,
                kind,
                EntryOut::new_zeroed,
            ) {
                break;
            }
            cursor.offset += 1;
        }
        while cursor.offset >= 2 {
            let entry = match cursor.entries.peek() {
                Some(Ok(entry)) => entry,
                // The entries before the fault are this answer, and the fault is the next one.
                Some(Err(_)) if !part.bytes.is_empty() => break,
                Some(Err(_)) | None => match cursor.entries.next() {
                    Some(Err(e)) => return Err(e.into()),
                    _ => break,
                },
            };
            let name = entry.name().as_encoded_bytes();
            let ino = entry.inode_number().into();
            let kind = entry.file_type().mode_bits();
            // The kernel looks up an entry without a node, and gets its fault then.
            let with_node = || match nodes.image.entry_inode(entry) {
                Ok(inode) => {
                    let entry = nodes.entry(&inode);
                    known(&inode, entry.nodeid);
                    entry
                }
                Err(_) => EntryOut::new_zeroed(),
            };
            if !part.push(name, ino, cursor.offset + 1, kind, with_node) {
                break;
            }
            cursor.entries.next();
            cursor.offset += 1;
        }
        if !part.bytes.is_empty() {
            self.keep(cursor);
        }
        Ok(part.bytes)
    }

    fn take(&self, nodeid: u64, offset: u64) -> Option<Cursor<'a>> {
        let mut cursors = self.cursors.lock().unwrap_or_else(PoisonError::into_inner);
        let i = cursors
            .iter()
            .position(|cursor| cursor.nodeid == nodeid && cursor.offset == offset)?;
        cursors.remove(i)
    }

    fn keep(&self, cursor: Cursor<'a>) {
        let mut cursors = self.cursors.lock().unwrap_or_else(PoisonError::into_inner);
        cursors.push_front(cursor);
        cursors.truncate(CURSORS);
    }
}

/// The cursor at position `offset` of a directory, found by reading from its start.
fn start<'a>(
    nodes: Nodes<'a>,
    nodeid: u64,
    directory: &Inode,
    offset: u64,
) -> Result<Cursor<'a>, Fail> {
    let mut entries = nodes.image.read_dir(directory)?;
    for _ in 2..offset {
        match entries.next() {
            Some(entry) => entry?,
            // A position after the end is the end.
            None => break,
        };
    }
    Ok(Cursor {
        nodeid,
        offset,
        entries: entries.peekable(),
    })
}

/// The inode number of the parent of `directory`. The root is its own parent.
fn parent_number(nodes: Nodes<'_>, directory: &Inode) -> u64 {
    match directory.kind() {
        InodeKind::Directory(dir) if directory.reference() != nodes.image.root_reference() => {
            dir.parent_number().into()
        }
        _ => directory.number().into(),
    }
}

/// The entries of a listing in the form of READDIRPLUS that have a node.
pub(super) fn entries(mut part: &[u8]) -> impl Iterator<Item = (EntryOut, &[u8])> {
    let next = move || {
        let (entry, rest) = EntryOut::read_from_prefix(part).ok()?;
        let (dirent, rest) = Dirent::read_from_prefix(rest).ok()?;
        let name = rest.get(..usize::try_from(dirent.namelen).ok()?)?;
        let len = size_of::<EntryOut>() + size_of::<Dirent>() + name.len();
        part = part.get(len.next_multiple_of(8)..).unwrap_or(&[]);
        Some((entry, name))
    };
    std::iter::from_fn(next).filter(|(entry, _)| entry.nodeid != 0)
}

/// A part of a listing while it is built.
pub(super) struct Part {
    pub(super) bytes: Vec<u8>,
    pub(super) size: usize,
    pub(super) plus: bool,
}

impl Part {
    /// Adds an entry. False if there is no room for it. `next` is the position after it, and `kind` its type
    /// as in `st_mode`.
    pub(super) fn push(
        &mut self,
        name: &[u8],
        ino: u64,
        next: u64,
        kind: u32,
        node: impl FnOnce() -> EntryOut,
    ) -> bool {
        let plus = if self.plus { size_of::<EntryOut>() } else { 0 };
        let len = (plus + size_of::<Dirent>() + name.len()).next_multiple_of(8);
        let Ok(namelen) = u32::try_from(name.len()) else {
            return false;
        };
        if self.bytes.len() + len > self.size {
            return false;
        }
        let end = self.bytes.len() + len;
        if self.plus {
            self.bytes.extend_from_slice(node().as_bytes());
        }
        let dirent = Dirent {
            ino,
            off: next,
            namelen,
            kind: kind >> 12,
        };
        self.bytes.extend_from_slice(dirent.as_bytes());
        self.bytes.extend_from_slice(name);
        self.bytes.resize(end, 0);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_listed_with_nodes_is_read_again() {
        let mut part = Part {
            bytes: Vec::new(),
            size: 4096,
            plus: true,
        };
        for (name, nodeid) in [(".", 0), ("a", 7), ("eight888", 8), ("ninecharss", 9)] {
            let entry = || EntryOut {
                nodeid,
                ..EntryOut::new_zeroed()
            };
            assert!(part.push(name.as_bytes(), 1, 1, 0, entry));
        }
        let found: Vec<_> = entries(&part.bytes)
            .map(|(e, name)| (e.nodeid, name))
            .collect();
        assert_eq!(
            found,
            [(7, &b"a"[..]), (8, b"eight888"), (9, b"ninecharss")]
        );
    }
}
