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
pub(crate) mod inode;
pub(crate) mod metadata;
pub(crate) mod path_rules;
pub(crate) mod section;
pub(crate) mod superblock;
pub(crate) mod table;
pub(crate) mod xattr;

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::{inode, section, superblock};

    const PAGE: &str = include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/image-format.md"
    ));

    /// The rows `offset, size, field` of the first table behind the heading `title`.
    fn table(title: &str) -> Vec<(usize, usize, &'static str)> {
        let from = PAGE.find(&format!("\n## {title}\n")).unwrap();
        let rows = PAGE[from..]
            .lines()
            .skip_while(|line| !line.starts_with("| offset"))
            .skip(2);
        rows.take_while(|line| line.starts_with('|'))
            .map(|line| {
                let mut cells = line.trim_matches('|').split('|').map(str::trim);
                let mut next = || cells.next().unwrap();
                (next().parse().unwrap(), next().parse().unwrap(), next())
            })
            .collect()
    }

    /// The rows of a wire struct, in the order of its fields.
    macro_rules! rows {
        ($wire:ty { $($field:ident),* }) => {{
            let names = [$(stringify!($field)),*];
            let starts = [$(offset_of!($wire, $field)),*];
            let ends = starts.iter().skip(1).copied().chain([size_of::<$wire>()]);
            let rows = names.iter().zip(starts).zip(ends);
            rows.map(|((name, start), end)| (start, end - start, *name)).collect::<Vec<_>>()
        }};
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
    }
}
