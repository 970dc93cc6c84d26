//! One file per verb.

pub mod ls;
