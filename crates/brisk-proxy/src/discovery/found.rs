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

/// What to do if the clients of a preset are not configured.
pub(super) fn what_to_set(kind: Kind) -> &'static str {
    match kind {
        Kind::Python => {
            "neither pip nor uv names an index; install one of them, or set PIP_INDEX_URL or UV_DEFAULT_INDEX, or index-url in \
             pip.conf or uv.toml, or say --preset python=URL"
        }
        Kind::Npm => {
            "npm names no registry in its configuration; set npm_config_registry, or registry in .npmrc, or say --preset \
             npm=URL"
        }
        Kind::Cargo => {
            "cargo names no sparse index; install it, or set the replace-with of crates-io in the config.toml of \
             cargo, or say --preset cargo=URL"
        }
        Kind::Go => "go names no proxy in its configuration; set GOPROXY, or say --preset go=URL",
        Kind::Apt => {
            "apt has no source with http or https in /etc/apt; add one, or say --preset apt=URL"
        }
        Kind::Plain => "there is nothing to find",
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
