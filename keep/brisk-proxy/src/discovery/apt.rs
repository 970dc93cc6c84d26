//! The archives of apt, from `sources.list` and from files in `sources.list.d`, in both forms (sources.list(5)).

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::PathBuf;

use anyhow::{Context, bail};
use url::Url;

use super::Surroundings;
use super::found::what_to_set;
use crate::kind::Kind;
use crate::map::{Map, upstream_url};

/// The maps of all archives, with the files that name them.
pub fn maps(surroundings: &Surroundings) -> anyhow::Result<Vec<(Map, String)>> {
    let mut maps: Vec<(Map, String)> = Vec::new();
    for (file, text) in files(surroundings)? {
        let place = file.display().to_string();
        for uri in uris(&text, is_deb822(&file)) {
            if prefix(&uri).is_none() {
                continue;
            }
            let map = map(&uri).with_context(|| place.clone())?;
            // One archive may be named with http and https.
            if !maps.iter().any(|(known, _)| known.prefix() == map.prefix()) {
                maps.push((map, place.clone()));
            }
        }
    }
    if maps.is_empty() {
        bail!("{}", what_to_set(Kind::Apt, None, false));
    }
    Ok(maps)
}

/// The map of an archive.
pub fn map(uri: &str) -> anyhow::Result<Map> {
    // Says what is wrong with a URL that has no prefix.
    upstream_url(uri)?;
    let prefix =
        prefix(uri).context("the path of the URL has characters that no prefix may have")?;
    Map::new(&prefix, uri, Kind::Apt)
}

/// The sources of this system with the proxy's URLs in place of those of the archives.
pub fn sources(surroundings: &Surroundings, proxy: &str) -> anyhow::Result<String> {
    let mut new = String::new();
    for (file, text) in files(surroundings)? {
        let uris = uris(&text, is_deb822(&file));
        if uris.iter().all(|uri| prefix(uri).is_none()) {
            continue;
        }
        new.push_str(&format!("# {}\n", file.display()));
        for line in text.lines() {
            new.push_str(&with_proxy(line, &uris, proxy));
            new.push('\n');
        }
        new.push('\n');
    }
    if new.is_empty() {
        bail!("{}", what_to_set(Kind::Apt, None, false));
    }
    Ok(new)
}

/// The prefix of an archive: its host and its path. None if the proxy cannot serve it.
fn prefix(uri: &str) -> Option<String> {
    let url = Url::parse(uri).ok()?;
    if !matches!(url.scheme(), "http" | "https") || !url.username().is_empty() {
        return None;
    }
    let host = url.host_str()?;
    let host = match url.port() {
        Some(port) => format!("{host}_{port}"),
        None => host.to_owned(),
    };
    let path = url.path().trim_end_matches('/');
    let prefix = format!("/apt/{host}{path}");
    // A path that no prefix can have stays with the client.
    Map::new(&prefix, uri, Kind::Apt).ok().map(|_| prefix)
}

