//! Where the extended attributes of an image are stored.

use super::lookup_table::LookupTable;
use super::stored_image::StoredImage;
use crate::error::{Allowed, Error, Location, Result};
use crate::format::superblock::Superblock;
use crate::format::table::TableShape;
use crate::format::xattr::TableHeader;

/// Where the extended attributes of an image are stored.
pub(crate) struct XattrTable {
    /// Where the keys and values start.
    pub(crate) pairs: u64,
    /// Where they end: the list of the sets' places.
    pub(crate) end: u64,
    pub(crate) sets: LookupTable,
}

impl XattrTable {
    /// Reads its header, which is stored at `at`.
    pub(crate) fn read(image: &StoredImage, at: u64) -> Result<Self> {
        let mut bytes = [0; size_of::<TableHeader>()];
        image.read_into(at, &mut bytes, "the xattr table")?;
        let header: TableHeader = zerocopy::transmute!(bytes);
        let (first, pairs) = (Superblock::LEN as u64, header.pairs_start.get());
        if !(first..at).contains(&pairs) {
            let allowed = Allowed::Range(first, at.saturating_sub(1));
            let field = "start of the xattrs";
            return Err(Error::field(Location::Byte(at), field, pairs, allowed));
        }
        let shape = TableShape {
            count: header.count.get().into(),
            entry_len: 16,
        };
        let list = at + size_of::<TableHeader>() as u64;
        Ok(Self {
            pairs,
            end: at,
            sets: LookupTable::new("the xattr table", "xattr index", list, shape),
        })
    }
}
