//! One file per verb.

pub mod diff;
pub mod info;
pub mod ls;
pub mod verify;
