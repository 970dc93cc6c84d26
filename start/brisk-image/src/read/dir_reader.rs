//! Listing directories, and finding a name in one.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use zerocopy::FromBytes;

use super::image::Image;
use super::inode_reader::{Directory, Inode, InodeKind, InodeRef};
use super::meta_reader::MetaCursor;
use super::open_image::OpenImage;
use super::path_steps::{Step, steps};
use crate::error::{Allowed, Corrupt, Error, Location, Result};
use crate::format::dir_listing::{DirIndex, Entry, Header, MAX_NAME, check_name};
use crate::format::inode::FileType;
use crate::format::metadata::{METADATA_BLOCK, MetaRef};
use crate::names;

/// A name in a directory, and what it leads to.
#[derive(Debug, Clone)]
pub struct DirEntry {
    name: OsString,
    kind: FileType,
    reference: InodeRef,
    number: u32,
}

impl DirEntry {
    /// The name: 1 to 256 bytes, without a slash or NUL, and neither "." nor "..".
    pub fn name(&self) -> &OsStr {
        &self.name
    }

    /// What the name leads to.
    pub fn file_type(&self) -> FileType {
        self.kind
    }

    /// Where the inode stands.
    pub fn reference(&self) -> InodeRef {
        self.reference
    }

    /// The inode's number.
    pub fn inode_number(&self) -> u32 {
        self.number
    }
}

/// The entries of a directory, sorted by the bytes of their names, each name once.
pub struct ReadDir<'a> {
    image: &'a Image,
    listing: Listing<'a>,
}

impl Iterator for ReadDir<'_> {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        self.listing
            .next_entry()
            .map_err(|e| self.image.name(e))
            .transpose()
    }
}

/// Where one is in a listing.
///
/// 1. `left` is what is left of the listing, in bytes; an empty one is never read.
struct Listing<'a> {
    /// None for an empty directory, which may be said to stand anywhere, and after a fault.
    cursor: Option<MetaCursor<'a>>,
    left: u32,
    header: Option<Header>,
    /// Entries left behind the current header.
    run: u32,
    /// The name of the entry that was read last, and of the one before. A look-up reads hundreds of names, so they are read into the
    /// same memory.
    name: Vec<u8>,
    previous: Vec<u8>,
}

/// An entry without its name.
struct Nameless {
    kind: FileType,
    reference: InodeRef,
    number: u32,
}

impl Nameless {
    fn called(self, name: &[u8]) -> DirEntry {
        DirEntry {
            name: names::from_bytes(name),
            kind: self.kind,
            reference: self.reference,
            number: self.number,
        }
    }
}

impl<'a> Listing<'a> {
    fn new(image: &'a OpenImage, directory: &Directory) -> Result<Self> {
        Self::at(image, directory.listing, directory.listing_len)
    }

    fn at(image: &'a OpenImage, from: MetaRef, left: u32) -> Result<Self> {
        let cursor = match left {
            0 => None,
            _ => {
                let start = image.stored.superblock.directory_table();
                let end = image.stored.superblock.directory_table_end();
                Some(MetaCursor::new(&image.metadata, start, end, from)?)
            }
        };
        Ok(Self {
            cursor,
            left,
            header: None,
            run: 0,
            name: Vec::new(),
            previous: Vec::new(),
        })
    }

    fn next_entry(&mut self) -> Result<Option<DirEntry>> {
        let entry = self.read_entry();
        if entry.is_err() {
            self.cursor = None;
        }
        Ok(entry?.map(|entry| entry.called(&self.name)))
    }

    /// The entry called `name`, or none.
    fn find(mut self, name: &[u8]) -> Result<Option<DirEntry>> {
        loop {
            self.pass_over(name);
            let Some(entry) = self.read_entry()? else {
                return Ok(None);
            };
            match self.name.as_slice().cmp(name) {
                std::cmp::Ordering::Less => {}
                std::cmp::Ordering::Equal => return Ok(Some(entry.called(name))),
                std::cmp::Ordering::Greater => return Ok(None),
            }
        }
    }

