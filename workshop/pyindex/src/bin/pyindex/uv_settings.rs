//! What uv is configured with: variables, `uv.toml` and `pyproject.toml`.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Context;
use toml::{Table, Value};

use crate::surroundings::{Setting, Surroundings, read, truth};

/// The settings of uv, as the variables and files give them.
#[derive(Debug, Default)]
pub(crate) struct UvSettings {
    /// In the order in which uv asks them, those of variables and those of files. The default one and those that have to be
    /// asked for by name are not among them.
    pub(crate) of_variables: Vec<UvIndex>,
    pub(crate) of_files: Vec<UvIndex>,
    /// The one that is asked last, and whether a variable names it.
    pub(crate) default: Option<(UvIndex, bool)>,
    pub(crate) keyring_provider: Option<Setting>,
    pub(crate) http_proxy: Option<Setting>,
    pub(crate) https_proxy: Option<Setting>,
    /// Hosts that are asked without these proxies.
    pub(crate) no_proxy: Vec<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct UvIndex {
    /// By which variables can have its user and password.
    pub(crate) name: Option<String>,
    pub(crate) url: Setting,
    is_default: bool,
    /// It is asked only for projects that a `pyproject.toml` names, and pyindex reads no such names.
    is_explicit: bool,
    is_of_variable: bool,
}

impl UvIndex {
    fn new(url: &str, source: &str) -> Self {
        Self {
            name: None,
            url: Setting::new(url, source),
            is_default: false,
            is_explicit: false,
            is_of_variable: false,
        }
    }

    /// What variables call it between `UV_INDEX_` and `_PASSWORD`.
    pub(crate) fn variable_name(&self) -> Option<String> {
        let upper = |c: char| match c.is_ascii_alphanumeric() {
            true => c.to_ascii_uppercase(),
            false => '_',
        };
        Some(self.name.as_ref()?.chars().map(upper).collect())
    }
}

impl UvSettings {
    pub(crate) fn of(surroundings: &Surroundings) -> anyhow::Result<Self> {
        let files = Files::of(surroundings)?;
        // As uv chains them: variables before files, indexes before URLs, the default URL last.
        let configured = files.indexes();
        let mut all = Vec::new();
        for (variable, is_default) in [
            ("UV_DEFAULT_INDEX", true),
            ("UV_INDEX", false),
            ("UV_EXTRA_INDEX_URL", false),
            ("UV_INDEX_URL", true),
        ] {
            let value = surroundings.variable(variable)?.unwrap_or_default();
            for text in value.split_whitespace() {
                all.push(UvIndex {
                    is_default,
                    is_of_variable: true,
                    ..named(text, variable, &configured)
                });
            }
        }
        all.extend(configured);
        for url in files.texts("extra-index-url") {
            all.push(UvIndex::new(&url.value, &url.source));
        }
        if let Some(url) = files.text("index-url") {
            all.push(UvIndex {
                is_default: true,
                ..UvIndex::new(&url.value, &url.source)
            });
        }
        // Of indexes with one name, the first counts.
        let mut names = BTreeSet::new();
        all.retain(|index| index.name.clone().is_none_or(|name| names.insert(name)));
        if files.truth("no-index")? {
            all.clear();
        }
        let default = all.iter().position(|index| index.is_default);
        // One that has to be asked for by name is still the only default.
        let default = default
            .map(|at| all[at].clone())
            .filter(|index| !index.is_explicit);
        all.retain(|index| !index.is_default && !index.is_explicit);
        let (of_variables, of_files) = all.into_iter().partition(|index| index.is_of_variable);
        let keyring_provider = surroundings
            .variable("UV_KEYRING_PROVIDER")?
            .map(|value| Setting::new(value, "UV_KEYRING_PROVIDER"));
        Ok(Self {
            of_variables,
            of_files,
            default: default.map(|index| {
                let is_of_variable = index.is_of_variable;
                (index, is_of_variable)
            }),
            keyring_provider: keyring_provider.or_else(|| files.text("keyring-provider")),
            http_proxy: files.text("http-proxy"),
            https_proxy: files.text("https-proxy"),
            no_proxy: files
                .texts("no-proxy")
                .into_iter()
                .map(|host| host.value)
                .collect(),
        })
    }
}

/// What a variable names: a URL, NAME=URL, or the name of an index of the files.
fn named(text: &str, variable: &str, configured: &[UvIndex]) -> UvIndex {
    let (name, url) = match text.split_once('=') {
        Some((name, url)) if !name.contains(['/', ':']) => (Some(name), url),
        _ => (None, text),
    };
    let of_name = |index: &&UvIndex| index.name.as_deref() == Some(text);
    let known = configured.iter().find(of_name).map(|known| UvIndex {
        is_explicit: false,
        ..known.clone()
    });
    known.unwrap_or_else(|| UvIndex {
        name: name.map(str::to_owned),
        ..UvIndex::new(url, variable)
    })
}

/// The files that were found, the one that counts most first, and what they are called.
struct Files(Vec<(Table, String)>);

impl Files {
    fn of(surroundings: &Surroundings) -> anyhow::Result<Self> {
        let mut found = Vec::new();
        let set = |name: &str| -> anyhow::Result<bool> {
            let value = surroundings.variable(name)?;
            value.map_or(Ok(false), |value| truth(&value, name))
        };
        if let Some(file) = surroundings.path("UV_CONFIG_FILE") {
            // It stands for all others, and has to be there.
            let text = std::fs::read_to_string(&file);
            let text = text.with_context(|| format!("UV_CONFIG_FILE: {}", file.display()))?;
            found.push(parse(&file, &text)?);
            return Ok(Self(found));
        }
        if set("UV_NO_CONFIG")? {
            return Ok(Self(found));
        }
        if let Some(directory) = &surroundings.directory {
            found.extend(of_project(directory)?);
        }
        let user = surroundings
            .configuration_home()
            .map(|home| home.join("uv/uv.toml"));
        if let Some(file) = user
            && let Some(text) = read(&file)?
        {
            found.push(parse(&file, &text)?);
        }
        if set("UV_NO_SYSTEM_CONFIG")? {
            return Ok(Self(found));
        }
        // The first one stands for the others.
        let directories = surroundings.configuration_directories();
        let files = directories
            .iter()
            .map(|directory| directory.join("uv/uv.toml"));
        for file in files.chain([surroundings.system("/etc/uv/uv.toml")]) {
            if let Some(text) = read(&file)? {
                found.push(parse(&file, &text)?);
                break;
            }
        }
        Ok(Self(found))
    }

