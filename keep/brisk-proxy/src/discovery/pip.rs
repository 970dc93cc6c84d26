use std::path::{Path, PathBuf};

use anyhow::Context;
use configparser::ini::Ini;

use super::found::{Found, url_behind};
use super::ini::{self, Values};
use super::surroundings::Surroundings;

/// The index of pip: `PIP_INDEX_URL`, else `index-url` in its files. As in pip, all files are joined before their sections
/// are looked at, and of a setting the last file counts that has it.
pub fn find(surroundings: &Surroundings) -> anyhow::Result<Option<Found>> {
    if let Some(url) = surroundings.variable("PIP_INDEX_URL") {
        return Ok(Some(Found::new(url, "PIP_INDEX_URL")));
    }
    let mut read = Vec::new();
    for file in files(surroundings).into_iter().rev() {
        if let Some(text) = surroundings.read(&file)? {
            let place = file.display().to_string();
            let settings = ini::parse(&text, Values::OfLines).with_context(|| place.clone())?;
            read.push((settings, place));
        }
    }
    let of_section = |section| {
        let mut found = read.iter().filter_map(|(settings, place)| {
            let url = index_url(settings, section)?;
            Some(Found::new(url.trim(), place))
        });
        // An empty one hides those of other files, and does not count itself.
        found.next().filter(|found| !found.url.is_empty())
    };
    Ok(["install", "download", "global"]
        .into_iter()
        .find_map(of_section))
}

fn index_url<'i>(settings: &'i Ini, section: &str) -> Option<&'i str> {
    let settings = settings.get_map_ref().get(section)?.iter();
    let spelled = |name: &str| name.to_ascii_lowercase().replace('_', "-");
    let of_name =
        settings.filter(|(name, _)| spelled(name).trim_start_matches("--") == "index-url");
    of_name.max()?.1.as_deref()
}

/// Those of the system, of the user and of the virtual environment, and the one that `PIP_CONFIG_FILE` names.
fn files(surroundings: &Surroundings) -> Vec<PathBuf> {
    let own = surroundings.variable("PIP_CONFIG_FILE").map(Path::new);
    if own == Some(Path::new("/dev/null")) {
        // That is how pip is told to read none.
        return Vec::new();
    }
    let of_user = [
        surroundings.home(".pip/pip.conf"),
        surroundings.config("pip/pip.conf"),
    ];
    let of_user = of_user
        .into_iter()
        .flatten()
        .filter(|_| !own.is_some_and(Path::exists));
    let environment = surroundings.variable("VIRTUAL_ENV");
    let mut files: Vec<PathBuf> = surroundings.system_config("pip/pip.conf").collect();
    files.push(surroundings.system("etc/pip.conf"));
    files.extend(of_user);
    files.extend(environment.map(|home| Path::new(home).join("pip.conf")));
    files.extend(own.map(Path::to_owned));
    files
}

