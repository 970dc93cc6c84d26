//! The cache in front of the upstreams: what it may do beyond what answers say.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use brisk_cache::{Cache, CacheOptions};
use brisk_http::{CacheLayer, Credentials, Options, Override, Overrides};
use brisk_terminal::proxy_args::ProxyArgs;

use crate::kind::Kind;
use crate::map::{Map, Maps};
use crate::secret::Secret;

/// The name in `Cache-Status`.
pub const NAME: &str = "brisk";

/// For how long an index page is used while it is asked for anew.
const STALE_WHILE_REVALIDATE: Duration = Duration::from_secs(10 * 60);

/// The directory of entries, in that of the cache.
const ENTRIES: &str = "entries";

/// The cache of these arguments, in this directory.
pub fn layer(
    args: &ProxyArgs,
    maps: &Maps,
    secret: &Secret,
    directory: &Path,
) -> anyhow::Result<CacheLayer> {
    let entries = directory.join(ENTRIES);
    let cache = Cache::open(&entries, CacheOptions::new().limit(args.limit))
        .with_context(|| format!("{}: cannot open the cache", entries.display()))?;
    let mut options = Options::shared();
    options.secret = Some(secret.for_credentials());
    options.credentials = Some(Credentials::Named);
    options.offline = args.offline;
    options.stale_when_disconnected = Some(seconds(args.stale));
    let layer = CacheLayer::build(cache, options)
        .overrides(overrides(args, maps))
        .name(NAME)
        .on_trouble(|e| {
            brisk_terminal::messages::warn(&format!(
                "the cache fails, so answers are passed on and not stored: {e}"
            ));
        });
    Ok(layer.finish())
}

/// What is different for index pages, and for what the arguments name.
fn overrides(args: &ProxyArgs, maps: &Maps) -> Overrides {
    let mut overrides = Overrides::default();
    // Longer prefixes count more, so they come last.
    for map in maps.iter().rev() {
        let while_revalidate = match map.kind() {
            Kind::Plain => continue,
            // The lists of apt name each other's digests, so an old one is of no use beside a new one.
            Kind::Apt => None,
            // An old tag is used only while the registry fails.
            Kind::Oci | Kind::OciPush => None,
            Kind::Python | Kind::Npm | Kind::Cargo | Kind::Go => {
                Some(seconds(STALE_WHILE_REVALIDATE))
            }
        };
        let rule = Override {
            // Clients of packages send few fields, and these are known.
            credentials: Some(Credentials::Unknown),
            stale_while_revalidate: while_revalidate,
            stale_if_error: Some(seconds(args.stale)),
            // By a 404, an archive says which of its lists it has. For all others, it sends clients to another index.
            stale_negative: map.kind() == Kind::Apt,
            ..Override::default()
        };
        overrides.add(&pattern(map), rule);
    }
    for (pattern, lifetime) in &args.ttl {
        let rule = Override {
            min_lifetime: Some(seconds(*lifetime)),
            ..Override::default()
        };
        overrides.add(pattern, rule);
    }
    overrides
}

/// What all URLs of a map match.
fn pattern(map: &Map) -> String {
    let url = map.upstream().as_str();
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    format!("{}/*", rest.trim_end_matches('/'))
}

fn seconds(time: Duration) -> u32 {
    u32::try_from(time.as_secs()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_pages_may_be_stale_and_arguments_count_most() {
        use clap::Parser;
        #[derive(Parser)]
        struct Program {
            #[command(flatten)]
            args: ProxyArgs,
        }
        let args = [
            "brisk",
            "--stale",
            "2d",
            "--ttl",
            "index.example/simple/a/*=1h",
        ];
        let args = Program::parse_from(args).args;
        let maps = [
            "/p=python:https://index.example/simple/",
            "/a=apt:http://apt.example",
            "/x=https://x.example",
        ];
        let maps = Maps::new(maps.map(|text| Map::parse(text).unwrap()).to_vec()).unwrap();
        let overrides = overrides(&args, &maps);
        let options = Options::shared();
        for (url, expected) in [
            (
                "https://index.example/simple/b/",
                (None, Some(600), Some(172_800)),
            ),
            (
                "https://index.example/simple/a/",
                (Some(3600), Some(600), Some(172_800)),
            ),
            ("https://index.example/other", (None, None, None)),
            (
                "http://apt.example/dists/x/InRelease",
                (None, None, Some(172_800)),
            ),
            ("https://x.example/simple/", (None, None, None)),
        ] {
            let found = overrides.options(url, &options);
            let found = (
                found.min_lifetime,
                found.stale_while_revalidate,
                found.stale_if_error,
            );
            assert_eq!(found, expected, "{url}");
        }
    }
}
