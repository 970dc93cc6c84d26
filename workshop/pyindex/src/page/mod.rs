//! Index pages as servers send them: HTML (PEP 503) and JSON (PEP 691 and 700).

mod coding;
mod html;
mod json;
mod page_error;
mod page_file;
mod upload_time;

use url::Url;

pub use coding::decoded;
pub use page_error::PageError;
pub(crate) use page_file::PageFile;

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
        return Err(PageError::Long {
            bytes: page.len(),
            most: LARGEST_PAGE,
        });
    }
    let mut maker = TableMaker::new(project.clone(), address.clone());
    match form {
        PageForm::Json => json::add_files(page, &mut maker)?,
        PageForm::Html => html::add_files(page, &mut maker, is_whole)?,
    }
    maker.finish()
}
