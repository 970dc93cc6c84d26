//! One file per verb.

pub mod cat;
pub mod ls;
pub mod pack;
