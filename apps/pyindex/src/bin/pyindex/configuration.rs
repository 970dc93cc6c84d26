//! The indexes that pip and uv are configured with.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use url::Url;

use crate::args::Common;

/// The URLs of indexes, in the order in which they are asked. None is built in.
pub(crate) fn index_urls(args: &Common) -> anyhow::Result<Vec<Url>> {
    let mut found = Found::default();
    if let Some(url) = &args.index_url {
        found.set_default(url, "--index-url");
    }
    for url in &args.extra_index_url {
        found.add_extra(url, "--extra-index-url");
    }
    // Who names the indexes means these alone.
    if found.is_empty() {
        found.environment();
        found.pip_files()?;
        found.uv_files()?;
    }
    found.urls()
}

/// An index, and what names it.
struct Named {
    url: String,
    source: String,
}

/// What was found so far. The first default index counts.
#[derive(Default)]
struct Found {
    default: Option<Named>,
    extras: Vec<Named>,
}

impl Found {
    fn is_empty(&self) -> bool {
        self.default.is_none() && self.extras.is_empty()
    }

    fn set_default(&mut self, url: &str, source: &str) {
        self.default.get_or_insert_with(|| Named {
            url: url.trim().to_owned(),
            source: source.to_owned(),
        });
    }

    fn add_extra(&mut self, url: &str, source: &str) {
        self.extras.push(Named {
            url: url.trim().to_owned(),
            source: source.to_owned(),
        });
    }

    fn environment(&mut self) {
        let set = |name: &str| env::var(name).ok().filter(|value| !value.trim().is_empty());
        for name in ["PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL"] {
            if let Some(value) = set(name) {
                self.set_default(without_name(&value), name);
            }
        }
        for name in ["PIP_EXTRA_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL"] {
            for url in set(name).unwrap_or_default().split_whitespace() {
                self.add_extra(without_name(url), name);
            }
        }
    }

    /// pip's files: the system's, the user's, PIP_CONFIG_FILE. Of a setting, the last file counts that has it, and the
    /// environment before all.
    fn pip_files(&mut self) -> anyhow::Result<()> {
        let own = env::var_os("PIP_CONFIG_FILE").map(PathBuf::from);
        if own.as_deref() == Some(Path::new("/dev/null")) {
            // That is how pip is told to read none.
            return Ok(());
        }
        let mut files = vec![PathBuf::from("/etc/pip.conf")];
        if let Some(home) = home() {
            files.push(home.join(".pip/pip.conf"));
        }
        files.extend(configuration_home().map(|home| home.join("pip/pip.conf")));
        files.extend(own);
        let mut set: BTreeMap<String, (String, String)> = BTreeMap::new();
        for file in files {
            if let Some(text) = read(&file)? {
                let source = file.display().to_string();
                let settings = pip_settings(&text).into_iter();
                set.extend(settings.map(|(name, value)| (name, (value, source.clone()))));
            }
        }
        if let Some((url, source)) = set.get("index-url") {
            self.set_default(url, source);
        }
        if let Some((urls, source)) = set.get("extra-index-url")
            && env::var_os("PIP_EXTRA_INDEX_URL").is_none()
        {
            urls.split_whitespace()
                .for_each(|url| self.add_extra(url, source));
        }
        Ok(())
    }

    /// uv's files: the user's, and the system's.
    fn uv_files(&mut self) -> anyhow::Result<()> {
        if env::var_os("UV_NO_CONFIG").is_some() {
            return Ok(());
        }
        let user = configuration_home().map(|home| home.join("uv/uv.toml"));
        for file in user.into_iter().chain([PathBuf::from("/etc/uv/uv.toml")]) {
            let Some(text) = read(&file)? else {
                continue;
            };
            let source = file.display().to_string();
            let table: toml::Table = toml::from_str(&text).with_context(|| source.clone())?;
            let text = |value: &toml::Value| value.as_str().map(str::to_owned);
            for index in table
                .get("index")
                .and_then(toml::Value::as_array)
                .into_iter()
                .flatten()
            {
                let Some(url) = index.get("url").and_then(text) else {
                    continue;
                };
                match index.get("default").and_then(toml::Value::as_bool) {
                    Some(true) => self.set_default(&url, &source),
                    _ => self.add_extra(&url, &source),
                }
            }
            let pip = table.get("pip");
            for table in [Some(&toml::Value::Table(table.clone())), pip]
                .into_iter()
                .flatten()
            {
                if let Some(url) = table.get("index-url").and_then(text) {
                    self.set_default(&url, &source);
                }
                let extras = table.get("extra-index-url").and_then(toml::Value::as_array);
                for url in extras.into_iter().flatten().filter_map(text) {
                    self.add_extra(&url, &source);
                }
            }
        }
        Ok(())
    }

