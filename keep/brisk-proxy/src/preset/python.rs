//! Indexes of Python packages: PEP 503 (HTML), PEP 691 (JSON), and PEP 658 with PEP 714 (metadata beside files).

use std::collections::HashMap;

use serde::Deserialize;

use super::anchors::{self, Link};
use super::json_strings;
use super::links::{Links, MOST_PAGE_BYTES, Unreadable};
use crate::kind::Kind;
use crate::stated::Stated;

/// The links of a page in JSON.
const FILES: &[json_strings::Step] = &[Some("files"), None, Some("url")];

pub fn may_be_page(rest: &str) -> bool {
    !Kind::Python.has_file(rest)
}

/// Whether the path has a digest of 256 bits, in one segment or, as warehouses have it, in three.
pub fn is_lasting(rest: &str) -> bool {
    let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let segments: Vec<&str> = rest.split('/').collect();
    let whole = segments
        .iter()
        .any(|segment| segment.len() == 64 && is_hex(segment));
    let split = segments.windows(3).any(|three| {
        let lengths = three.iter().map(|segment| segment.len());
        lengths.eq([2, 2, 60]) && three.iter().all(|segment| is_hex(segment))
    });
    !may_be_page(rest) && (whole || split)
}

pub fn rewrite_html(links: &Links<'_>, page: &[u8]) -> Result<Vec<u8>, Unreadable> {
    let page = std::str::from_utf8(page).map_err(|_| Unreadable("it is not UTF-8"))?;
    let mut base = links.page.clone();
    anchors::replace(page, MOST_PAGE_BYTES, |link| match link {
        Link::Anchor(target) => {
            let stated = target.split_once('#');
            let stated = stated.and_then(|(_, fragment)| Stated::of_page(fragment));
            links.replacement(&base, target, stated.as_ref())
        }
        Link::Base(target) => {
            base = links.page.join(target).ok()?;
            // Relative links that stay as they are must lead here.
            Some(
                links
                    .path_of(&base)
                    .unwrap_or_else(|| links.path.to_owned()),
            )
        }
    })
}

pub fn rewrite_json(links: &Links<'_>, page: &[u8]) -> Result<Vec<u8>, Unreadable> {
    let stated = stated_in(page);
    json_strings::replace(page, &[FILES], MOST_PAGE_BYTES, |link| {
        links.replacement(&links.page, link, stated.get(link))
    })
}

