/*!
Hot packs: which one a mount is filled from, filling, and learning one from a launch.

A pack may be at several [`candidate`] places. [`trust`] says whose packs may be used, [`choice`] which of
them is taken, and whether the launch is learned from.

A [`fill`] puts the pages of the pack into the kernel's page cache before a program asks for them. Its
threads ([`fill_work`]) read frames ahead ([`pack_file`], [`batch_ring`]), make the kernel know the names
([`look_ups`]), and store pages by a [`fill_target`]. [`page_states`] knows which pages the program has asked
for by itself, [`fill_end`] when the fill gives up, and [`fill_counts`] what it did.

[`learned_packs`] keeps what is learned from launches. [`learning`] decides what a recorded launch changes
there, and [`pack_maker`] does it.

Nothing here knows FUSE or sessions: both use this room.
*/

mod batch_ring;
pub(crate) mod candidate;
pub(crate) mod choice;
pub(crate) mod fill;
pub(crate) mod fill_counts;
mod fill_end;
pub(crate) mod fill_target;
mod fill_work;
pub(crate) mod learned_packs;
pub(crate) mod learning;
mod look_ups;
mod pack_file;
pub(crate) mod pack_maker;
mod page_states;
mod trust;
