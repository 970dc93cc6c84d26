//! What all handles on one image share.

use std::sync::{Arc, OnceLock};

use super::block_reader::BlockReader;
use super::id_table::IdTable;
use super::lookup_table::LookupTable;
use super::meta_reader::MetaReader;
use super::stored_image::StoredImage;
use super::xattr_table::XattrTable;
use crate::codec::CodecOptions;
use crate::error::{Location, Result};
use crate::format::table::TableShape;

/// What all handles on one image share: its stored bytes, the readers of its blocks, and its tables.
///
/// The tables of ids and of extended attributes are read when something first asks for them.
pub(crate) struct OpenImage {
    pub(crate) stored: Arc<StoredImage>,
    pub(crate) codec_options: Option<CodecOptions>,
    pub(crate) metadata: MetaReader,
    pub(crate) blocks: BlockReader,
    pub(crate) fragments: LookupTable,
    /// Where the inode of each number stands.
    pub(crate) exports: Option<LookupTable>,
    ids: OnceLock<IdTable>,
    xattrs: OnceLock<Option<XattrTable>>,
}

impl OpenImage {
    /// Reads the options of the codec, and no table.
    pub(crate) fn new(stored: StoredImage) -> Result<Self> {
        let stored = Arc::new(stored);
        let superblock = &stored.superblock;
        let fragments = TableShape {
            count: superblock.fragment_count().into(),
            entry_len: 16,
        };
        let exports = superblock.export_table().map(|list| {
            let shape = TableShape {
                count: superblock.inode_count().into(),
                entry_len: 8,
            };
            LookupTable::new("the export table", "inode number less one", list, shape)
        });
        Ok(Self {
            codec_options: stored.read_codec_options()?,
            metadata: MetaReader::new(Arc::clone(&stored)),
            blocks: BlockReader::new(Arc::clone(&stored)),
            fragments: LookupTable::new(
                "the fragment table",
                "fragment number",
                // Invariant 6 of the superblock: without a table there are no fragments.
                superblock.fragment_table().unwrap_or(0),
                fragments,
            ),
            exports,
            ids: OnceLock::new(),
            xattrs: OnceLock::new(),
            stored,
        })
    }

    /// The user or group at `index` of the id table, which something at `from` names.
    pub(crate) fn id(&self, index: u16, from: Location) -> Result<u32> {
        let ids = match self.ids.get() {
            Some(ids) => ids,
            None => {
                let ids = IdTable::read(&self.metadata)?;
                self.ids.get_or_init(|| ids)
            }
        };
        ids.id(index, from)
    }

    /// Where attributes are stored; none if the image has none.
    pub(crate) fn xattr_table(&self) -> Result<Option<&XattrTable>> {
        if self.xattrs.get().is_none() {
            let table = match self.stored.superblock.xattr_table() {
                Some(at) => Some(XattrTable::read(&self.stored, at)?),
                None => None,
            };
            // Another thread may have been quicker, with the same result.
            self.xattrs.get_or_init(|| table);
        }
        Ok(self.xattrs.get().and_then(Option::as_ref))
    }
}
