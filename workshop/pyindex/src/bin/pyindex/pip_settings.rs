//! What pip is configured with: variables, and the files of `pip config debug`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::surroundings::{Setting, Surroundings, read, truth};

/// The settings of pip, as the variables and files give them.
#[derive(Debug, Default)]
pub(crate) struct PipSettings {
    /// By their names, such as `index-url`.
    variables: BTreeMap<&'static str, Setting>,
    /// All files together, by section and name.
    files: BTreeMap<(Section, String), Setting>,
}

/// The sections that count, the one that counts least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Section {
    Global,
    Download,
    Install,
}

const VARIABLES: [(&str, &str); 6] = [
    ("index-url", "PIP_INDEX_URL"),
    ("extra-index-url", "PIP_EXTRA_INDEX_URL"),
    ("no-index", "PIP_NO_INDEX"),
    ("proxy", "PIP_PROXY"),
    ("cert", "PIP_CERT"),
    ("keyring-provider", "PIP_KEYRING_PROVIDER"),
];

impl PipSettings {
    pub(crate) fn of(surroundings: &Surroundings) -> anyhow::Result<Self> {
        let mut settings = Self::default();
        for (name, variable) in VARIABLES {
            if let Some(value) = surroundings.variable(variable)? {
                settings
                    .variables
                    .insert(name, Setting::new(value, variable));
            }
        }
        for file in files(surroundings) {
            if let Some(text) = read(&file)? {
                let source = file.display().to_string();
                for (section, name, value) in parse(&text) {
                    let setting = Setting::new(value, &source);
                    settings.files.insert((section, name), setting);
                }
            }
        }
        Ok(settings)
    }

    /// Of a variable.
    pub(crate) fn variable(&self, name: &str) -> Option<&Setting> {
        self.variables.get(name)
    }

    /// Of the files. Values that are empty do not count.
    pub(crate) fn file(&self, name: &str) -> Option<&Setting> {
        let sections = [Section::Install, Section::Download, Section::Global];
        let mut found = sections
            .into_iter()
            .filter_map(|section| self.files.get(&(section, name.to_owned())));
        found.find(|setting| !setting.value.is_empty())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Setting> {
        self.variable(name).or_else(|| self.file(name))
    }

    /// What says that no index may be asked, if something does.
    pub(crate) fn no_index(&self) -> anyhow::Result<Option<&Setting>> {
        let Some(setting) = self.get("no-index") else {
            return Ok(None);
        };
        let place = format!("no-index of {}", setting.source);
        Ok(truth(&setting.value, &place)?.then_some(setting))
    }
}

/// The files that count: the system's, the user's, those of the Python, and the one of PIP_CONFIG_FILE. Of a setting, the last
/// one counts that has it.
fn files(surroundings: &Surroundings) -> Vec<PathBuf> {
    let own = surroundings.path("PIP_CONFIG_FILE");
    if own.as_deref() == Some(Path::new("/dev/null")) {
        // That is how pip is told to read none.
        return Vec::new();
    }
    let mut files: Vec<PathBuf> = surroundings
        .configuration_directories()
        .iter()
        .map(|directory| directory.join("pip/pip.conf"))
        .collect();
    files.push(surroundings.system("/etc/pip.conf"));
    if !own.as_ref().is_some_and(|own| own.exists()) {
        let home = surroundings.home();
        files.extend(home.map(|home| home.join(".pip/pip.conf")));
        let home = surroundings.configuration_home();
        files.extend(home.map(|home| home.join("pip/pip.conf")));
    }
    let prefix = surroundings.python_prefix();
    files.extend(prefix.map(|prefix| prefix.join("pip.conf")));
    files.extend(own);
    files
}

/// The settings of the sections that count. A value goes on in lines that begin with blanks.
fn parse(text: &str) -> Vec<(Section, String, String)> {
    let mut settings: Vec<(Section, String, String)> = Vec::new();
    let mut section = None;
    let mut goes_on = false;
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
            continue;
        }
        if line.starts_with([' ', '\t']) {
            if let Some((_, _, value)) = settings.last_mut().filter(|_| goes_on) {
                value.push(' ');
                value.push_str(trimmed);
            }
            continue;
        }
        goes_on = false;
        if let Some(name) = trimmed.strip_prefix('[') {
            section = match name.trim_end_matches(']').trim() {
                "global" => Some(Section::Global),
                "download" => Some(Section::Download),
                "install" => Some(Section::Install),
                _ => None,
            };
        } else if let (Some(section), Some((name, value))) =
            (section, trimmed.split_once(['=', ':']))
        {
            let name = name.trim().to_ascii_lowercase().replace('_', "-");
            let name = name.strip_prefix("--").unwrap_or(&name).to_owned();
            settings.push((section, name, value.trim().to_owned()));
            goes_on = true;
        }
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_pip_are_read_as_pip_reads_them() {
        let text = "index-url = https://no.example/\n[install]\nindex-url = https://late.example/\n[freeze]\nindex-url=https://other.example/\n  https://no.example/\n# a comment\n[global]\n\
                    index_url: https://a.example/simple\nextra-index-url =\n  https://b.example/\n\n\thttps://c.example/\n\n[install]\ntimeout = 10\n";
        let expected = [
            (Section::Install, "index-url", "https://late.example/"),
            (Section::Global, "index-url", "https://a.example/simple"),
            (
                Section::Global,
                "extra-index-url",
                " https://b.example/ https://c.example/",
            ),
            (Section::Install, "timeout", "10"),
        ];
        let expected =
            expected.map(|(section, name, value)| (section, name.to_owned(), value.to_owned()));
        assert_eq!(parse(text), expected);
    }
}
