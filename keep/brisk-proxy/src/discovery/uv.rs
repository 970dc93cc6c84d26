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

/// The index of uv: `UV_DEFAULT_INDEX` or `UV_INDEX_URL`, else its files, the nearest first.
pub fn find(surroundings: &Surroundings) -> anyhow::Result<Option<Found>> {
    for name in ["UV_DEFAULT_INDEX", "UV_INDEX_URL"] {
        if let Some(value) = surroundings.variable(name) {
            return Ok(Some(Found::new(without_name(value), name)));
        }
    }
    let near = surroundings
        .here_and_above()
        .map(|directory| directory.join("uv.toml"))
        .find(|file| file.is_file());
    let files = match surroundings.variable("UV_CONFIG_FILE") {
        Some(file) => vec![Some(file.into())],
        None => vec![
            near,
            surroundings.config("uv/uv.toml"),
            Some(surroundings.system("etc/xdg/uv/uv.toml")),
            Some(surroundings.system("etc/uv/uv.toml")),
        ],
    };
    for file in files.into_iter().flatten() {
        let Some(text) = surroundings.read(&file)? else {
            continue;
        };
        let place = file.display().to_string();
        let settings: Settings = toml::from_str(&text).with_context(|| place.clone())?;
        let named = settings.index.into_iter().find(|index| index.default);
        let url = named
            .map(|index| index.url)
            .or(settings.index_url)
            .or(settings.pip.index_url);
        if let Some(url) = url {
            return Ok(Some(Found::new(url, place)));
        }
    }
    Ok(None)
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
        let found = find(&[("UV_DEFAULT_INDEX", "x=https://var/?a=b")]);
        assert_eq!(found.as_deref(), Some("https://var/?a=b"));
        assert_eq!(
            find(&[("UV_INDEX_URL", "https://v/")]).as_deref(),
            Some("https://v/")
        );
    }
}
