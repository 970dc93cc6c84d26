//! Pages of indexes whose links must lead through the proxy.
//!
//! A preset says which answers are such pages, and which strings in them are links. Everything else stays byte by byte as it
//! is. The cache keeps what the upstream sent, and the form for clients that is made of it.

mod anchors;
mod cargo;
mod json_strings;
mod links;
mod npm;
mod python;

pub use self::links::{Links, MOST_PAGE_BYTES, Unreadable};
use crate::kind::Kind;
use crate::oci::Item;

/// Changes whenever the form of a page changes, so that clients do not keep the old one.
pub const VERSION: u32 = 2;

/// What a page is, as far as its links matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageKind {
    /// HTML of a Python index (PEP 503).
    PythonHtml,
    /// JSON of a Python index (PEP 691).
    PythonJson,
    /// One of both, or a file: the server of files does not know.
    PythonUntyped,
    /// A package of an npm registry.
    Npm,
    /// The same, or a file.
    NpmUntyped,
    /// `config.json` of a sparse index.
    Cargo,
}

/// Whether the answer to this path may be a page. `rest` stands behind the prefix of the map.
pub fn may_be_page(kind: Kind, rest: &str) -> bool {
    match kind {
        Kind::Python => python::may_be_page(rest),
        Kind::Npm => npm::may_be_page(rest),
        Kind::Cargo => rest == "/config.json",
        Kind::Plain | Kind::Go | Kind::Apt | Kind::Oci | Kind::OciPush => false,
    }
}

/// What the answer to this path is, by its type. None: it has no links that matter.
pub fn page_kind(kind: Kind, rest: &str, content_type: &str) -> Option<PageKind> {
    let essence = content_type
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    match (kind, essence.as_str()) {
        (Kind::Python, "text/html" | "application/vnd.pypi.simple.v1+html") => {
            Some(PageKind::PythonHtml)
        }
        (Kind::Python, "application/json" | "application/vnd.pypi.simple.v1+json") => {
            Some(PageKind::PythonJson)
        }
        (Kind::Npm, "application/json" | "application/vnd.npm.install-v1+json") => {
            Some(PageKind::Npm)
        }
        (Kind::Python, "" | "application/octet-stream" | "binary/octet-stream") => {
            // A file that has any other name may be too long for a page.
            let is_named_so = rest.ends_with('/') || rest.ends_with("json");
            is_named_so.then_some(PageKind::PythonUntyped)
        }
        (Kind::Npm, "" | "application/octet-stream" | "binary/octet-stream") => {
            Some(PageKind::NpmUntyped)
        }
        // Servers of files say what they like.
        (Kind::Cargo, _) => Some(PageKind::Cargo),
        _ => None,
    }
}

/// Whether a file stays what it is as long as it has its name, because its name has a digest of it or because its index
/// promises that.
pub fn is_lasting(kind: Kind, rest: &str) -> bool {
    match kind {
        Kind::Python => python::is_lasting(rest),
        Kind::Npm => rest.ends_with(".tgz"),
        Kind::Cargo => rest.ends_with(".crate") || rest.ends_with("/download"),
        Kind::Go => {
            let ends = [".zip", ".mod", ".info"];
            rest.contains("/@v/") && ends.iter().any(|end| rest.ends_with(end))
        }
        Kind::Apt => {
            let pooled = rest.contains("/pool/") && rest.ends_with(".deb");
            pooled || rest.contains("/by-hash/")
        }
        Kind::Oci | Kind::OciPush => Item::of_path(rest).is_some_and(|item| item.digest.is_some()),
        Kind::Plain => false,
    }
}

/// The form of a page for clients.
pub fn rewrite(links: &Links<'_>, kind: PageKind, page: &[u8]) -> Result<Vec<u8>, Unreadable> {
    match (kind, page.trim_ascii_start().first()) {
        (PageKind::PythonHtml, _) | (PageKind::PythonUntyped, Some(b'<')) => {
            python::rewrite_html(links, page)
        }
        (PageKind::PythonJson, _) | (PageKind::PythonUntyped, Some(b'{')) => {
            python::rewrite_json(links, page)
        }
        (PageKind::Npm, _) | (PageKind::NpmUntyped, Some(b'{')) => npm::rewrite(links, page),
        (PageKind::PythonUntyped | PageKind::NpmUntyped, _) => Ok(page.to_vec()),
        (PageKind::Cargo, _) => cargo::rewrite(links, page),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_that_keep_their_content_last() {
        let digest = "a".repeat(60);
        for (kind, rest, expected) in [
            (
                Kind::Python,
                format!("/packages/ab/cd/{digest}/x-1.whl"),
                true,
            ),
            (Kind::Python, "/packages/x-1.whl".to_owned(), false),
            (Kind::Python, "/x/".to_owned(), false),
            (Kind::Npm, "/x/-/x-1.0.0.tgz".to_owned(), true),
            (Kind::Npm, "/x".to_owned(), false),
            (
                Kind::Cargo,
                "/~files/s/https/h/crates/x/1.0.0/download".to_owned(),
                true,
            ),
            (Kind::Cargo, "/se/rd/serde".to_owned(), false),
            (Kind::Go, "/x.example/m/@v/v1.0.0.zip".to_owned(), true),
            (Kind::Go, "/x.example/m/@v/list".to_owned(), false),
            (Kind::Go, "/x.example/m/@latest".to_owned(), false),
            (
                Kind::Apt,
                "/debian/pool/main/x/x_1_all.deb".to_owned(),
                true,
            ),
            (
                Kind::Apt,
                "/debian/dists/s/main/by-hash/SHA256/ab".to_owned(),
                true,
            ),
            (Kind::Apt, "/debian/dists/s/InRelease".to_owned(), false),
            (Kind::Plain, "/x.whl".to_owned(), false),
        ] {
            assert_eq!(is_lasting(kind, &rest), expected, "{kind:?} {rest}");
        }
    }
}
