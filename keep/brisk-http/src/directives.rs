//! Directives of `Cache-Control` (RFC 9111, section 5.2), as requests and responses have them.

use http::HeaderMap;
use http::header::CACHE_CONTROL;

use crate::targeted;

/// The most seconds that a directive can say. A larger number counts as this one (RFC 9111, section 1.2.2).
pub(crate) const MOST_SECONDS: u32 = u32::MAX - 1;

/// One directive of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Directive<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) argument: Argument<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Argument<'a> {
    None,
    Token(&'a [u8]),
    /// What stands between the quotes, with its backslashes.
    Quoted(&'a [u8]),
    /// For example a space before the `=`.
    Malformed,
}

impl<'a> Directive<'a> {
    pub(crate) fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name.as_bytes())
    }

    /// The seconds of an argument. What is no number is 0: RFC 9111, section 4.2.1, wants such a response stale.
    fn seconds(&self) -> u32 {
        match self.argument {
            Argument::Token(text) | Argument::Quoted(text) => seconds(text).unwrap_or(0),
            Argument::None | Argument::Malformed => 0,
        }
    }

    /// The names of fields that an argument lists. None if it has no argument, so that it is about the whole response.
    pub(crate) fn field_names(&self) -> Option<impl Iterator<Item = &'a [u8]> + use<'a>> {
        let list = match self.argument {
            Argument::Token(text) | Argument::Quoted(text) => text,
            Argument::None | Argument::Malformed => return None,
        };
        Some(
            list.split(|byte| *byte == b',')
                .map(<[u8]>::trim_ascii)
                .filter(|name| !name.is_empty()),
        )
    }
}

/// A number of seconds. None if it has other characters than digits, or none.
pub(crate) fn seconds(text: &[u8]) -> Option<u32> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let sum = text.iter().fold(0u32, |sum, digit| {
        sum.saturating_mul(10)
            .saturating_add(u32::from(digit - b'0'))
    });
    Some(sum.min(MOST_SECONDS))
}

/// The directives of one field line. A comma inside of quotes separates nothing.
#[derive(Debug, Clone)]
pub(crate) struct Directives<'a> {
    rest: &'a [u8],
}

impl<'a> Directives<'a> {
    pub(crate) fn of(line: &'a [u8]) -> Self {
        Self { rest: line }
    }

    /// Those of all lines of a field, in order.
    pub(crate) fn all<'h>(
        headers: &'h HeaderMap,
        name: &http::HeaderName,
    ) -> impl Iterator<Item = Directive<'h>> + use<'h> {
        headers
            .get_all(name)
            .into_iter()
            .flat_map(|line| Directives::of(line.as_bytes()))
    }

    fn take_until(&mut self, ends: impl Fn(u8) -> bool) -> &'a [u8] {
        let at = self.rest.iter().position(|byte| ends(*byte));
        let (taken, rest) = self.rest.split_at(at.unwrap_or(self.rest.len()));
        self.rest = rest;
        taken
    }

    fn quoted(&mut self) -> &'a [u8] {
        let mut escaped = false;
        let end = self.rest.iter().position(|byte| {
            let ends = *byte == b'"' && !escaped;
            escaped = *byte == b'\\' && !escaped;
            ends
        });
        // Without a closing quote, the whole rest is quoted.
        let (text, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest.get(1..).unwrap_or_default();
        text
    }
}

impl<'a> Iterator for Directives<'a> {
    type Item = Directive<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        self.take_until(|byte| !matches!(byte, b' ' | b'\t' | b','));
        if self.rest.is_empty() {
            return None;
        }
        let name = self.take_until(|byte| matches!(byte, b'=' | b',' | b' ' | b'\t'));
        let argument = match self.rest {
            [b'=', b'"', rest @ ..] => {
                self.rest = rest;
                Argument::Quoted(self.quoted())
            }
            [b'=', rest @ ..] => {
                self.rest = rest;
                Argument::Token(self.take_until(|byte| byte == b',').trim_ascii_end())
            }
            _ => {
                let after = self.clone().take_until(|byte| byte == b',');
                match after.trim_ascii() {
                    b"" => Argument::None,
                    _ => Argument::Malformed,
                }
            }
        };
        // Whatever else stands before the next comma is no part of this directive, and none of its own.
        loop {
            self.take_until(|byte| matches!(byte, b',' | b'"'));
            match self.rest {
                [b'"', rest @ ..] => {
                    self.rest = rest;
                    self.quoted();
                }
                _ => break,
            }
        }
        Some(Directive { name, argument })
    }
}

/// What the directives of a response say. If a directive comes twice, the first one counts (RFC 9111, section
/// 4.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ResponseDirectives {
    pub(crate) max_age: Option<u32>,
    pub(crate) s_maxage: Option<u32>,
    pub(crate) stale_while_revalidate: Option<u32>,
    pub(crate) stale_if_error: Option<u32>,
    pub(crate) no_store: bool,
    pub(crate) no_cache: bool,
    pub(crate) private: bool,
    pub(crate) public: bool,
    pub(crate) must_revalidate: bool,
    pub(crate) proxy_revalidate: bool,
    pub(crate) must_understand: bool,
    pub(crate) immutable: bool,
    /// Whether they come from a targeted field, so that `Expires` does not count (RFC 9213, section 2.2).
    pub(crate) targeted: bool,
}

impl ResponseDirectives {
    /// The directives of the first field of `targets` that is valid, or else those of `Cache-Control`.
    pub(crate) fn of(headers: &HeaderMap, targets: &[http::HeaderName]) -> Self {
        for target in targets {
            if let Some(directives) = targeted::directives(headers, target) {
                return directives;
            }
        }
        let mut all = Self::default();
        for directive in Directives::all(headers, &CACHE_CONTROL) {
            all.add(&directive);
        }
        all
    }

