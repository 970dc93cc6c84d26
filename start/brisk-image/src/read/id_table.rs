//! The users and groups of an image.

use super::lookup_table::LookupTable;
use super::meta_reader::MetaReader;
use crate::error::{Allowed, Error, Location, Result};
use crate::format::table::TableShape;

/// Users and groups, which inodes name by their index in this table.
pub(crate) struct IdTable {
    ids: Box<[u32]>,
}

impl IdTable {
    /// Reads all of it: at most 65535 entries.
    pub(crate) fn read(metadata: &MetaReader) -> Result<Self> {
        let superblock = &metadata.image().superblock;
        let count = u64::from(superblock.id_count());
        let shape = TableShape {
            count,
            entry_len: 4,
        };
        let table = LookupTable::new("the id table", "id index", superblock.id_table(), shape);
        let ids = (0..count).map(|i| {
            let mut id = [0; 4];
            table.read(metadata, i, &mut id, Location::Byte(26))?;
            Ok(u32::from_le_bytes(id))
        });
        Ok(Self {
            ids: ids.collect::<Result<_>>()?,
        })
    }

    /// The user or group at `index`, which something at `from` names.
    pub(crate) fn id(&self, index: u16, from: Location) -> Result<u32> {
        self.ids.get(usize::from(index)).copied().ok_or_else(|| {
            let last = (self.ids.len() as u64).saturating_sub(1);
            Error::field(from, "user or group index", index, Allowed::AtMost(last))
        })
    }
}