/// A line whose words that are such URIs are replaced.
fn with_proxy(line: &str, uris: &BTreeSet<String>, proxy: &str) -> String {
    if line.trim_start().starts_with('#') {
        return line.to_owned();
    }
    let words = line.split(' ').map(|word| {
        let prefix = uris.get(word.trim()).and_then(|uri| prefix(uri));
        match prefix {
            Some(prefix) => format!("{proxy}{}", prefix.trim_start_matches("/apt")),
            None => word.to_owned(),
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// The files of sources, in apt's order.
fn files(surroundings: &Surroundings) -> anyhow::Result<Vec<(PathBuf, String)>> {
    let directory = surroundings.system("etc/apt/sources.list.d");
    let mut paths = vec![surroundings.system("etc/apt/sources.list")];
    match fs::read_dir(&directory) {
        Ok(entries) => {
            let entries: io::Result<Vec<PathBuf>> =
                entries.map(|entry| Ok(entry?.path())).collect();
            let mut entries = entries.with_context(|| directory.display().to_string())?;
            entries.retain(|path| {
                path.extension()
                    .is_some_and(|end| end == "list" || end == "sources")
            });
            entries.sort();
            paths.extend(entries);
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e).with_context(|| directory.display().to_string()),
    }
    let mut files = Vec::new();
    for path in paths {
        if let Some(text) = surroundings.read(&path)? {
            files.push((path, text));
        }
    }
    Ok(files)
}

fn is_deb822(file: &std::path::Path) -> bool {
    file.extension().is_some_and(|end| end == "sources")
}

/// The URIs of a file.
fn uris(text: &str, deb822: bool) -> BTreeSet<String> {
    match deb822 {
        true => uris_of_stanzas(text),
        false => text
            .lines()
            .filter_map(uri_of_line)
            .map(str::to_owned)
            .collect(),
    }
}

/// Of `deb [options] URI suite …`.
fn uri_of_line(line: &str) -> Option<&str> {
    let line = line.split('#').next()?.trim();
    let (kind, rest) = line.split_once(char::is_whitespace)?;
    if !matches!(kind, "deb" | "deb-src") {
        return None;
    }
    let rest = rest.trim_start();
    let rest = match rest.strip_prefix('[') {
        Some(options) => options.split_once(']')?.1,
        None => rest,
    };
    rest.split_whitespace().next()
}

fn uris_of_stanzas(text: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    let mut uris = Vec::new();
    let (mut field, mut enabled) = (String::new(), true);
    // An empty line ends the last stanza, too.
    for line in text.lines().chain([""]) {
        if line.starts_with('#') {
            continue;
        }
        if line.trim().is_empty() {
            if enabled {
                all.extend(uris.drain(..));
            }
            uris.clear();
            (field, enabled) = (String::new(), true);
            continue;
        }
        let value = match line.split_once(':') {
            Some((name, value)) if !line.starts_with([' ', '\t']) => {
                field = name.trim().to_ascii_lowercase();
                value
            }
            _ => line,
        };
        match field.as_str() {
            "uris" => uris.extend(value.split_whitespace().map(str::to_owned)),
            "enabled" => enabled = !matches!(value.trim(), "no" | "false" | "off" | "0"),
            _ => {}
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("etc/apt/sources.list.d");
        fs::create_dir_all(&directory).unwrap();
        let list = "# deb http://old.example/x s main\ndeb [arch=amd64 signed-by=/k] https://a.example:8443/apt s main # c\n\
                    deb-src cdrom:[x]/ s main\n";
        fs::write(root.path().join("etc/apt/sources.list"), list).unwrap();
        let sources = "Types: deb\n# URIs: http://no.example\nURIs: http://b.example/debian/\n http://c.example/debian\n\
                       Suites: s\n\nTypes: deb\nURIs: http://off.example/\nEnabled: no\n";
        fs::write(directory.join("d.sources"), sources).unwrap();
        fs::write(
            directory.join("d.sources.save"),
            sources.replace("b.example", "e.example"),
        )
        .unwrap();
        root
    }

    #[test]
    fn each_archive_has_a_map() {
        let root = system();
        let maps = maps(&Surroundings::of_test(root.path(), &[])).unwrap();
        let maps: Vec<String> = maps.iter().map(|(map, _)| map.to_string()).collect();
        assert_eq!(
            maps,
            [
                "/apt/a.example_8443/apt/ = https://a.example:8443/apt",
                "/apt/b.example/debian/ = http://b.example/debian/",
                "/apt/c.example/debian/ = http://c.example/debian",
            ]
        );
    }

    #[test]
    fn sources_lead_to_the_proxy() {
        let root = system();
        let sources = sources(&Surroundings::of_test(root.path(), &[]), "http://p:1/apt").unwrap();
        for line in [
            "deb [arch=amd64 signed-by=/k] http://p:1/apt/a.example_8443/apt s main # c",
            "deb-src cdrom:[x]/ s main",
            "URIs: http://p:1/apt/b.example/debian",
            " http://p:1/apt/c.example/debian",
            "URIs: http://off.example/",
        ] {
            assert!(
                sources.lines().any(|found| found == line),
                "{line}\n{sources}"
            );
        }
    }
}
