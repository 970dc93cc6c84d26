//! What the bytes of an image mean: wire structs, their checks, and the types that come out.
//!
//! Nothing here reads or writes a file. Sources: Linux `Documentation/filesystems/squashfs.rst`,
//! and `docs/image-format.md` of this project, whose offset tables are tested against the
//! constants below.
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::unwrap_used
    )
)]

pub(crate) mod codec_options;
pub(crate) mod data_block;
pub(crate) mod dir_listing;
#[cfg(feature = "sections")]
pub(crate) mod entry_point;
pub(crate) mod inode;
pub(crate) mod metadata;
#[cfg(feature = "profile")]
pub(crate) mod path_rules;
#[cfg(feature = "sections")]
pub(crate) mod section;
pub(crate) mod superblock;
pub(crate) mod table;
#[cfg(feature = "verity")]
pub(crate) mod verity_superblock;
pub(crate) mod xattr;

/// Bytes of the longest path that Linux takes, with its final zero.
pub(crate) const PATH_MAX: usize = 4096;

#[cfg(all(test, feature = "profile"))]
#[path = "../../docs/offset_tables.rs"]
mod offset_tables;

#[cfg(all(test, feature = "profile"))]
mod tests {
    use super::offset_tables::{rows, table_of};
    use super::{inode, section, superblock};
    use crate::hot_pack::format as hot_pack;

    const PAGE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/image-format.md"));

    const HOT_PACKS: &str = include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/docs/hot-pack-format.md"
    ));

    fn table(title: &str) -> Vec<(usize, usize, &'static str)> {
        table_of(PAGE, title)
    }

    #[test]
    fn the_page_has_the_offsets_of_the_code() {
        let rows = rows!(superblock::Wire {
            magic,
            inode_count,
            mkfs_time,
            block_size,
            fragment_count,
            compressor,
            block_log,
            flags,
            id_count,
            major,
            minor,
            root_inode,
            bytes_used,
            id_table,
            xattr_table,
            inode_table,
            directory_table,
            fragment_table,
            export_table
        });
        assert_eq!(table("Superblock"), rows);
        let rows = rows!(inode::Common {
            kind,
            mode,
            uid_index,
            gid_index,
            mtime,
            number
        });
        assert_eq!(table("Inodes"), rows);
        let rows = rows!(section::Wire {
            magic,
            kind,
            version,
            len,
            digest,
            reserved
        });
        assert_eq!(table("Sections"), rows);
        #[cfg(feature = "verity")]
        {
            let rows = rows!(super::verity_superblock::Wire {
                signature,
                version,
                hash_type,
                uuid,
                algorithm,
                data_block_size,
                hash_block_size,
                data_blocks,
                salt_size,
                reserved,
                salt,
                unused
            });
            assert_eq!(table("The verity tree"), rows);
        }
    }
    #[test]
    fn the_page_of_hot_packs_has_the_offsets_of_the_code() {
        let table = |title| table_of(HOT_PACKS, title);
        let rows = rows!(hot_pack::HeaderWire {
            magic,
            version,
            codec,
            table_stored,
            table_len,
            data_stored,
            data_len,
            pages,
            checksum
        });
        assert_eq!(table("Header"), rows);
        let rows = rows!(hot_pack::TableWire {
            kind,
            files,
            directories,
            ranges,
            look_ups,
            frames,
            names,
            neighbours,
            identity
        });
        assert_eq!(table("Table"), rows);
        let rows = rows!(hot_pack::FileWire {
            path_start,
            path_len,
            len,
            digest,
            mtime,
            ctime,
            mtime_ns,
            ctime_ns,
            inode
        });
        assert_eq!(table("Files"), rows);
        let rows = rows!(hot_pack::DirectoryWire {
            path_start,
            path_len,
            inode
        });
        assert_eq!(table("Directories"), rows);
        let rows = rows!(hot_pack::RangeWire { file, count, first });
        assert_eq!(table("Ranges"), rows);
        let rows = rows!(hot_pack::LookUpWire {
            directory,
            name_start,
            name_len,
            found,
            before
        });
        assert_eq!(table("Look-ups"), rows);
        let rows = rows!(hot_pack::FrameWire {
            ranges,
            stored,
            checksum
        });
        assert_eq!(table("Frames"), rows);
    }
}
