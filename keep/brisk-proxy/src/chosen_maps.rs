//! The maps that the arguments ask for, or that the configuration of clients on this system names.

use std::net::SocketAddr;

use anyhow::{Context, bail};
use brisk_terminal::proxy_args::ProxyArgs;

use crate::discovery::{self, Surroundings};
use crate::kind::Kind;
use crate::map::{Map, Maps};

/// The maps, with the places where those were found that no argument names.
pub fn choose(args: &ProxyArgs, listen: &[SocketAddr]) -> anyhow::Result<(Maps, Vec<String>)> {
    let mut maps = Vec::new();
    let mut notes = Vec::new();
    for text in &args.map {
        // The URL may have a password, so only the prefix is shown.
        let prefix = text
            .split_once('=')
            .map_or(text.as_str(), |(prefix, _)| prefix);
        maps.push(Map::parse(text).with_context(|| format!("--map {prefix}"))?);
    }
    let surroundings = Surroundings::real()?;
    let mut find = |kind: Kind, is_asked_for: bool| -> anyhow::Result<()> {
        for (map, place) in discovery::maps(kind, &surroundings, is_asked_for)? {
            if is_own(&map, listen) {
                bail!(
                    "{place} leads to this proxy itself; say --preset {}=URL with the URL that was there before",
                    kind.name()
                );
            }
            notes.push(format!("{}/ comes from {place}", map.prefix()));
            maps.push(map);
        }
        Ok(())
    };
    let mut given = Vec::new();
    for text in &args.preset {
        let (name, url) = match text.split_once('=') {
            Some((name, url)) => (name, Some(url)),
            None => (text.as_str(), None),
        };
        let kind = Kind::PRESETS.into_iter().find(|kind| kind.name() == name);
        let kind = kind.with_context(|| {
            format!("--preset {name}: allowed are python, npm, cargo, go and apt")
        })?;
        let Some(url) = url else {
            find(kind, true).with_context(|| format!("--preset {name}"))?;
            continue;
        };
        let map = match kind {
            Kind::Apt => discovery::apt::map(url),
            _ => Map::new(&format!("/{}", kind.name()), url, kind),
        };
        given.push(map.with_context(|| format!("--preset {name}"))?);
    }
    if args.map.is_empty() && args.preset.is_empty() {
        let mut missing = Vec::new();
        for kind in Kind::PRESETS {
            if let Err(e) = find(kind, false) {
                missing.push(format!("{}: {e:#}", kind.name()));
            }
        }
        if maps.is_empty() {
            bail!(
                "there is nothing to serve; say what with --map /PREFIX=URL, or configure a client\n  {}",
                missing.join("\n  ")
            );
        }
        notes.extend(missing.iter().map(|reason| format!("not served: {reason}")));
    }
    maps.extend(given);
    Ok((Maps::new(maps)?, notes))
}

/// Whether a map leads to where this proxy listens.
fn is_own(map: &Map, listen: &[SocketAddr]) -> bool {
    let upstream = map.upstream();
    let (Some(host), Some(port)) = (upstream.host_str(), upstream.port_or_known_default()) else {
        return false;
    };
    listen.iter().any(|own| {
        let near = host.eq_ignore_ascii_case("localhost") && own.ip().is_loopback();
        let host = host.trim_matches(['[', ']']);
        own.port() == port
            && (near
                || host
                    .parse()
                    .is_ok_and(|ip: std::net::IpAddr| ip == own.ip()))
    })
}
