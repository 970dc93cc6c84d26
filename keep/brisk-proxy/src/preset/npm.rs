//! Registries of npm packages: `dist.tarball` of each version must be a whole URL.

use std::collections::HashMap;

use serde::Deserialize;

use super::json_strings;
use super::links::{Links, MOST_PAGE_BYTES, Unreadable};
use crate::stated::Stated;

/// Of a package with all versions, and of a single version.
const TARBALLS: [&[json_strings::Step]; 2] = [
    &[Some("versions"), None, Some("dist"), Some("tarball")],
    &[Some("dist"), Some("tarball")],
];

/// Searches and the like stand under `/-/`, and have no tarballs.
pub fn may_be_page(rest: &str) -> bool {
    !rest.contains("/-/") && !rest.ends_with(".tgz")
}

pub fn rewrite(links: &Links<'_>, page: &[u8]) -> Result<Vec<u8>, Unreadable> {
    let stated = stated_in(page);
    json_strings::replace(page, &TARBALLS, MOST_PAGE_BYTES, |link| {
        links.whole_replacement(link, stated.get(link))
    })
}

/// The digest of each tarball that a page names, by its URL.
fn stated_in(page: &[u8]) -> HashMap<String, Stated> {
    #[derive(Deserialize)]
    struct Page {
        #[serde(default)]
        versions: HashMap<String, Version>,
        dist: Option<Dist>,
    }
    #[derive(Deserialize)]
    struct Version {
        dist: Option<Dist>,
    }
    #[derive(Deserialize)]
    struct Dist {
        tarball: String,
        integrity: Option<String>,
    }
    // A page of another shape states no digests.
    let page: Option<Page> = serde_json::from_slice(page).ok();
    let dists = page.into_iter().flat_map(|page| {
        let versions = page.versions.into_values();
        versions.filter_map(|version| version.dist).chain(page.dist)
    });
    let stated = dists.filter_map(|dist| {
        let stated = Stated::of_integrity(&dist.integrity?)?;
        Some((dist.tarball, stated))
    });
    stated.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preset::links::with_links;

    #[test]
    fn tarballs_come_from_the_proxy() {
        let rewritten = |page: &str| {
            let maps = ["/npm=npm:https://registry.example"];
            let place = ("https://registry.example/x", "/npm/x");
            with_links(&maps, place, "http://[::1]:7077", |links| {
                String::from_utf8(rewrite(links, page.as_bytes()).unwrap()).unwrap()
            })
        };
        let page = r#"{"name":"x", "tarball":"https://registry.example/a.tgz", "versions":{"1.0.0":{"dist":{"shasum":"a",
            "tarball":"https:\/\/registry.example\/x\/-\/x-1.0.0.tgz","signatures":[{"sig":"b"}]}}}}"#;
        let new = rewritten(page);
        let expected = page.replace(
            r"https:\/\/registry.example\/x\/-\/x-1.0.0.tgz",
            "http://[::1]:7077/npm/x/-/x-1.0.0.tgz",
        );
        assert_eq!(new, expected);
        let integrity = "sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==";
        let page = format!(
            "{{\"dist\":{{\"tarball\":\"https://registry.example/x/-/x-1.0.0.tgz\",\"integrity\":\"{integrity}\"}}}}"
        );
        let new = rewritten(&page);
        let stated = Stated::of_integrity(integrity).unwrap().prefix();
        assert!(stated.starts_with("/~sha512/cf83e1357eefb8bd"), "{stated}");
        let link = format!("\"http://[::1]:7077{stated}/npm/x/-/x-1.0.0.tgz\"");
        assert!(new.contains(&link), "{new}");
        assert!(may_be_page("/@scope%2fx") && may_be_page("/x/1.0.0"));
        assert!(!may_be_page("/x/-/x-1.0.0.tgz") && !may_be_page("/-/v1/search"));
    }
}