    /// The extra ones first: that is where a project is looked for before.
    fn urls(self) -> anyhow::Result<Vec<Url>> {
        if self.is_empty() {
            bail!(
                "no index is configured; name one with --index-url URL, or in PIP_INDEX_URL, pip.conf, UV_DEFAULT_INDEX or uv.toml"
            );
        }
        let all = self.extras.into_iter().chain(self.default);
        let mut urls: Vec<Url> = Vec::new();
        for Named { url, source } in all {
            let parsed = Url::parse(&url)
                .ok()
                .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
            // The URL may have a password, so it is not shown.
            let Some(mut parsed) = parsed else {
                bail!("{source} names an index that is no URL of http or https; correct it there");
            };
            parsed.set_query(None);
            parsed.set_fragment(None);
            if !parsed.path().ends_with('/') {
                let path = format!("{}/", parsed.path());
                parsed.set_path(&path);
            }
            if !urls.contains(&parsed) {
                urls.push(parsed);
            }
        }
        Ok(urls)
    }
}

/// uv takes NAME=URL.
fn without_name(text: &str) -> &str {
    match text.split_once('=') {
        Some((name, url)) if !name.contains(['/', ':']) => url,
        _ => text,
    }
}

/// The settings of the sections that count for all commands, and then those of single commands, which count more. A value
/// goes on in lines that begin with blanks.
fn pip_settings(text: &str) -> Vec<(String, String)> {
    let mut settings: Vec<(String, String)> = Vec::new();
    let mut of_commands = 0;
    let mut is_of_command = false;
    let mut counts = false;
    let mut goes_on = false;
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
            continue;
        }
        if line.starts_with([' ', '\t']) {
            let at = match is_of_command {
                true => settings.len().checked_sub(1),
                false => (settings.len() - of_commands).checked_sub(1),
            };
            let last = at.and_then(|at| settings.get_mut(at));
            if let Some((_, value)) = last.filter(|_| goes_on) {
                value.push(' ');
                value.push_str(trimmed);
            }
            continue;
        }
        goes_on = false;
        if let Some(section) = trimmed.strip_prefix('[') {
            let section = section.trim_end_matches(']').trim();
            is_of_command = matches!(section, "download" | "install");
            counts = is_of_command || section == "global";
        } else if let Some((name, value)) = trimmed.split_once(['=', ':']).filter(|_| counts) {
            let name = name.trim().to_ascii_lowercase().replace('_', "-");
            let setting = (name, value.trim().to_owned());
            match is_of_command {
                true => {
                    settings.push(setting);
                    of_commands += 1;
                }
                false => settings.insert(settings.len() - of_commands, setting),
            }
            goes_on = true;
        }
    }
    settings
}

fn read(file: &Path) -> anyhow::Result<Option<String>> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(e).with_context(|| file.display().to_string()),
    }
}

fn absolute(name: &str) -> Option<PathBuf> {
    env::var_os(name)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
}

fn home() -> Option<PathBuf> {
    absolute("HOME")
}

fn configuration_home() -> Option<PathBuf> {
    absolute("XDG_CONFIG_HOME").or_else(|| home().map(|home| home.join(".config")))
}

/// Where tables are stored if nobody says.
pub(crate) fn cache_directory() -> anyhow::Result<PathBuf> {
    let home = absolute("XDG_CACHE_HOME").or_else(|| home().map(|home| home.join(".cache")));
    let Some(home) = home else {
        bail!(
            "neither XDG_CACHE_HOME nor HOME is an absolute path; say with --cache where to store what comes"
        );
    };
    Ok(home.join("brisk/pyindex"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_pip_are_read_as_pip_reads_them() {
        let text = "index-url = https://no.example/\n[install]\nindex-url = https://late.example/\n[freeze]\nindex-url=https://other.example/\n# a comment\n[global]\n\
                    index_url: https://a.example/simple\nextra-index-url =\n  https://b.example/\n\thttps://c.example/\n\n[install]\ntimeout = 10\n";
        let expected = [
            ("index-url", "https://a.example/simple"),
            ("extra-index-url", " https://b.example/ https://c.example/"),
            ("index-url", "https://late.example/"),
            ("timeout", "10"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(pip_settings(text), expected);
    }

    #[test]
    fn extra_indexes_come_first_and_none_comes_twice() {
        let mut found = Found::default();
        found.set_default("https://a.example/simple", "one");
        found.set_default("https://never.example/", "two");
        found.add_extra("https://b.example/x?y#z", "three");
        found.add_extra("https://a.example/simple/", "four");
        let urls: Vec<_> = found.urls().unwrap().iter().map(Url::to_string).collect();
        assert_eq!(urls, ["https://b.example/x/", "https://a.example/simple/"]);
        for (url, source) in [
            ("file:///a", "pip.conf"),
            ("a.example", "UV_INDEX"),
            ("", "x"),
        ] {
            let mut found = Found::default();
            found.set_default(url, source);
            assert_eq!(
                found.urls().unwrap_err().to_string(),
                format!(
                    "{source} names an index that is no URL of http or https; correct it there"
                )
            );
        }
        assert_eq!(without_name("own=https://a.example/"), "https://a.example/");
        assert_eq!(
            without_name("https://a.example/?b=c"),
            "https://a.example/?b=c"
        );
    }
}
