use anyhow::Context;

use super::Surroundings;
use super::found::Found;
use super::ini::{self, Values};

/// The registry of npm: `npm_config_registry`, else `registry` in its files, the nearest first, else what npm says.
pub fn find(surroundings: &Surroundings) -> anyhow::Result<Option<Found>> {
    let name = "npm_config_registry";
    if let Some(url) = surroundings.variable_of_any_case(name) {
        return Ok(Some(Found::new(url, name)));
    }
    let near = surroundings
        .here_and_above()
        .map(|directory| directory.join(".npmrc"))
        .find(|file| file.is_file());
    let named = |name| surroundings.variable_of_any_case(name).map(Into::into);
    let files = [
        near,
        named("npm_config_userconfig").or_else(|| surroundings.home(".npmrc")),
        named("npm_config_globalconfig"),
        Some(surroundings.system("usr/local/etc/npmrc")),
        Some(surroundings.system("usr/etc/npmrc")),
        Some(surroundings.system("etc/npmrc")),
    ];
    for file in files.into_iter().flatten() {
        let Some(text) = surroundings.read(&file)? else {
            continue;
        };
        let place = file.display().to_string();
        let settings = ini::parse(&text, Values::OfOneLine).with_context(|| place.clone())?;
        let url = settings.get("", "registry").unwrap_or_default();
        if !unquoted(&url).is_empty() {
            return Ok(Some(Found::new(
                expanded(unquoted(&url), surroundings),
                place,
            )));
        }
    }
    let said = surroundings.ask("npm", &["config", "get", "registry"]);
    Ok(said.map(|url| Found::new(url, "npm config get registry")))
}

fn unquoted(value: &str) -> &str {
    let inner = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    inner('"').or_else(|| inner('\'')).unwrap_or(value)
}

/// The value with the values of variables in place of `${NAME}`.
fn expanded(value: &str, surroundings: &Surroundings) -> String {
    let mut parts = value.split("${");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let known = part
            .split_once('}')
            .and_then(|(name, rest)| Some((surroundings.variable(name)?, rest)));
        match known {
            Some((value, rest)) => {
                text.push_str(value);
                text.push_str(rest);
            }
            None => {
                text.push_str("${");
                text.push_str(part);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_nearest_registry_counts() {
        let root = tempfile::tempdir().unwrap();
        let find = |variables: &[(&str, &str)]| {
            let found = find(&Surroundings::of_test(root.path(), variables)).unwrap();
            found.map(|found| found.url)
        };
        assert_eq!(find(&[]), None);
        fs::create_dir_all(root.path().join("home/here")).unwrap();
        let registry =
            "audit=false\n@x:registry=https://scope/\nregistry = \"https://${H}/${N}\"\n";
        fs::write(root.path().join("home/.npmrc"), registry).unwrap();
        assert_eq!(find(&[("H", "h")]).as_deref(), Some("https://h/${N}"));
        fs::write(
            root.path().join("home/here/.npmrc"),
            "registry=https://near/",
        )
        .unwrap();
        assert_eq!(find(&[]).as_deref(), Some("https://near/"));
        let found = find(&[("NPM_CONFIG_REGISTRY", "https://var/")]);
        assert_eq!(found.as_deref(), Some("https://var/"));
    }
}
