//! Hot packs: the pages that a launch asks for, with their bytes, in about the order in which it does.
//!
//! A [`HotPackWriter`] takes them from a tree or an image as a
//! [`Profile`](crate::profile::Profile) says. A [`HotPack`] reads them back.
//! `docs/hot-pack-format.md` describes the format.

mod audit;
#[cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::unwrap_used
    )
)]
pub(crate) mod format;
pub(crate) mod reader;
pub(crate) mod writer;

pub use audit::{Audit, Audited, AuditedFile};
pub use reader::{FrameReader, HotChecked, HotFile, HotFrame, HotLookUp, HotPack};
pub use writer::{HotPackWriter, HotSummary, Prefer, WrittenLookUps};