    fn add(&mut self, directive: &Directive<'_>) {
        // With names of fields it is about these, not about the response.
        let whole = !matches!(directive.argument, Argument::Token(_) | Argument::Quoted(_));
        let numbers = [
            ("max-age", &mut self.max_age),
            ("s-maxage", &mut self.s_maxage),
            ("stale-while-revalidate", &mut self.stale_while_revalidate),
            ("stale-if-error", &mut self.stale_if_error),
        ];
        for (name, value) in numbers {
            if directive.is(name) {
                value.get_or_insert(directive.seconds());
                return;
            }
        }
        let flags = [
            ("no-store", &mut self.no_store, true),
            ("no-cache", &mut self.no_cache, whole),
            ("private", &mut self.private, whole),
            ("public", &mut self.public, true),
            ("must-revalidate", &mut self.must_revalidate, true),
            ("proxy-revalidate", &mut self.proxy_revalidate, true),
            ("must-understand", &mut self.must_understand, true),
            ("immutable", &mut self.immutable, true),
        ];
        for (name, value, applies) in flags {
            if directive.is(name) {
                *value |= applies;
                return;
            }
        }
    }
}

/// What the directives of a request say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RequestDirectives {
    pub(crate) max_age: Option<u32>,
    pub(crate) min_fresh: Option<u32>,
    /// Without an argument, it has no bound.
    pub(crate) max_stale: Option<u32>,
    pub(crate) stale_if_error: Option<u32>,
    pub(crate) no_cache: bool,
    pub(crate) no_store: bool,
    pub(crate) only_if_cached: bool,
}

impl RequestDirectives {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut all = Self::default();
        for directive in Directives::all(headers, &CACHE_CONTROL) {
            if directive.is("max-age") {
                all.max_age.get_or_insert(directive.seconds());
            } else if directive.is("min-fresh") {
                all.min_fresh.get_or_insert(directive.seconds());
            } else if directive.is("max-stale") {
                let bound = match directive.argument {
                    Argument::None => MOST_SECONDS,
                    _ => directive.seconds(),
                };
                all.max_stale.get_or_insert(bound);
            } else if directive.is("stale-if-error") {
                all.stale_if_error.get_or_insert(directive.seconds());
            } else if directive.is("no-cache") {
                all.no_cache = true;
            } else if directive.is("no-store") {
                all.no_store = true;
            } else if directive.is("only-if-cached") {
                all.only_if_cached = true;
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn headers(lines: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(CACHE_CONTROL, HeaderValue::from_str(line).unwrap());
        }
        headers
    }

    fn response(lines: &[&str]) -> ResponseDirectives {
        ResponseDirectives::of(&headers(lines), &[])
    }

    #[test]
    fn names_have_no_case_and_quotes_hide_commas() {
        let found: Vec<_> = Directives::of(br#"Max-Age=1,, x="a, max-age=9\", no-store",no-CACHE"#)
            .map(|directive| (directive.name, directive.argument))
            .collect();
        assert_eq!(
            found,
            [
                (&b"Max-Age"[..], Argument::Token(b"1")),
                (b"x", Argument::Quoted(br#"a, max-age=9\", no-store"#)),
                (b"no-CACHE", Argument::None),
            ]
        );
        assert!(response(&["No-StOrE"]).no_store);
        assert!(!response(&[r#"x="no-store"#]).no_store);
        assert!(!response(&[r#"x y"no-store, ", z"#]).no_store);
    }

    #[test]
    fn numbers_are_of_digits_alone_and_saturate() {
        for (text, seconds) in [
            ("3600", 3600),
            ("003600", 3600),
            ("\"3600\"", 3600),
            ("99999999999999999999999", MOST_SECONDS),
            ("-3600", 0),
            ("'3600'", 0),
            ("3600.0", 0),
            ("a3600", 0),
            ("3600a", 0),
            (" 3600", 0),
            ("", 0),
        ] {
            let line = format!("max-age={text}");
            assert_eq!(response(&[&line]).max_age, Some(seconds), "{line}");
        }
        assert_eq!(response(&["max-age =3600"]).max_age, Some(0));
        assert_eq!(response(&["max-age"]).max_age, Some(0));
        assert_eq!(response(&["max-age=1, max-age=9"]).max_age, Some(1));
        assert_eq!(response(&["max-age=9", "max-age=1"]).max_age, Some(9));
    }

    #[test]
    fn names_of_fields_do_not_speak_of_the_response() {
        let directives = response(&[r#"no-cache="set-cookie", private="x-a, x-b""#]);
        assert!(!directives.no_cache && !directives.private);
        let both = response(&[r#"no-cache="set-cookie", no-cache"#]);
        assert!(both.no_cache);
        let names: Vec<_> = Directives::of(br#"no-cache=" Set-Cookie,,b ""#)
            .filter_map(|directive| directive.field_names())
            .flatten()
            .collect();
        assert_eq!(names, [b"Set-Cookie".as_slice(), b"b"]);
    }

    #[test]
    fn requests_have_bounds() {
        let of = |line| RequestDirectives::of(&headers(&[line]));
        assert_eq!(of("max-stale").max_stale, Some(MOST_SECONDS));
        assert_eq!(of("max-stale=5").max_stale, Some(5));
        assert_eq!(of("max-stale=x").max_stale, Some(0));
        assert_eq!(of("max-stale =5").max_stale, Some(0));
        let all =
            of("no-cache, no-store, only-if-cached, min-fresh=1, max-age=2, stale-if-error=3");
        assert!(all.no_cache && all.no_store && all.only_if_cached);
        assert_eq!(
            (all.min_fresh, all.max_age, all.stale_if_error),
            (Some(1), Some(2), Some(3))
        );
    }
}
