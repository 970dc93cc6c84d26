//! The upstreams that clients on this system are configured with.
//!
//! brisk has no address of a service built in. What pip, uv, npm, cargo, go and apt would ask is what the proxy asks.

pub mod apt;
mod cargo;
mod go;
mod ini;
mod npm;
mod pip;
mod surroundings;
mod uv;

use anyhow::{Context, bail};

use crate::kind::Kind;
use crate::map::Map;

pub use surroundings::Surroundings;

/// A URL that a client is configured with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The URL, as the client has it.
    pub url: String,
    /// Where it was found, for people.
    pub place: String,
}

impl Found {
    fn new(url: impl Into<String>, place: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            place: place.into(),
        }
    }
}

/// The maps of a preset, from the configuration of its clients, with the places that they come from.
pub fn maps(kind: Kind, surroundings: &Surroundings) -> anyhow::Result<Vec<(Map, String)>> {
    let found = match kind {
        Kind::Python => match pip::find(surroundings)? {
            Some(found) => Some(found),
            None => uv::find(surroundings)?,
        },
        Kind::Npm => npm::find(surroundings)?,
        Kind::Cargo => cargo::find(surroundings)?,
        Kind::Go => go::find(surroundings),
        Kind::Apt => return apt::maps(surroundings),
        Kind::Plain => None,
    };
    let Some(found) = found else {
        bail!("{}", what_to_set(kind));
    };
    let map = Map::new(&format!("/{}", kind.name()), &found.url, kind);
    Ok(vec![(
        map.with_context(|| found.place.clone())?,
        found.place,
    )])
}

/// What to do if the clients of a preset are not configured.
fn what_to_set(kind: Kind) -> &'static str {
    match kind {
        Kind::Python => {
            "neither pip nor uv names an index in its configuration; set PIP_INDEX_URL or UV_DEFAULT_INDEX, or index-url in \
             pip.conf or uv.toml, or say --preset python=URL"
        }
        Kind::Npm => {
            "npm names no registry in its configuration; set npm_config_registry, or registry in .npmrc, or say --preset \
             npm=URL"
        }
        Kind::Cargo => {
            "cargo names no sparse index in its configuration; set the replace-with of crates-io in the config.toml of \
             cargo, or say --preset cargo=URL"
        }
        Kind::Go => "go names no proxy in its configuration; set GOPROXY, or say --preset go=URL",
        Kind::Apt => {
            "apt has no source with http or https in /etc/apt; add one, or say --preset apt=URL"
        }
        Kind::Plain => "there is nothing to find",
    }
}
