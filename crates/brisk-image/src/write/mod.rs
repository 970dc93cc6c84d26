//! Writing images: a tree, a plan of it, and what turns both into bytes.

pub(crate) mod data_writer;
pub(crate) mod dir_source;
pub(crate) mod duplicates;
pub(crate) mod image_source;
pub(crate) mod image_writer;
pub(crate) mod inode_writer;
pub(crate) mod losses;
pub(crate) mod metadata_writer;
pub(crate) mod mode_change;
pub(crate) mod output;
pub(crate) mod recipe;
pub(crate) mod rules;
mod tar;
pub(crate) mod tree;
pub(crate) mod xattr_writer;