/// The digest of each file that a page names, by its link.
fn stated_in(page: &[u8]) -> HashMap<String, Stated> {
    #[derive(Deserialize)]
    struct Page {
        #[serde(default)]
        files: Vec<File>,
    }
    #[derive(Deserialize)]
    struct File {
        url: String,
        #[serde(default)]
        hashes: HashMap<String, String>,
    }
    // A page of another shape states no digests.
    let page: Option<Page> = serde_json::from_slice(page).ok();
    let files = page.into_iter().flat_map(|page| page.files);
    let stated = files.filter_map(|file| {
        let hex = file.hashes.get("sha256")?;
        Some((file.url, Stated::of_page(&format!("sha256={hex}"))?))
    });
    stated.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preset::links::with_links;

    /// The page as clients get it, with `SIG` for the signature.
    fn rewritten(
        rewrite: fn(&Links<'_>, &[u8]) -> Result<Vec<u8>, Unreadable>,
        page: &str,
    ) -> String {
        let maps = [
            "/py=python:https://index.example/root/simple",
            "/mirror=https://mirror.example/",
        ];
        let place = ("https://index.example/root/simple/six/", "/py/six/");
        let new = with_links(&maps, place, "http://proxy.example", |links| {
            String::from_utf8(rewrite(links, page.as_bytes()).unwrap()).unwrap()
        });
        let mut parts = new.split("/py/~files/");
        let mut text = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            text.push_str("/py/~files/SIG");
            text.push_str(&part[32..]);
        }
        text
    }

    #[test]
    fn links_to_files_lead_through_the_proxy() {
        for (link, expected) in [
            (
                "https://files.example/a/six-1.whl#sha256=ab",
                "/py/~files/SIG/https/files.example/a/six-1.whl#sha256=ab",
            ),
            ("https://mirror.example/six-1.whl", "/mirror/six-1.whl"),
            (
                "//files.example/six-1.zip",
                "/py/~files/SIG/https/files.example/six-1.zip",
            ),
            ("six-1.whl#sha256=ab", "six-1.whl#sha256=ab"),
            ("../seven/", "../seven/"),
            ("/root/simple/seven/", "/py/seven/"),
            (
                "../../packages/six-1.tar.gz#sha256=ab",
                "/py/~files/SIG/https/index.example/root/packages/six-1.tar.gz#sha256=ab",
            ),
            // The index is such a proxy itself.
            (
                "/root/simple/~files/THEIRS/https/files.example/six-1.whl",
                "/py/~files/SIG/https/index.example/root/simple/~files/THEIRS/https/files.example/six-1.whl",
            ),
            ("https://index.example/about", "https://index.example/about"),
            (
                "http://files.example/six-1.whl",
                "http://files.example/six-1.whl",
            ),
            ("mailto:a@b", "mailto:a@b"),
        ] {
            let page = format!(
                "<!DOCTYPE html>\n<a href=\"{link}\" data-dist-info-metadata=\"sha256=cd\" \
                 data-requires-python=\"&gt;=3\">six</a><br/>\n"
            );
            let expected_page = page.replace(&format!("\"{link}\""), &format!("\"{expected}\""));
            assert_eq!(rewritten(rewrite_html, &page), expected_page);
            let page = format!(
                "{{\"meta\": {{\"api-version\":\"1.1\"}}, \"files\" :[{{\"url\":\"{link}\",\"hashes\":{{\"sha256\":\"ab\"}},\
                 \"core-metadata\":{{\"sha256\":\"cd\"}},\"provenance\":\"https://files.example/x.whl\"}}]}}"
            );
            let expected_page = page.replace(
                &format!("\"url\":\"{link}\""),
                &format!("\"url\":\"{expected}\""),
            );
            assert_eq!(rewritten(rewrite_json, &page), expected_page);
        }
    }

    #[test]
    fn a_digest_that_is_stated_goes_in_front() {
        let hex = "0123456789abcdef".repeat(4);
        let file = "/py/~files/SIG/https/files.example/six-1.whl";
        let page = format!("<a href=\"https://files.example/six-1.whl#sha256={hex}\">six</a>");
        let expected = format!("<a href=\"/~sha256/{hex}{file}#sha256={hex}\">six</a>");
        assert_eq!(rewritten(rewrite_html, &page), expected);
        let page = format!(
            "{{\"files\":[{{\"hashes\":{{\"md5\":\"x\",\"sha256\":\"{hex}\"}},\"url\":\"https://files.example/six-1.whl\"}}]}}"
        );
        let expected = page.replace(
            "https://files.example/six-1.whl",
            &format!("/~sha256/{hex}{file}"),
        );
        assert_eq!(rewritten(rewrite_json, &page), expected);
        // A link that would lead to the same place without it, too.
        let page = format!("<a href=\"six-1.whl#sha256={hex}\">six</a>");
        let expected = format!("<a href=\"/~sha256/{hex}/py/six/six-1.whl#sha256={hex}\">six</a>");
        assert_eq!(rewritten(rewrite_html, &page), expected);
    }

    #[test]
    fn a_base_is_followed() {
        assert_eq!(
            rewritten(
                rewrite_html,
                "<base href=\"https://mirror.example/x/\"><a href=\"six-1.whl\"><a href=\"?q\">"
            ),
            "<base href=\"/mirror/x/\"><a href=\"/mirror/x/six-1.whl\"><a href=\"/mirror/x/?q\">"
        );
        assert_eq!(
            rewritten(
                rewrite_html,
                "<base href=\"https://elsewhere.example/x/\"><a href=\"six-1.whl\">"
            ),
            "<base href=\"/py/six/\"><a href=\"/py/~files/SIG/https/elsewhere.example/x/six-1.whl\">"
        );
    }
}
