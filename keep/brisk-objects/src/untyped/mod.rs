//! Databases whose types only the file tells.

mod check;
mod collection;
mod database;
pub(crate) mod pages;
mod parts;
mod plain;
mod query;
mod schema_text;
pub(crate) mod state;
mod writer;

pub use check::Fault;
pub use collection::UntypedCollection;
pub(crate) use database::existing;
pub use database::{TableSize, UntypedDatabase};
pub use pages::PageFaults;
pub use plain::{Misread, Plain};
pub use query::{UntypedQuery, UntypedRecords};
pub use writer::UntypedWriter;
