//! One file per verb.

pub mod auto;
pub mod cache;
pub mod cat;
pub mod completions;
pub mod diff;
pub mod doctor;
pub mod extract;
pub mod hot;
pub mod info;
pub mod ls;
pub mod man;
pub mod mount;
pub mod pack;
pub mod profile;
pub mod publish;
pub mod repack;
pub mod replay;
pub mod run;
pub mod sign;
pub mod stat;
pub mod trace;
pub mod umount;
pub mod verify;
pub mod verity;
pub mod warm;
pub mod wrap;
