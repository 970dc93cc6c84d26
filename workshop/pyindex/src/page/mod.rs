//! Index pages as servers send them: HTML (PEP 503) and JSON (PEP 691 and 700).

mod coding;
mod html;
mod json;
mod page_error;
mod upload_time;

use std::borrow::Cow;

use url::Url;

pub use coding::decoded;
pub use page_error::PageError;

use crate::project_name::ProjectName;
use crate::table::TableMaker;

/// The form of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageForm {
    /// PEP 691.
    Json,
    /// PEP 503.
    Html,
}

impl PageForm {
    /// What a server says of a page it sends. None if it is no form of index pages.
    pub fn of_content_type(content_type: &str) -> Option<Self> {
        let essence = content_type
            .split(';')
            .next()
            .unwrap_or_default()
            .trim_ascii();
        match essence.to_ascii_lowercase().as_str() {
            "application/vnd.pypi.simple.v1+json" => Some(Self::Json),
            "application/vnd.pypi.simple.v1+html" | "text/html" => Some(Self::Html),
            _ => None,
        }
    }

    /// What the page itself looks like, where nobody says: JSON begins with a brace.
    pub fn of_page(page: &[u8]) -> Self {
        match page.trim_ascii_start().first() {
            Some(b'{') => Self::Json,
            _ => Self::Html,
        }
    }

    /// What to ask servers for, the best form first.
    pub const ACCEPT: &str = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.01";
}

/// The largest page that is looked at, in bytes. The largest public ones have some 30 MB.
pub const LARGEST_PAGE: usize = 128 << 20;

/// The [table](crate::PackageTable) of a page. The page is at this address: its URLs may be relative to it.
///
/// Memory is bounded by a small factor of the page.
///
/// # Errors
///
/// What is wrong with the page, and where. A page of HTML that begins a document and does not end it counts as cut.
pub fn table_of_page(
    project: &ProjectName,
    address: &Url,
    form: PageForm,
    page: &[u8],
) -> Result<Vec<u8>, PageError> {
    table(project, address, form, page, false)
}

/// The same of a page that has come whole, as its Content-Length or its coding says. It may leave out the end tags of its
/// document, as HTML5 allows.
///
/// # Errors
///
/// What is wrong with the page, and where.
pub fn table_of_whole_page(
    project: &ProjectName,
    address: &Url,
    form: PageForm,
    page: &[u8],
) -> Result<Vec<u8>, PageError> {
    table(project, address, form, page, true)
}

fn table(
    project: &ProjectName,
    address: &Url,
    form: PageForm,
    page: &[u8],
    is_whole: bool,
) -> Result<Vec<u8>, PageError> {
    if page.len() > LARGEST_PAGE {
        return Err(PageError::Long { bytes: page.len() });
    }
    let mut maker = TableMaker::new(project.clone(), address.clone());
    match form {
        PageForm::Json => json::add_files(page, &mut maker)?,
        PageForm::Html => html::add_files(page, &mut maker, is_whole)?,
    }
    maker.finish()
}

/// A file as a page describes it.
#[derive(Debug, Default)]
pub(crate) struct PageFile<'a> {
    pub(crate) name: Cow<'a, str>,
    pub(crate) url: Cow<'a, str>,
    pub(crate) sha256: Option<[u8; 32]>,
    /// `algorithm=digest`.
    pub(crate) other_digest: Option<String>,
    pub(crate) requires_python: Option<Cow<'a, str>>,
    /// The reason, which may be empty.
    pub(crate) yanked: Option<Cow<'a, str>>,
    /// Whether the index has its metadata, and their SHA-256.
    pub(crate) metadata: Option<Option<[u8; 32]>>,
    pub(crate) size: Option<u64>,
    pub(crate) uploaded: Option<i64>,
}

impl PageFile<'_> {
    fn wrong(&self, field: &'static str, found: &str, allowed: &'static str) -> PageError {
        PageError::Field {
            file: self.name.chars().take(200).collect(),
            field,
            found: found.chars().take(200).collect(),
            allowed,
        }
    }

    /// A digest of the file. SHA-256 is kept as bytes, and others only where there is none.
    fn digest(&mut self, algorithm: &str, digest: &str) -> Result<(), PageError> {
        if algorithm.eq_ignore_ascii_case("sha256") {
            self.sha256 = Some(self.sha256_of("hashes.sha256", digest)?);
            self.other_digest = None;
        } else if self.sha256.is_none() {
            self.other_digest = Some(format!("{algorithm}={digest}"));
        }
        Ok(())
    }

    fn sha256_of(&self, field: &'static str, digest: &str) -> Result<[u8; 32], PageError> {
        crate::table::unhex(&digest.to_ascii_lowercase())
            .ok_or_else(|| self.wrong(field, digest, "64 hexadecimal digits"))
    }
}
