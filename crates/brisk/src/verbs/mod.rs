//! One file per verb.

pub mod diff;
pub mod doctor;
pub mod info;
pub mod ls;
pub mod mount;
pub mod run;
pub mod umount;
pub mod verify;