    /// Steps over entries before `name` that stand behind the current header and in the current block: a look-up passes hundreds.
    /// It leaves all others to [`Listing::read_entry`], and what is wrong, too.
    fn pass_over(&mut self, name: &[u8]) {
        let Some(cursor) = &mut self.cursor else {
            return;
        };
        while self.run > 0
            && let Some(len) = len_before(cursor.rest(), name)
            && let Some(left) = self.left.checked_sub(len)
        {
            cursor.skip(len);
            self.left = left;
            self.run -= 1;
        }
    }

    /// The next entry, whose name is then in `name`.
    fn read_entry(&mut self) -> Result<Option<Nameless>> {
        let Some(cursor) = &mut self.cursor else {
            return Ok(None);
        };
        let location = cursor.location();
        let header = match self.header {
            Some(header) if self.run > 0 => header,
            _ if self.left == 0 => return Ok(None),
            _ => {
                spend(
                    &mut self.left,
                    size_of::<Header>(),
                    location,
                    "a directory listing's header",
                )?;
                let header: Header = cursor.read_wire("a directory listing's header")?;
                self.run = header.entries(location)?;
                self.header = Some(header);
                header
            }
        };
        self.run -= 1;
        let location = cursor.location();
        let what = "a directory entry";
        spend(&mut self.left, size_of::<Entry>(), location, what)?;
        let entry: Entry = cursor.read_wire(what)?;
        let name_len = usize::from(entry.name_len.get()) + 1;
        if name_len > MAX_NAME {
            let found = entry.name_len.get();
            return Err(Error::field(
                location,
                "name length less one of a directory entry",
                found,
                Allowed::AtMost(255),
            ));
        }
        spend(&mut self.left, name_len, location, what)?;
        std::mem::swap(&mut self.previous, &mut self.name);
        self.name.resize(name_len, 0);
        cursor.read(&mut self.name, what)?;
        check_name(&self.name, &self.previous, location)?;
        let kind = FileType::from_entry(entry.kind.get(), location)?;
        let block = header.inode_block.get().into();
        let reference = MetaRef::new(
            block,
            entry.inode_offset.get(),
            location,
            "inode offset of a directory entry",
        )?;
        Ok(Some(Nameless {
            kind,
            reference: InodeRef(reference),
            number: header
                .inode_number
                .get()
                .wrapping_add_signed(entry.number_delta.get().into()),
        }))
    }
}

/// Bytes of the entry at the start of `listing`, if all of it is there and its name comes before `name`.
fn len_before(listing: &[u8], name: &[u8]) -> Option<u32> {
    let (entry, behind) = Entry::ref_from_prefix(listing).ok()?;
    let name_len = usize::from(entry.name_len.get()) + 1;
    let found = behind.get(..name_len).filter(|_| name_len <= MAX_NAME)?;
    let len = u32::try_from(size_of::<Entry>() + name_len).ok()?;
    (found < name).then_some(len)
}

/// Takes `n` bytes off what is left of a listing.
fn spend(left: &mut u32, n: usize, at: Location, what: &'static str) -> Result<()> {
    match u32::try_from(n).ok().and_then(|n| left.checked_sub(n)) {
        Some(rest) => *left = rest,
        None => {
            let (need, have) = (n as u64, u64::from(*left));
            return Err(Error::corrupt(at, Corrupt::Truncated { what, need, have }));
        }
    }
    Ok(())
}