/// The index that pip has built in, as its help says.
pub fn default(surroundings: &Surroundings) -> Option<Found> {
    ["pip", "pip3"].into_iter().find_map(|pip| {
        let help = surroundings.ask(pip, &["install", "--help"])?;
        let url = url_behind(&help, "--index-url")?;
        Some(Found::new(url, format!("the default of {pip}")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_files_of_pip_name_an_index() {
        const GLOBAL: &str = "[global]\nindex-url = https://global/\n";
        const USER: &str = "[global]\nindex_url: https://user/\n";
        type Pairs = &'static [(&'static str, &'static str)];
        let cases: &[(Pairs, Pairs, Option<&str>)] = &[
            (&[], &[], None),
            (&[("etc/pip.conf", GLOBAL)], &[], Some("https://global/")),
            (
                &[("etc/xdg/pip/pip.conf", GLOBAL)],
                &[],
                Some("https://global/"),
            ),
            (
                &[("one/pip/pip.conf", GLOBAL), ("etc/xdg/pip/pip.conf", USER)],
                &[("XDG_CONFIG_DIRS", "ROOT/none:ROOT/one")],
                Some("https://global/"),
            ),
            // Of a setting, the last file counts: the system's, the user's, the environment's, and the named one.
            (
                &[
                    ("etc/pip.conf", GLOBAL),
                    ("home/.pip/pip.conf", "[global]\ncert = /x\n"),
                ],
                &[],
                Some("https://global/"),
            ),
            (
                &[
                    ("etc/pip.conf", GLOBAL),
                    ("home/.pip/pip.conf", "[global]\nindex-url = https://old/\n"),
                    ("home/.config/pip/pip.conf", USER),
                ],
                &[],
                Some("https://user/"),
            ),
            (
                &[
                    ("home/.config/pip/pip.conf", GLOBAL),
                    ("xdg/pip/pip.conf", USER),
                ],
                &[("XDG_CONFIG_HOME", "ROOT/xdg")],
                Some("https://user/"),
            ),
            (
                &[
                    ("home/.config/pip/pip.conf", USER),
                    ("venv/pip.conf", "[global]\nindex-url = https://venv/\n"),
                ],
                &[("VIRTUAL_ENV", "ROOT/venv")],
                Some("https://venv/"),
            ),
            // A file that is named hides the user's, and not the system's.
            (
                &[
                    ("etc/pip.conf", GLOBAL),
                    ("home/.config/pip/pip.conf", USER),
                    ("named.conf", "[global]\ntimeout = 1\n"),
                ],
                &[("PIP_CONFIG_FILE", "ROOT/named.conf")],
                Some("https://global/"),
            ),
            (
                &[("home/.config/pip/pip.conf", USER)],
                &[("PIP_CONFIG_FILE", "ROOT/none.conf")],
                Some("https://user/"),
            ),
            (
                &[("etc/pip.conf", GLOBAL)],
                &[("PIP_CONFIG_FILE", "/dev/null")],
                None,
            ),
            (
                &[("etc/pip.conf", GLOBAL)],
                &[
                    ("PIP_CONFIG_FILE", "/dev/null"),
                    ("PIP_INDEX_URL", "https://var/"),
                ],
                Some("https://var/"),
            ),
            // All files are one before sections are looked at.
            (
                &[
                    ("etc/pip.conf", "[install]\nIndex-URL=https://install/"),
                    ("home/.config/pip/pip.conf", USER),
                ],
                &[],
                Some("https://install/"),
            ),
            // What is empty does not count.
            (
                &[(
                    "etc/pip.conf",
                    "[install]\nindex-url =\n[global]\nindex-url =\n  https://a/\n",
                )],
                &[("PIP_INDEX_URL", " ")],
                Some("https://a/"),
            ),
            // Other sections, and what is in none.
            (
                &[(
                    "etc/pip.conf",
                    "index-url = https://a/\n[freeze]\nindex-url = https://b/\n[Global]\nindex-url = https://c/\n",
                )],
                &[],
                None,
            ),
        ];
        for (files, variables, expected) in cases {
            let root = tempfile::tempdir().unwrap();
            for (path, text) in *files {
                let path = root.path().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            let root_path = root.path().to_str().unwrap();
            let variables = variables.iter();
            let variables: Vec<(&str, String)> = variables
                .map(|(name, value)| (*name, value.replace("ROOT", root_path)))
                .collect();
            let variables: Vec<(&str, &str)> = variables
                .iter()
                .map(|(name, value)| (*name, value.as_str()))
                .collect();
            let found = find(&Surroundings::of_test(root.path(), &variables)).unwrap();
            let url = found.map(|found| found.url);
            assert_eq!(url.as_deref(), *expected, "{files:?} {variables:?}");
        }
    }

    #[test]
    fn a_file_that_pip_cannot_read_is_named() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("etc/pip.conf");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "[global\nindex-url = https://a/\n").unwrap();
        let said = find(&Surroundings::of_test(root.path(), &[])).unwrap_err();
        let said = format!("{said:#}");
        let place = format!("{}: line 1: ", file.display());
        assert!(said.starts_with(&place), "{said}");
    }
}
