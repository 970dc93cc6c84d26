//! Files that stay what they are as long as they have their name.

use http::header::{CACHE_CONTROL, EXPIRES, PRAGMA, SET_COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue};

/// Marks a request for such a file.
#[derive(Debug, Clone, Copy)]
pub struct Lasting;

/// How long such a file is kept: a year, the longest time that is of use.
pub const LIFETIME: &str = "max-age=31536000, immutable";

/// What says the same to caches of servers alone. The cache heeds it in place of `Cache-Control` (RFC 9213).
pub const TO_SERVERS: HeaderName = HeaderName::from_static("cdn-cache-control");

/// Says in an answer that it lasts for `lifetime`, unless its upstream forbids to keep it or wants to be asked. If the
/// request was authorized, it lasts for requests with the same authorization: what the upstream gives all for a while is
/// not for all for a year. Returns whether it lasts.
pub fn mark(headers: &mut HeaderMap, lifetime: &str, is_authorized: bool) -> bool {
    let mut kept = Vec::new();
    let lines = headers.get_all(CACHE_CONTROL).into_iter();
    for line in lines.chain(headers.get_all(TO_SERVERS)) {
        let Ok(line) = line.to_str() else {
            return false;
        };
        for directive in line
            .split(',')
            .map(str::trim)
            .filter(|text| !text.is_empty())
        {
            let name = directive.split('=').next().unwrap_or_default().trim();
            match name.to_ascii_lowercase().as_str() {
                "no-store" | "no-cache" | "private" | "must-revalidate" | "proxy-revalidate"
                | "must-understand" => return false,
                "max-age" | "s-maxage" | "immutable" => {}
                "public" if is_authorized => {}
                _ => kept.push(directive.to_owned()),
            }
        }
    }
    kept.push(lifetime.to_owned());
    // Its parts were in a field before.
    let Ok(value) = HeaderValue::try_from(kept.join(", ")) else {
        return false;
    };
    headers.insert(CACHE_CONTROL, value);
    headers.remove(TO_SERVERS);
    headers.remove(EXPIRES);
    headers.remove(PRAGMA);
    // It would be given to all, for a year.
    headers.remove(SET_COOKIE);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_lasts_unless_its_upstream_forbids_that() {
        for (lines, is_authorized, expected) in [
            (&[][..], false, "max-age=31536000, immutable"),
            (
                &["max-age=60, public"],
                false,
                "public, max-age=31536000, immutable",
            ),
            (
                &["max-age=60, Public, s-maxage=9"],
                true,
                "max-age=31536000, immutable",
            ),
            (
                &["s-maxage=0", "no-transform"],
                false,
                "no-transform, max-age=31536000, immutable",
            ),
            (&["no-store"], true, "no-store"),
            (&["max-age=60", "Private"], false, "max-age=60"),
            (&["no-cache=\"x\""], false, "no-cache=\"x\""),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(CACHE_CONTROL, HeaderValue::from_static(line));
            }
            mark(&mut headers, LIFETIME, is_authorized);
            assert_eq!(headers[CACHE_CONTROL], expected, "{lines:?}");
        }
        for (line, lasts) in [("public, max-age=60", true), ("no-store", false)] {
            let field = (TO_SERVERS, HeaderValue::from_static(line));
            let mut headers: HeaderMap = [field].into_iter().collect();
            assert_eq!(mark(&mut headers, LIFETIME, true), lasts, "{line}");
            assert_eq!(headers.contains_key(TO_SERVERS), !lasts, "{line}");
        }
    }
}