impl Image {
    /// The entries of the directory `inode`.
    ///
    /// # Errors
    ///
    /// `Corrupt` if the listing is damaged, and `Input` if `inode` is no directory.
    pub fn read_dir(&self, inode: &Inode) -> Result<ReadDir<'_>> {
        let directory = directory_of(inode)?;
        let listing = Listing::new(&self.inner, directory).map_err(|e| self.name(e))?;
        Ok(ReadDir {
            image: self,
            listing,
        })
    }

    /// The entry called `name` in the directory `inode`, or none.
    ///
    /// In a large directory only the part of the listing that can hold the name is read, if the
    /// image has an index of it.
    pub fn lookup_in(&self, inode: &Inode, name: &OsStr) -> Result<Option<DirEntry>> {
        let directory = directory_of(inode)?;
        let found = self.find(directory, &names::to_bytes(name));
        found.map_err(|e| self.name(e))
    }

    fn find(&self, directory: &Directory, name: &[u8]) -> Result<Option<DirEntry>> {
        let (from, skipped) = self.nearest_header(directory, name)?;
        let left = directory.listing_len.saturating_sub(skipped);
        Listing::at(&self.inner, from, left)?.find(name)
    }

    /// The last header of the listing whose first name is at most `name`, among those the index
    /// knows, and the bytes of the listing before it.
    fn nearest_header(&self, directory: &Directory, name: &[u8]) -> Result<(MetaRef, u32)> {
        let mut best = (directory.listing, 0);
        let Some((count, pos)) = directory.index else {
            return Ok(best);
        };
        let mut cursor = self.inner.inode_cursor_at(pos)?;
        let mut first = Vec::new();
        for _ in 0..count {
            let at = cursor.location();
            let what = "a directory index entry";
            let index: DirIndex = cursor.read_wire(what)?;
            let name_len = index.name_len.get();
            if name_len as usize >= MAX_NAME {
                let field = "name length less one of a directory index entry";
                return Err(Error::field(at, field, name_len, Allowed::AtMost(255)));
            }
            first.resize(name_len as usize + 1, 0);
            cursor.read(&mut first, what)?;
            if first.as_slice() > name {
                break;
            }
            let skipped = index.listing_pos.get();
            if skipped >= directory.listing_len {
                let allowed = Allowed::AtMost(u64::from(directory.listing_len).saturating_sub(1));
                return Err(Error::field(
                    at,
                    "position in a directory index entry",
                    skipped,
                    allowed,
                ));
            }
            // The listing is one run of decoded bytes, so its blocks are 8 KiB each.
            let offset = (skipped as usize + directory.listing.offset()) % METADATA_BLOCK;
            let offset = u16::try_from(offset).unwrap_or(0);
            let header = MetaRef::new(
                index.block.get().into(),
                offset,
                at,
                "block of a directory index entry",
            )?;
            best = (header, skipped);
        }
        Ok(best)
    }

    /// The inode at `path`, which is taken from the root whether it starts with a slash or not.
    ///
    /// Symbolic links are not followed, neither at the end nor on the way, so a path through one
    /// leads to nothing; [`Image::resolve`] follows them. Returns none if nothing is there.
    pub fn lookup(&self, path: impl AsRef<Path>) -> Result<Option<Inode>> {
        let mut inode = self.root()?;
        for step in steps(&names::to_bytes(path.as_ref().as_os_str())) {
            match step {
                Step::Root => {}
                Step::Up => return Ok(None),
                Step::Down(name) => {
                    let InodeKind::Directory(directory) = &inode.kind else {
                        return Ok(None);
                    };
                    match self.inode_in(directory, name)? {
                        Some(found) => inode = found,
                        None => return Ok(None),
                    }
                }
            }
        }
        Ok(Some(inode))
    }

    /// The inode called `name` in a directory, or none.
    pub(super) fn inode_in(&self, directory: &Directory, name: &[u8]) -> Result<Option<Inode>> {
        let entry = self.find(directory, name).map_err(|e| self.name(e))?;
        entry.map(|entry| self.entry_inode(&entry)).transpose()
    }

    /// The inode of a directory entry, checked to be of the type that the entry says.
    pub fn entry_inode(&self, entry: &DirEntry) -> Result<Inode> {
        let inode = self.inode(entry.reference)?;
        if inode.file_type() != entry.kind {
            let fault = Corrupt::EntryType {
                entry: entry.kind.name(),
                inode: inode.file_type().name(),
            };
            let at = self.inner.inode_cursor(entry.reference)?.location();
            return Err(self.name(Error::corrupt(at, fault)));
        }
        Ok(inode)
    }
}

fn directory_of(inode: &Inode) -> Result<&Directory> {
    match &inode.kind {
        InodeKind::Directory(directory) => Ok(directory),
        _ => Err(Error::input(format!(
            "inode {} is a {} and not a directory",
            inode.number,
            inode.file_type().name()
        ))),
    }
}
