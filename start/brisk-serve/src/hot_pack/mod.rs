/*!
Hot packs: choosing one for a mount, filling memory from it, and learning one from a launch.

A pack may be at several [`candidate`] places. [`choice`] decides which of them is used, and whether brisk learns from
the launch. A pack that anybody may have made is first subject to a [`comparison`] with its image; until then, its pages
come from the image ([`image_blocks`]).

A [`fill`] puts the pages of the pack into the kernel's page cache before a program asks for them. Its threads
([`fill_work`]) read frames ahead ([`pack_file`], [`batch_ring`]), tell the kernel the names ([`look_ups`]), and
store pages in a [`fill_target`]. [`page_states`] knows which pages the program has asked for already, [`fill_end`]
decides when the fill gives up, and [`fill_counts`] counts what it did. An image and its pack may still arrive
([`fill_sources`]). [`late_pages`] answers what the program asks for before
it is stored. Both take pages from [`decoded_frames`]. When a later program comes, a [`cache_sample`] says what the kernel has
dropped meanwhile, and the fill stores that again.

[`brisk_launch::learn`] keeps what brisk learns from launches and decides what a recorded launch changes there, and
[`pack_maker`] does it.

This module knows neither FUSE nor sessions. Both use it.
*/

mod batch_ring;
mod cache_sample;
pub(crate) mod candidate;
pub(crate) mod choice;
pub(crate) mod comparison;
mod decoded_frames;
pub(crate) mod fill;
pub(crate) mod fill_counts;
mod fill_end;
pub(crate) mod fill_sources;
pub(crate) mod fill_target;
mod fill_work;
mod image_blocks;
mod late_pages;
mod look_ups;
mod pack_file;
#[cfg(feature = "learning")]
pub(crate) mod pack_maker;
mod page_states;
