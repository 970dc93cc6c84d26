//! The clients of packages, each as a user runs it, with nothing of its own from before.

#![allow(dead_code, unused_imports, reason = "each test takes what it needs")]

pub mod apt;
pub mod cargo;
pub mod go;
pub mod npm;
pub mod pip;
pub mod room;
pub mod uv;

use std::collections::BTreeMap;

use crate::frozen::Site;

pub use room::{Ran, Room};

/// What is there after a client has run: names of files, and the digests of their content.
pub type Installed = BTreeMap<String, String>;

/// A client that installs frozen packages.
pub trait Client {
    /// The kind of its map, which is its prefix, too.
    const KIND: &'static str;
    /// Where its index is on the upstream.
    const INDEX: &'static str;

    /// What its upstream serves.
    fn site() -> Site;

    /// Has it install. The proxy is at `room.proxy`.
    fn install(room: &Room) -> Ran;

    /// What is there afterwards.
    fn installed(room: &Room) -> Installed;

    /// What should be there.
    fn expected() -> Installed;
}

/// The lines of `brisk proxy env`, as variables.
pub fn settings(room: &Room, client: &str) -> Vec<(String, String)> {
    let text = room.settings(client);
    let lines = text.lines().map(|line| {
        let line = line.strip_prefix("export ").unwrap();
        let (name, value) = line.split_once('=').unwrap();
        (name.to_owned(), value.to_owned())
    });
    lines.collect()
}
