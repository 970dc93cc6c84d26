use std::path::Path;

use anyhow::Context;
use serde::Deserialize;

use super::Surroundings;
use super::found::{Found, url_behind};

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Settings {
    index: Vec<Index>,
    index_url: Option<String>,
    pip: Pip,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Index {
    url: String,
    default: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Pip {
    index_url: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Project {
    tool: Tool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Tool {
    uv: Option<Settings>,
}

/// The index of uv: `UV_DEFAULT_INDEX` or `UV_INDEX_URL`, else its files, the nearest first.
pub fn find(surroundings: &Surroundings) -> anyhow::Result<Option<Found>> {
    for name in ["UV_DEFAULT_INDEX", "UV_INDEX_URL"] {
        if let Some(value) = surroundings.variable(name) {
            return Ok(Some(Found::new(without_name(value), name)));
        }
    }
    if let Some(file) = surroundings.variable("UV_CONFIG_FILE") {
        // It stands for all others.
        return Ok(of_file(surroundings, Path::new(file))?.and_then(default_index));
    }
    let mut all = Vec::new();
    for directory in surroundings.here_and_above() {
        // The next file stands for those above it.
        if let Some(near) = of_directory(surroundings, directory)? {
            all.push(near);
            break;
        }
    }
    let others = surroundings.config("uv/uv.toml").into_iter();
    let others = others.chain(surroundings.system_config("uv/uv.toml"));
    for file in others.chain([surroundings.system("etc/uv/uv.toml")]) {
        all.extend(of_file(surroundings, &file)?);
    }
    Ok(all.into_iter().find_map(default_index))
}

/// The settings of a file, and the place of the file.
type Placed = (Settings, String);

fn of_file(surroundings: &Surroundings, file: &Path) -> anyhow::Result<Option<Placed>> {
    let Some(text) = surroundings.read(file)? else {
        return Ok(None);
    };
    let place = file.display().to_string();
    let settings = toml::from_str(&text).with_context(|| place.clone())?;
    Ok(Some((settings, place)))
}

/// Of `uv.toml`, or of `pyproject.toml` if it has a section for uv.
fn of_directory(surroundings: &Surroundings, directory: &Path) -> anyhow::Result<Option<Placed>> {
    if let Some(own) = of_file(surroundings, &directory.join("uv.toml"))? {
        return Ok(Some(own));
    }
    let file = directory.join("pyproject.toml");
    let text = surroundings.read(&file)?.unwrap_or_default();
    // As uv does, it passes over a file that may be of another tool.
    let project: Project = toml::from_str(&text).unwrap_or_default();
    let place = file.display().to_string();
    Ok(project.tool.uv.map(|settings| (settings, place)))
}

fn default_index((settings, place): Placed) -> Option<Found> {
    let named = settings.index.into_iter().find(|index| index.default);
    let url = named.map(|index| index.url);
    let url = url.or(settings.index_url).or(settings.pip.index_url);
    Some(Found::new(url?, place))
}

/// An index may have a name: `internal=https://index.example/simple`.
fn without_name(value: &str) -> &str {
    match value.split_once('=') {
        Some((name, url)) if !name.contains([':', '/']) => url,
        _ => value,
    }
}

/// The index that uv has built in, as its help says.
pub fn default(surroundings: &Surroundings) -> Option<Found> {
    let help = surroundings.ask("uv", &["pip", "install", "--help"])?;
    let url = url_behind(&help, "--default-index")?;
    Some(Found::new(url, "the default of uv"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_default_index_counts() {
        let root = tempfile::tempdir().unwrap();
        let find = |variables: &[(&str, &str)]| {
            let found = find(&Surroundings::of_test(root.path(), variables)).unwrap();
            found.map(|found| found.url)
        };
        assert_eq!(find(&[]), None);
        let file = root.path().join("home/.config/uv/uv.toml");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        for (text, expected) in [
            (
                "native-tls = true\n[[index]]\nurl = 'https://other/'\n",
                None,
            ),
            ("[pip]\nindex-url = 'https://pip/'\n", Some("https://pip/")),
            ("index-url = 'https://old/'\n", Some("https://old/")),
            (
                "[[index]]\nurl = 'https://other/'\n[[index]]\nname = 'x'\nurl = 'https://new/'\ndefault = true\n",
                Some("https://new/"),
            ),
        ] {
            fs::write(&file, text).unwrap();
            assert_eq!(find(&[]).as_deref(), expected, "{text}");
        }
        let here = root.path().join("home/here");
        fs::create_dir_all(&here).unwrap();
        let project = here.join("pyproject.toml");
        for (text, expected) in [
            ("[project]\nname = 'some'\n", "https://new/"),
            ("no toml", "https://new/"),
            (
                "[[tool.uv.index]]\nurl = 'https://project/'\ndefault = true\n",
                "https://project/",
            ),
        ] {
            fs::write(&project, text).unwrap();
            assert_eq!(find(&[]).as_deref(), Some(expected), "{text}");
        }
        fs::write(here.join("uv.toml"), "index-url = 'https://here/'\n").unwrap();
        assert_eq!(find(&[]).as_deref(), Some("https://here/"));
        let named = root.path().join("named.toml");
        fs::write(&named, "index-url = 'https://named/'\n").unwrap();
        let named = [("UV_CONFIG_FILE", named.to_str().unwrap())];
        assert_eq!(find(&named).as_deref(), Some("https://named/"));
        let found = find(&[("UV_DEFAULT_INDEX", "x=https://var/?a=b")]);
        assert_eq!(found.as_deref(), Some("https://var/?a=b"));
        assert_eq!(
            find(&[("UV_INDEX_URL", "https://v/")]).as_deref(),
            Some("https://v/")
        );
    }
}
