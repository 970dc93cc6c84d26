//! Writing images: what turns a tree and a plan of it into bytes.

pub(crate) mod data_writer;
pub(crate) mod duplicates;
mod hot_pack;
pub(crate) mod image_writer;
pub(crate) mod inode_writer;
pub(crate) mod metadata_writer;
pub(crate) mod recipe;
pub(crate) mod stream_output;
pub(crate) mod summary;
pub(crate) mod xattr_writer;
