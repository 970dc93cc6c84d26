use std::collections::BTreeMap;

use anyhow::{Context, bail};
use serde::Deserialize;

use super::Surroundings;
use super::found::Found;

/// How often one source may replace another.
const MOST_REPLACEMENTS: usize = 10;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Settings {
    source: BTreeMap<String, Source>,
    registries: BTreeMap<String, Registry>,
    registry: DefaultRegistry,
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Source {
    registry: Option<String>,
    replace_with: Option<String>,
    directory: Option<String>,
    local_registry: Option<String>,
    git: Option<String>,
}

impl Source {
    /// What it is in place of a registry, for people.
    fn shown(&self) -> String {
        for (kind, place) in [
            ("a directory", &self.directory),
            ("a local registry", &self.local_registry),
            ("a git repository", &self.git),
        ] {
            match place {
                // A URL may have a password.
                Some(url) if url.contains("://") => return kind.to_owned(),
                Some(path) => return format!("{kind} ({path})"),
                None => {}
            }
        }
        "without a registry".to_owned()
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Registry {
    index: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DefaultRegistry {
    default: Option<String>,
}

/// The sparse index that cargo asks in place of crates-io, or its default registry: from its files, the nearest first.
pub fn find(surroundings: &Surroundings) -> anyhow::Result<Option<Found>> {
    let near = surroundings
        .here_and_above()
        .map(|directory| directory.join(".cargo"));
    let home = surroundings
        .variable("CARGO_HOME")
        .map(Into::into)
        .or_else(|| surroundings.home(".cargo"));
    let mut all = Settings::default();
    let mut places = BTreeMap::new();
    for directory in near.chain(home) {
        for name in ["config.toml", "config"] {
            let file = directory.join(name);
            let Some(text) = surroundings.read(&file)? else {
                continue;
            };
            let place = file.display().to_string();
            let settings: Settings = toml::from_str(&text).with_context(|| place.clone())?;
            // What is nearer is there already.
            for (name, source) in settings.source {
                places.entry(name.clone()).or_insert_with(|| place.clone());
                let known = all.source.entry(name).or_default();
                known.registry = known.registry.take().or(source.registry);
                known.replace_with = known.replace_with.take().or(source.replace_with);
                known.directory = known.directory.take().or(source.directory);
                known.local_registry = known.local_registry.take().or(source.local_registry);
                known.git = known.git.take().or(source.git);
            }
            for (name, registry) in settings.registries {
                places.entry(name.clone()).or_insert_with(|| place.clone());
                let known = all.registries.entry(name).or_default();
                known.index = known.index.take().or(registry.index);
            }
            all.registry.default = all.registry.default.take().or(settings.registry.default);
        }
    }
    let mut name = "crates-io".to_owned();
    for _ in 0..MOST_REPLACEMENTS {
        let Some(next) = all
            .source
            .get(&name)
            .and_then(|source| source.replace_with.clone())
        else {
            break;
        };
        name = next;
    }
    let replacement = (name != "crates-io").then(|| name.clone());
    let replaced = all
        .source
        .get(&name)
        .and_then(|source| source.registry.clone());
    let index = |name: &str| {
        let variable = format!(
            "CARGO_REGISTRIES_{}_INDEX",
            name.to_ascii_uppercase().replace('-', "_")
        );
        let set = surroundings.variable(&variable).map(str::to_owned);
        set.or_else(|| all.registries.get(name)?.index.clone())
    };
    let default = surroundings
        .variable("CARGO_REGISTRY_DEFAULT")
        .map(str::to_owned)
        .or_else(|| all.registry.default.clone());
    let found = replaced
        .or_else(|| index(&name))
        .map(|url| (url, name))
        .or_else(|| {
            let name = default?;
            Some((index(&name)?, name))
        });
    let Some((url, name)) = found else {
        let Some(by) = replacement else {
            return Ok(None);
        };
        let place = places.get("crates-io").map_or("cargo", String::as_str);
        let found = match all.source.get(&by) {
            Some(source) => format!("which is {}", source.shown()),
            None => "which no file of cargo has".to_owned(),
        };
        bail!(
            "{place} replaces crates-io by {by}, {found}; the proxy serves a registry whose URL has sparse+ before it: name that \
             there, or say --preset cargo=URL"
        );
    };
    let place = places.get(&name).cloned();
    let place = place.unwrap_or_else(|| format!("the registry {name} of cargo"));
    let sparse = url.strip_prefix("sparse+").with_context(|| {
        format!("{place}: the index of {name} is no sparse one; the proxy serves only URLs with sparse+ before them")
    })?;
    Ok(Some(Found::new(sparse, place)))
}

/// The sparse index that cargo has built in. It names it only where it cannot reach it, so it is sent through a proxy that
/// does not exist.
pub fn default(surroundings: &Surroundings) -> Option<Found> {
    let no_network = [
        ("CARGO_HTTP_PROXY", "http://127.0.0.1:9"),
        ("CARGO_NET_RETRY", "0"),
        ("CARGO_TERM_COLOR", "never"),
    ];
    let complaint = surroundings.complaint("cargo", &["search", "x"], &no_network)?;
    Some(Found::new(index_of(&complaint)?, "the default of cargo"))
}

/// The index in "failed to download from `URL/config.json`".
fn index_of(complaint: &str) -> Option<&str> {
    let (before, _) = complaint.split_once("/config.json`")?;
    let (_, url) = before.rsplit_once('`')?;
    url.starts_with("http").then_some(url)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn cargo_complains_of_its_index() {
        let complaint = "error: download of config.json failed\n\nCaused by:\n  failed to download from \
                         `https://index.example/a/config.json`\n\nCaused by:\n  [7] Could not connect";
        assert_eq!(index_of(complaint), Some("https://index.example/a"));
        assert_eq!(index_of("error: no `x`"), None);
    }

    #[test]
    fn replacements_are_followed() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let find = |variables: &[(&str, &str)]| {
            let found = find(&Surroundings::of_test(root.path(), variables));
            found.map(|found| found.map(|found| found.url))
        };
        assert_eq!(find(&[]).unwrap(), None);
        write(
            "home/.cargo/config.toml",
            "[registries.own]\nindex = 'sparse+https://own/'\n[source.b]\nregistry = 'sparse+https://b/index/'\n",
        );
        assert_eq!(find(&[]).unwrap(), None);
        let found = find(&[("CARGO_REGISTRY_DEFAULT", "own")]).unwrap();
        assert_eq!(found.as_deref(), Some("https://own/"));
        write(
            "home/here/.cargo/config.toml",
            "[source.crates-io]\nreplace-with = 'a'\n[source.a]\nreplace-with = 'b'\n",
        );
        assert_eq!(find(&[]).unwrap().as_deref(), Some("https://b/index/"));
        write(
            "home/here/.cargo/config.toml",
            "[source.crates-io]\nreplace-with = 'crates-io'\nregistry = 'https://github.example/index'\n",
        );
        let error = find(&[]).unwrap_err().to_string();
        assert!(error.contains("is no sparse one"), "{error}");
    }

    #[test]
    fn a_replacement_that_cannot_be_served_is_named() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("home/.cargo/config.toml");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        for (source, found) in [
            (
                "[source.own]\ndirectory = 'vendor'",
                "which is a directory (vendor)",
            ),
            (
                "[source.own]\nlocal-registry = '/r'",
                "which is a local registry (/r)",
            ),
            (
                "[source.own]\ngit = 'https://u:hush@g.example/x'",
                "which is a git repository",
            ),
            ("[source.own]\nx = 1", "which is without a registry"),
            ("", "which no file of cargo has"),
        ] {
            let text = format!("[source.crates-io]\nreplace-with = 'own'\n{source}\n");
            fs::write(&file, text).unwrap();
            let error = find(&Surroundings::of_test(root.path(), &[])).unwrap_err();
            let expected = format!(
                "{} replaces crates-io by own, {found}; the proxy serves a registry whose URL has sparse+ before it: name that \
                 there, or say --preset cargo=URL",
                file.display()
            );
            assert_eq!(error.to_string(), expected);
        }
    }
}
