//! Extended attributes of an inode.

use std::ffi::{OsStr, OsString};

use super::image::Image;
use super::inode_reader::Inode;
use super::meta_reader::MetaCursor;
use super::open_image::OpenImage;
use crate::error::{Allowed, Corrupt, Error, Location, Result};
use crate::format::metadata::MetaRef;
use crate::format::xattr::{self, Key, MAX_NAMES, MAX_VALUE, Set, Value};
use crate::names;

/// Bytes of all values of an inode. Values may be stored once for many attributes, so 11,000 names
/// of one inode could have 700 MB. Linux keeps a few KiB on most file systems.
const MOST_VALUES: u64 = 4 << 20;

/// An extended attribute.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Xattr {
    pub(crate) name: OsString,
    pub(crate) value: Vec<u8>,
}

impl Xattr {
    /// The whole name, such as `user.comment`.
    pub fn name(&self) -> &OsStr {
        &self.name
    }

    /// The value: any bytes.
    pub fn value(&self) -> &[u8] {
        &self.value
    }
}

impl Image {
    /// The extended attributes of `inode`, in the order in which they are stored.
    ///
    /// An image whose attributes were left out says so by having no table: then there are none.
    pub fn xattrs(&self, inode: &Inode) -> Result<Vec<Xattr>> {
        match inode.xattr {
            Some(index) => self
                .inner
                .read_xattrs(inode, index)
                .map_err(|e| self.name(e)),
            None => Ok(Vec::new()),
        }
    }
}

impl OpenImage {
    fn read_xattrs(&self, inode: &Inode, index: u32) -> Result<Vec<Xattr>> {
        let Some(table) = self.xattr_table()? else {
            return Ok(Vec::new());
        };
        let from = self.inode_cursor(inode.reference)?.location();
        let mut set = [0; size_of::<Set>()];
        table
            .sets
            .read(&self.metadata, index.into(), &mut set, from)?;
        let set: Set = zerocopy::transmute!(set);
        let pairs = MetaRef::parse(set.pairs.get(), from, "start of an inode's xattrs")?;
        let mut cursor = MetaCursor::new(&self.metadata, table.pairs, table.end, pairs)?;
        let mut xattrs = Vec::new();
        let (mut names, mut bytes) = (0, 0);
        for _ in 0..set.count.get() {
            let location = cursor.location();
            let key: Key = cursor.read_wire("an xattr's key")?;
            let (prefix, out_of_line) = xattr::parse_kind(key.kind.get(), location)?;
            let mut name = prefix.as_bytes().to_vec();
            name.extend(cursor.read_vec(key.name_len.get().into(), "an xattr's name")?);
            names += name.len() + 1;
            if names > MAX_NAMES {
                let allowed = Allowed::AtMost(MAX_NAMES as u64);
                return Err(Error::field(
                    location,
                    "length of all xattr names of an inode",
                    names as u64,
                    allowed,
                ));
            }
            if name.contains(&0) {
                let why = "holds a NUL, as no xattr's name may";
                return Err(Error::corrupt(location, Corrupt::Name { name, why }));
            }
            let value = self.read_value(&mut cursor, out_of_line, table.pairs, table.end)?;
            bytes += value.len() as u64;
            let most = MOST_VALUES.min(self.stored.limits.memory);
            if bytes > most {
                return Err(Error::limit("the set of xattrs of an inode", bytes, most));
            }
            xattrs.push(Xattr {
                name: names::from_bytes(name),
                value,
            });
        }
        Ok(xattrs)
    }

    fn read_value(
        &self,
        cursor: &mut MetaCursor<'_>,
        out_of_line: bool,
        start: u64,
        end: u64,
    ) -> Result<Vec<u8>> {
        let location = cursor.location();
        let len = value_len(cursor, location)?;
        if !out_of_line {
            return cursor.read_vec(len, "an xattr's value");
        }
        if len != 8 {
            let field = "length of the reference to an xattr's value";
            return Err(Error::field(location, field, len as u64, Allowed::Only(8)));
        }
        let mut word = [0; 8];
        cursor.read(&mut word, "the reference to an xattr's value")?;
        let at = MetaRef::parse(
            u64::from_le_bytes(word),
            location,
            "start of an xattr's value",
        )?;
        let mut elsewhere = MetaCursor::new(&self.metadata, start, end, at)?;
        let location = elsewhere.location();
        let len = value_len(&mut elsewhere, location)?;
        elsewhere.read_vec(len, "an xattr's value")
    }
}

fn value_len(cursor: &mut MetaCursor<'_>, location: Location) -> Result<usize> {
    let value: Value = cursor.read_wire("an xattr's value")?;
    let len = value.len.get();
    if len > MAX_VALUE {
        return Err(Error::field(
            location,
            "length of an xattr's value",
            len,
            Allowed::AtMost(MAX_VALUE.into()),
        ));
    }
    Ok(len as usize)
}
