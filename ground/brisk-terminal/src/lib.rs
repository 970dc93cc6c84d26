//! How the commands of brisk speak.
//!
//! `brisk`, `brisk-proxy`, `brisk-db` and `brisk-lab` are programs of their own, so that each brings only what it needs. What
//! a user sees of them is alike: [`messages`], [`fields`], [`names`] that come from outside, [`size`]s and [`age`]s, [`answer`]s and exit
//! codes, and [`page`]s. `brisk help`, man pages and completions also describe `brisk proxy` and `brisk db`, so the arguments of
//! these stand here, where both sides see them. Nothing here is meant for other crates.

pub mod age;
pub mod answer;
pub mod db_args;
pub mod fields;
pub mod messages;
pub mod names;
#[cfg(feature = "page")]
pub mod page;
pub mod proxy_args;
pub mod shell_word;
pub mod size;
