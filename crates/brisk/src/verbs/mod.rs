//! One file per verb.

pub mod cat;
pub mod extract;
pub mod ls;
pub mod pack;
