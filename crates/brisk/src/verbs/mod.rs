//! One file per verb.

pub mod ls;
pub mod pack;
