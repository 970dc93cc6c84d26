//! Reading images: from bytes at offsets to directories, inodes, files and their attributes.

pub(crate) mod block_cache;
pub(crate) mod block_list;
pub(crate) mod block_reader;
pub(crate) mod check;
pub(crate) mod contents_budget;
pub(crate) mod dir_reader;
#[cfg(target_os = "linux")]
pub(crate) mod extractor;
pub(crate) mod file_reader;
pub(crate) mod file_stream;
pub(crate) mod id_table;
pub(crate) mod image;
pub(crate) mod inode_reader;
pub(crate) mod limits;
pub(crate) mod locate;
pub(crate) mod lookup_table;
#[cfg(target_os = "linux")]
mod mapped_image;
pub(crate) mod meta_reader;
pub(crate) mod open_image;
mod path_steps;
pub(crate) mod resolver;
#[cfg(feature = "sections")]
pub(crate) mod sections;
pub(crate) mod shared_block;
mod sif;
pub(crate) mod stored_image;
pub(crate) mod usage;
pub(crate) mod walk;
pub(crate) mod xattr_reader;
pub(crate) mod xattr_table;
