//! A tree to be packed from a tar archive: the archive's bytes, its headers and extensions, its
//! entries, and what extracting them would make.

#[cfg(feature = "layers")]
pub(crate) mod archive_index;
mod decimal;
mod header;
mod input;
#[cfg(feature = "layers")]
pub(crate) mod layer;
#[cfg(feature = "layers")]
mod layers;
mod pax_records;
mod reader;
mod source;
mod sparse;
#[cfg(feature = "layers")]
mod whiteout;
