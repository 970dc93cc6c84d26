//! Looking at the files of a cache without being one of its users.

mod damage;
mod explanation;
mod files;
mod handle;
mod index_file;
mod layouts;
mod listing;
mod summary;
mod value;
mod verification;

pub use damage::Damage;
pub use explanation::{Explanation, FoundRecord, FoundSegment, FoundSlot, Outcome};
pub use handle::Inspection;
pub use index_file::IndexMark;
pub use layouts::LayoutStat;
pub use summary::{DataFile, LedgerSummary, Summary};
pub use verification::Verification;
