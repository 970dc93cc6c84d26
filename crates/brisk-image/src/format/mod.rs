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
pub(crate) mod section;
pub(crate) mod superblock;
pub(crate) mod table;
pub(crate) mod xattr;
