//! Sparse indexes of Rust crates: `dl` in `config.json` must be a whole URL, with or without places for names.

use url::Url;

use super::json_strings;
use super::links::{Links, MOST_PAGE_BYTES, Unreadable};
use crate::stated::OF_CARGO;

const DOWNLOADS: &[json_strings::Step] = &[Some("dl")];

pub fn rewrite(links: &Links<'_>, page: &[u8]) -> Result<Vec<u8>, Unreadable> {
    json_strings::replace(page, &[DOWNLOADS], MOST_PAGE_BYTES, |template| {
        let (fixed, rest) = split(template);
        let path = links.path_of(&Url::parse(fixed).ok()?)?;
        // A URL of a host alone gets a slash.
        let slash = match fixed.ends_with('/') {
            true => "",
            false => path.strip_suffix('/').map_or("", |_| "/"),
        };
        let path = path.strip_suffix(slash).unwrap_or(&path);
        // Cargo itself adds this to a template without places, and the one for the digest makes it one with places.
        let rest = match template.contains('{') {
            true => rest.to_owned(),
            false => format!(
                "{}/{{crate}}/{{version}}/download",
                rest.trim_end_matches('/')
            ),
        };
        Some(format!("{}{OF_CARGO}{path}{rest}", links.proxy))
    })
}

/// The part before the segment that has the first place for a name, and the rest.
fn split(template: &str) -> (&str, &str) {
    let Some(place) = template.find('{') else {
        return (template, "");
    };
    let before = template.get(..place).unwrap_or_default();
    let end = before.rfind('/').map_or(place, |slash| slash + 1);
    template.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preset::links::with_links;

    #[test]
    fn downloads_come_from_the_proxy() {
        let maps = [
            "/cargo=cargo:https://index.example/index",
            "/files=https://files.example",
        ];
        let place = (
            "https://index.example/index/config.json",
            "/cargo/config.json",
        );
        let of = |template: &str| {
            let page = format!("{{\"dl\": \"{template}\", \"api\": \"https://index.example\"}}");
            let new = with_links(&maps, place, "http://proxy.example", |links| {
                String::from_utf8(rewrite(links, page.as_bytes()).unwrap()).unwrap()
            });
            let (_, rest) = new.split_once("\"dl\": \"").unwrap();
            let (found, rest) = rest.split_once('"').unwrap();
            assert_eq!(rest, ", \"api\": \"https://index.example\"}");
            match found.split_once("/~files/") {
                Some((before, after)) => format!("{before}/~files/SIG{}", &after[32..]),
                None => found.to_owned(),
            }
        };
        for (template, expected) in [
            (
                "https://files.example/crates",
                "http://proxy.example/~sha256/{sha256-checksum}/files/crates/{crate}/{version}/download",
            ),
            (
                "https://files.example",
                "http://proxy.example/~sha256/{sha256-checksum}/files/{crate}/{version}/download",
            ),
            (
                "https://files.example/{crate}/{version}.crate",
                "http://proxy.example/~sha256/{sha256-checksum}/files/{crate}/{version}.crate",
            ),
            (
                "https://cdn.example/a/x-{prefix}/{crate}",
                "http://proxy.example/~sha256/{sha256-checksum}/cargo/~files/SIG/https/cdn.example/a/x-{prefix}/{crate}",
            ),
            (
                "https://cdn.example",
                "http://proxy.example/~sha256/{sha256-checksum}/cargo/~files/SIG/https/cdn.example/{crate}/{version}/download",
            ),
            ("http://cdn.example/x", "http://cdn.example/x"),
        ] {
            assert_eq!(of(template), expected, "{template}");
        }
    }
}
