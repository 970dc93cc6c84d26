//! Answers the kernel's FUSE requests from an image.
//!
//! Nothing in an image changes, so the kernel is told to keep every answer: names, absent names too,
//! attributes, listings, targets of links and contents. A node of the file system is the place of an inode in
//! the image, so that no table of nodes exists. Memory stays flat, and a server that replaces a dead one knows
//! every node that the kernel holds.
//!
//! [`channel`] carries requests and answers, and [`connection`] agrees on the protocol once. Threads of
//! [`server`] answer with what a [`file_system`] says, and a [`recorder`] records the requests of a launch.
//! [`image`] is the file system of an image, with [`node`] and [`listing`]; [`directory`] is that of a plain
//! tree whose launch is recorded. Other threads store what will be asked for next: [`read_ahead`] from blocks
//! that were decoded, with files that are [`neighbours`] in them, and a
//! [`Fill`](crate::hot_pack::fill::Fill) from a hot pack.

pub(crate) mod channel;
pub(crate) mod connection;
pub(crate) mod directory;
pub(crate) mod file_system;
#[cfg(test)]
mod hostile;
pub(crate) mod image;
#[cfg(any(test, feature = "fuzzing"))]
pub mod in_memory;
pub(crate) mod listing;
mod neighbours;
pub(crate) mod node;
pub(crate) mod options;
pub(crate) mod owners;
pub(crate) mod parked;
pub(crate) mod read_ahead;
pub(crate) mod readers;
pub(crate) mod recorder;
pub(crate) mod serve_counters;
pub(crate) mod server;
mod wire;
