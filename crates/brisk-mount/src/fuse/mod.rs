//! Answers the kernel's FUSE requests from an image.
//!
//! Nothing in an image changes, so the kernel is told to keep whatever it is told: names, absent
//! names too, attributes, listings, targets of links and contents. A node of the file system is
//! an inode's place in the image, so that no table of nodes exists: memory stays flat, and a server
//! that takes the place of a dead one knows every node that the kernel holds.
//!
//! [`channel`] carries requests and answers, [`connection`] agrees on the protocol once,
//! [`server`] answers on some threads with what a [`file_system`] says, and [`recorder`] takes note
//! of it where a launch is recorded. [`image`] is the file system, with [`node`] and [`listing`];
//! [`read_ahead`] has another thread do what would be asked for next, of the same file and of its
//! [`neighbours`], and a [`Fill`](crate::hot_pack::fill::Fill) does so from a hot pack. [`directory`] is another
//! file system, for recording what a launch from a plain tree asks for.

pub(crate) mod channel;
pub(crate) mod connection;
pub(crate) mod directory;
pub(crate) mod file_system;
pub(crate) mod image;
pub(crate) mod listing;
mod neighbours;
pub(crate) mod node;
pub(crate) mod options;
pub(crate) mod owners;
pub(crate) mod read_ahead;
pub(crate) mod readers;
pub(crate) mod recorder;
pub(crate) mod serve_counters;
pub(crate) mod server;
mod wire;
