//! The upstreams that clients on this system are configured with.
//!
//! brisk has no address of a service built in. What pip, uv, npm, cargo, go and apt would ask is what the proxy asks. Who asks
//! for a preset by its name gets what the installed client asks when nothing is configured, as the client says.

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

/// The maps of a preset, from the configuration of its clients, with the places that they come from. If nothing is configured,
/// from what the clients have built in, if `or_default`.
pub fn maps(
    kind: Kind,
    surroundings: &Surroundings,
    or_default: bool,
) -> anyhow::Result<Vec<(Map, String)>> {
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
    let default = || match kind {
        Kind::Python => pip::default(surroundings).or_else(|| uv::default(surroundings)),
        Kind::Cargo => cargo::default(surroundings),
        // These say their defaults where they are asked for their configuration.
        Kind::Npm | Kind::Go | Kind::Apt | Kind::Plain => None,
    };
    let found = match found {
        None if or_default => default(),
        found => found,
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

/// The first URL that the help of a client has behind an option.
fn url_behind<'t>(help: &'t str, option: &str) -> Option<&'t str> {
    let (_, behind) = help.split_once(option)?;
    let words = behind.split_whitespace();
    let mut bare = words.map(|word| word.trim_matches(['(', ')', '<', '>', '[', ']', ',', '.']));
    bare.find(|word| word.starts_with("https://") || word.starts_with("http://"))
}

/// What to do if the clients of a preset are not configured.
fn what_to_set(kind: Kind) -> &'static str {
    match kind {
        Kind::Python => {
            "neither pip nor uv names an index; install one of them, or set PIP_INDEX_URL or UV_DEFAULT_INDEX, or index-url in \
             pip.conf or uv.toml, or say --preset python=URL"
        }
        Kind::Npm => {
            "npm names no registry in its configuration; set npm_config_registry, or registry in .npmrc, or say --preset \
             npm=URL"
        }
        Kind::Cargo => {
            "cargo names no sparse index; install it, or set the replace-with of crates-io in the config.toml of \
             cargo, or say --preset cargo=URL"
        }
        Kind::Go => "go names no proxy in its configuration; set GOPROXY, or say --preset go=URL",
        Kind::Apt => {
            "apt has no source with http or https in /etc/apt; add one, or say --preset apt=URL"
        }
        Kind::Plain => "there is nothing to find",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_says_the_default_of_an_option() {
        let pip = "  -i, --index-url <url>       Base URL of the Package Index (default\n                 \
                   https://index.example/simple). This should point to\n  --extra-index-url <url>  https://other.example\n";
        let uv = "      --default-index <DEFAULT_INDEX>\n          The default package index (by default: \
                  <https://index.example/simple>) [env: X=]\n";
        for (help, option) in [(pip, "--index-url"), (uv, "--default-index")] {
            assert_eq!(
                url_behind(help, option),
                Some("https://index.example/simple")
            );
        }
        assert_eq!(url_behind(pip, "--other"), None);
    }
}
