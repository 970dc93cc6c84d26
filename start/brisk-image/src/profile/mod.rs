//! Profiles: what a launch asked for, and where its files are.
//!
//! A [`ProfileBuilder`] records a [`Profile`]. An [`Origin`] is the tree or the image that a profile is
//! compared with.

pub(crate) mod builder;
pub(crate) mod compare;
pub(crate) mod digests;
mod launch_profile;
pub(crate) mod merge;
pub(crate) mod origin;
pub(crate) mod page_set;
pub(crate) mod staleness;
pub(crate) mod text;

pub use builder::{Named, ProfileBuilder, Recorded, RootId};
pub use compare::{PagesOfBoth, ProfileDifference};
pub use launch_profile::{
    Asked, Demand, LookUp, PAGE, PageRange, Profile, ProfileDirectory, ProfileFile, Ready, Root,
    RootKind, Step,
};
pub use origin::Origin;
pub use staleness::{FileState, PagesByState, Staleness};
