use super::found::{Found, url_behind};
use super::{Surroundings, ini};

/// The index of pip: `PIP_INDEX_URL`, else `index-url` in its files, the nearest first.
pub fn find(surroundings: &Surroundings) -> anyhow::Result<Option<Found>> {
    if let Some(url) = surroundings.variable("PIP_INDEX_URL") {
        return Ok(Some(Found::new(url, "PIP_INDEX_URL")));
    }
    let own = surroundings.variable("PIP_CONFIG_FILE");
    if own == Some("/dev/null") {
        return Ok(None);
    }
    let files = [
        own.map(Into::into),
        surroundings
            .variable("VIRTUAL_ENV")
            .map(|home| std::path::Path::new(home).join("pip.conf")),
        surroundings.config("pip/pip.conf"),
        surroundings.home(".pip/pip.conf"),
        Some(surroundings.system("etc/xdg/pip/pip.conf")),
        Some(surroundings.system("etc/pip.conf")),
    ];
    for file in files.into_iter().flatten() {
        let Some(text) = surroundings.read(&file)? else {
            continue;
        };
        for section in ["install", "download", "global"] {
            if let Some(url) = ini::value(&text, section, &["index-url", "index_url"]) {
                return Ok(Some(Found::new(url, file.display().to_string())));
            }
        }
    }
    Ok(None)
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
    fn the_nearest_setting_counts() {
        let root = tempfile::tempdir().unwrap();
        let find = |variables: &[(&str, &str)]| {
            let found = find(&Surroundings::of_test(root.path(), variables)).unwrap();
            found.map(|found| found.url)
        };
        assert_eq!(find(&[]), None);
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("etc/pip.conf", "[global]\nindex-url = https://system/\n");
        assert_eq!(find(&[]).as_deref(), Some("https://system/"));
        write("home/.pip/pip.conf", "[global]\ncert = /x\n");
        assert_eq!(find(&[]).as_deref(), Some("https://system/"));
        write(
            "home/.config/pip/pip.conf",
            "[global]\nindex_url: https://user/\n[install]\nindex-url=https://install/",
        );
        assert_eq!(find(&[]).as_deref(), Some("https://install/"));
        assert_eq!(find(&[("PIP_CONFIG_FILE", "/dev/null")]), None);
        assert_eq!(
            find(&[("PIP_INDEX_URL", "https://var/")]).as_deref(),
            Some("https://var/")
        );
    }
}
