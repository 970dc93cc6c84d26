//! What is stored of an index page: see docs/pyindex.md.

mod index_table;
mod interner;
mod maker;
mod record;
mod wire;

pub use index_table::{FileRecord, IndexTable, LeftOut, PackageTable};
pub(crate) use maker::TableMaker;
pub(crate) use wire::{FileFlags, FileRow};
