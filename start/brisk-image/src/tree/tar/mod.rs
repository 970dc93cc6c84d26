//! A tree to be packed from a tar archive: the archive's bytes, its headers and extensions, its
//! entries, and what extracting them would make.

mod decimal;
mod header;
mod input;
mod pax_records;
mod reader;
mod source;
mod sparse;
