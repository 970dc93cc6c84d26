use super::found::Found;
use super::{Surroundings, ini};

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
        let text = surroundings.read(&file)?.unwrap_or_default();
        if let Some(url) = ini::value(&text, "", &["registry"]) {
            let url = expanded(url, surroundings);
            return Ok(Some(Found::new(url, file.display().to_string())));
        }
    }
    let said = surroundings.ask("npm", &["config", "get", "registry"]);
    Ok(said.map(|url| Found::new(url, "npm config get registry")))
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
