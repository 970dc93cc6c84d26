//! One file per verb.

pub mod cat;
pub mod completions;
pub mod extract;
pub mod ls;
pub mod man;
pub mod pack;
