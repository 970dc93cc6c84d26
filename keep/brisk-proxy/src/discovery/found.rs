//! What clients are configured with.

use crate::kind::Kind;

/// A URL that a client is configured with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The URL, as the client has it.
    pub url: String,
    /// Where it was found, for people.
    pub place: String,
}

impl Found {
    pub(super) fn new(url: impl Into<String>, place: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            place: place.into(),
        }
    }
}

/// The first URL that the help of a client has behind an option.
pub(super) fn url_behind<'t>(help: &'t str, option: &str) -> Option<&'t str> {
    let (_, behind) = help.split_once(option)?;
    let words = behind.split_whitespace();
    let mut bare = words.map(|word| word.trim_matches(['(', ')', '<', '>', '[', ']', ',', '.']));
    bare.find(|word| word.starts_with("https://") || word.starts_with("http://"))
}

/// What to do if the clients of a preset are not configured. `installed` is the one whose default could be taken, and
/// `is_asked` whether it was asked for that and did not say it.
pub(super) fn what_to_set(kind: Kind, installed: Option<&str>, is_asked: bool) -> String {
    let (lacks, set) = match kind {
        Kind::Python => (
            "neither pip nor uv names an index",
            "set PIP_INDEX_URL or UV_DEFAULT_INDEX, or index-url in pip.conf or uv.toml, or say --preset python=URL",
        ),
        Kind::Npm => (
            "npm names no registry in its configuration",
            "set npm_config_registry, or registry in .npmrc, or say --preset npm=URL",
        ),
        Kind::Cargo => (
            "cargo names no sparse index",
            "set the replace-with of crates-io in the config.toml of cargo, or say --preset cargo=URL",
        ),
        Kind::Go => (
            "go names no proxy in its configuration",
            "set GOPROXY, or say --preset go=URL",
        ),
        Kind::Apt => (
            "apt has no source with http or https in /etc/apt",
            "add one, or say --preset apt=URL",
        ),
        Kind::Plain | Kind::Oci | Kind::OciPush => return "there is nothing to find".to_owned(),
    };
    let kind = kind.name();
    match (installed, is_asked) {
        (Some(client), false) => format!(
            "{lacks} in its configuration; say --preset {kind} to serve the one that {client} asks by default, or {set}"
        ),
        (Some(client), true) => {
            format!(
                "{lacks} in its configuration, and {client} does not say which one it asks by default; {set}"
            )
        }
        (None, _) => match kind {
            "python" => format!("{lacks}; install one of them, or {set}"),
            "cargo" => format!("{lacks}; install it, or {set}"),
            _ => format!("{lacks}; {set}"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_says_the_default_of_an_option() {
        let pip = "  -i, --index-url <url>       Base URL of the Package Index (default\n                 \
                   https://index.example/simple). This should point to\n  --extra-index-url <url>  https://other.example\n";
        let uv = "      --default-index <DEFAULT_INDEX>\n          The default package index (by default: \
                  <https://index.example/simple>) [env: X=]\n";
        for (help, option) in [(pip, "--index-url"), (uv, "--default-index")] {
            assert_eq!(
                url_behind(help, option),
                Some("https://index.example/simple")
            );
        }
        assert_eq!(url_behind(pip, "--other"), None);
    }
}