    /// The sections that count, the one that counts most first: for pip's interface, and for all of uv.
    fn sections(&self) -> impl Iterator<Item = (&Table, &str)> {
        let of_pip = self.0.iter().filter_map(|(table, source)| {
            let pip = table.get("pip").and_then(Value::as_table)?;
            Some((pip, source.as_str()))
        });
        let all = self
            .0
            .iter()
            .map(|(table, source)| (table, source.as_str()));
        of_pip.chain(all)
    }

    /// The one that counts most.
    fn text(&self, name: &str) -> Option<Setting> {
        self.sections().find_map(|(table, source)| {
            let value = table.get(name)?.as_str()?;
            Some(Setting::new(value, source))
        })
    }

    fn truth(&self, name: &str) -> anyhow::Result<bool> {
        let mut found = self.sections().filter_map(|(table, source)| {
            let value = table.get(name)?;
            Some((value, source))
        });
        found.next().map_or(Ok(false), |(value, source)| {
            let wrong = || {
                format!(
                    "{name} of {source} is of the type {}, allowed are true and false; correct it there", value.type_str()
                )
            };
            value.as_bool().with_context(wrong)
        })
    }

    /// All of them.
    fn texts(&self, name: &str) -> Vec<Setting> {
        let of_section = |(table, source): (&Table, &str)| -> Vec<Setting> {
            let values = table.get(name).and_then(Value::as_array);
            let texts = values.into_iter().flatten().filter_map(Value::as_str);
            texts.map(|text| Setting::new(text, source)).collect()
        };
        self.sections().flat_map(of_section).collect()
    }

    fn indexes(&self) -> Vec<UvIndex> {
        let of_section = |(table, source): (&Table, &str)| -> Vec<UvIndex> {
            let values = table.get("index").and_then(Value::as_array);
            let indexes = values.into_iter().flatten().filter_map(|index| {
                let text = |name| index.get(name).and_then(Value::as_str);
                let is = |name| index.get(name).and_then(Value::as_bool).unwrap_or(false);
                // A flat one is a list of files, and no index of projects.
                if text("format") == Some("flat") {
                    return None;
                }
                Some(UvIndex {
                    name: text("name").map(str::to_owned),
                    is_default: is("default"),
                    is_explicit: is("explicit"),
                    ..UvIndex::new(text("url")?, source)
                })
            });
            indexes.collect()
        };
        self.sections().flat_map(of_section).collect()
    }
}

/// The next `uv.toml`, or `pyproject.toml` with a section for uv, of a directory and those above.
fn of_project(directory: &Path) -> anyhow::Result<Option<(Table, String)>> {
    for directory in directory.ancestors() {
        let file = directory.join("uv.toml");
        if let Some(text) = read(&file)? {
            return parse(&file, &text).map(Some);
        }
        let file = directory.join("pyproject.toml");
        let Some(text) = read(&file)? else {
            continue;
        };
        let mut project = match parse(&file, &text) {
            Ok((project, _)) => project,
            Err(e) => {
                // As uv does, because it may be of another tool.
                eprintln!("pyindex: {e:#}; it is passed over");
                continue;
            }
        };
        let tool = project.get_mut("tool").and_then(Value::as_table_mut);
        if let Some(Value::Table(own)) = tool.and_then(|tool| tool.remove("uv")) {
            return Ok(Some((own, file.display().to_string())));
        }
    }
    Ok(None)
}

fn parse(file: &Path, text: &str) -> anyhow::Result<(Table, String)> {
    let source = file.display().to_string();
    let table = toml::from_str(text).with_context(|| source.clone())?;
    Ok((table, source))
}
