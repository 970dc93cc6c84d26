//! The upstreams that clients on this system are configured with.
//!
//! brisk has no address of a service built in. What pip, uv, npm, cargo, go and apt would ask is what the proxy asks. Who asks
//! for a preset by its name gets what the installed client asks when nothing is configured, as the client says.

pub mod apt;
mod cargo;
mod found;
mod go;
mod ini;
mod npm;
mod pip;
mod surroundings;
mod uv;

use anyhow::{Context, bail};

use self::found::what_to_set;
use crate::kind::Kind;
use crate::map::Map;

pub use surroundings::Surroundings;

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
        Kind::Plain | Kind::Oci | Kind::OciPush => None,
    };
    let default = || match kind {
        Kind::Python => pip::default(surroundings).or_else(|| uv::default(surroundings)),
        Kind::Cargo => cargo::default(surroundings),
        // These say their defaults where they are asked for their configuration.
        Kind::Npm | Kind::Go | Kind::Apt | Kind::Plain | Kind::Oci | Kind::OciPush => None,
    };
    let found = match found {
        None if or_default => default(),
        found => found,
    };
    let Some(found) = found else {
        let clients: &[&str] = match kind {
            Kind::Python => &["pip", "pip3", "uv"],
            Kind::Cargo => &["cargo"],
            _ => &[],
        };
        let mut clients = clients.iter().copied();
        let installed = clients.find(|client| surroundings.has_program(client));
        bail!("{}", what_to_set(kind, installed, or_default));
    };
    let map = Map::new(&format!("/{}", kind.name()), &found.url, kind);
    Ok(vec![(
        map.with_context(|| found.place.clone())?,
        found.place,
    )])
}
