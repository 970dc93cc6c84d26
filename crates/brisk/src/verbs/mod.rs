//! One file per verb.

pub mod info;
pub mod ls;
