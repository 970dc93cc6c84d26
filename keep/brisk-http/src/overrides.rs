use std::borrow::Cow;

use crate::credentials::Credentials;
use crate::options::Options;

/// What is different for some URLs. What is `None` or `false` stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Override {
    /// See [`Options::credentials`].
    pub credentials: Option<Credentials>,
    /// See [`Options::min_lifetime`].
    pub min_lifetime: Option<u32>,
    /// See [`Options::max_lifetime`].
    pub max_lifetime: Option<u32>,
    /// See [`Options::negative_lifetime`].
    pub negative_lifetime: Option<u32>,
    /// See [`Options::stale_while_revalidate`].
    pub stale_while_revalidate: Option<u32>,
    /// See [`Options::stale_if_error`].
    pub stale_if_error: Option<u32>,
    /// See [`Options::stale_negative`].
    pub stale_negative: bool,
    /// See [`Options::ignore`].
    pub ignore: bool,
    /// See [`Options::offline`].
    pub offline: bool,
}

/// Overrides by pattern, in order.
///
/// A pattern with a slash is compared with the URL without its scheme, one without with the host alone. `*` stands for
/// any text, slashes too. All that match apply; of two that set one value, the later one counts.
///
/// ```
/// use brisk_http::{Options, Override, Overrides};
///
/// let mut overrides = Overrides::default();
/// let index = Override { max_lifetime: Some(60), ..Override::default() };
/// overrides.add("example.org/simple/*", index);
/// let options = Options::private();
/// let of = |url| overrides.options(url, &options).max_lifetime;
/// assert_eq!(of("https://example.org/simple/brisk/"), Some(60));
/// assert_eq!(of("https://example.org/packages/a.whl"), None);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Overrides {
    rules: Vec<(String, Override)>,
}

impl Overrides {
    /// Adds a pattern behind the others.
    pub fn add(&mut self, pattern: &str, rule: Override) {
        self.rules.push((pattern.to_owned(), rule));
    }

    /// The options for a URL.
    pub fn options<'o>(&self, url: &str, options: &'o Options) -> Cow<'o, Options> {
        let mut found = Cow::Borrowed(options);
        for (pattern, rule) in &self.rules {
            if applies(pattern, url) {
                rule.apply(found.to_mut());
            }
        }
        found
    }
}

impl Override {
    fn apply(&self, options: &mut Options) {
        let values = [
            (self.min_lifetime, &mut options.min_lifetime),
            (self.max_lifetime, &mut options.max_lifetime),
            (self.negative_lifetime, &mut options.negative_lifetime),
            (
                self.stale_while_revalidate,
                &mut options.stale_while_revalidate,
            ),
            (self.stale_if_error, &mut options.stale_if_error),
        ];
        for (value, target) in values {
            if value.is_some() {
                *target = value;
            }
        }
        options.credentials = self.credentials.or(options.credentials);
        options.stale_negative |= self.stale_negative;
        options.ignore |= self.ignore;
        options.offline |= self.offline;
    }
}

fn applies(pattern: &str, url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let whole = match pattern.contains('/') {
        true => rest,
        false => {
            let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
            authority
                .rsplit_once('@')
                .map_or(authority, |(_, host)| host)
        }
    };
    matches(pattern.as_bytes(), whole.as_bytes())
}

/// Goes back to the last star only, so it takes at most the product of both lengths.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match (pattern.get(p), star) {
            (Some(b'*'), _) => {
                star = Some((p, t));
                p += 1;
            }
            (Some(byte), _) if text.get(t) == Some(byte) => {
                p += 1;
                t += 1;
            }
            (_, Some((at, from))) => {
                p = at + 1;
                t = from + 1;
                star = Some((at, t));
            }
            (_, None) => return false,
        }
    }
    pattern
        .get(p..)
        .is_some_and(|rest| rest.iter().all(|byte| *byte == b'*'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_text() {
        let url = "https://user@Index.example:8443/simple/brisk/?a=b/c";
        for (pattern, expected) in [
            ("*", true),
            ("*.example:8443", true),
            ("index.example:8443", false),
            ("Index.example", false),
            ("*/simple/*", true),
            ("*/simple/*/", false),
            ("*/simple/*c", true),
            ("*b*r*i*s*k*", false),
            ("*/b*r*i*s*k*", true),
            ("", false),
        ] {
            assert_eq!(applies(pattern, url), expected, "{pattern}");
        }
    }

    #[test]
    fn later_rules_count_more() {
        let mut overrides = Overrides::default();
        let options = Options::private();
        assert!(matches!(
            overrides.options("https://a/", &options),
            Cow::Borrowed(_)
        ));
        let rule = Override {
            min_lifetime: Some(1),
            offline: true,
            ..Override::default()
        };
        overrides.add("a", rule);
        let rule = Override {
            min_lifetime: Some(2),
            ..Override::default()
        };
        overrides.add("*", rule);
        let found = overrides.options("https://a/", &options);
        assert_eq!((found.min_lifetime, found.offline), (Some(2), true));
        let found = overrides.options("https://b/", &options);
        assert_eq!((found.min_lifetime, found.offline), (Some(2), false));
    }
}
