use std::fmt;

/// Why a page is refused. What was stored of it before stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PageError {
    /// It has too many bytes.
    Long {
        /// So many.
        bytes: usize,
        /// So many may be there.
        most: usize,
    },
    /// It ends too early.
    Cut {
        /// So many bytes came.
        bytes: usize,
        /// What should follow.
        wanted: &'static str,
    },
    /// Its bytes become too many.
    LongInside {
        /// So many came.
        bytes: usize,
        /// So many may be in them.
        most: usize,
    },
    /// It came in a coding that nobody asked for.
    Coding {
        /// This one.
        found: String,
    },
    /// It is no gzip, though that is said of it, or not a whole one.
    Gzip {
        /// So many bytes came.
        bytes: usize,
        /// What the decoder says.
        why: String,
    },
    /// It is no JSON, or has a field of another type.
    Json {
        /// From 1 on.
        line: usize,
        /// From 1 on.
        column: usize,
        /// What the parser says.
        why: String,
    },
    /// A field has a value that it must not have.
    Field {
        /// The file that has it, or empty if the page itself has it.
        file: String,
        /// Its name.
        field: &'static str,
        /// Its value.
        found: String,
        /// What it may be.
        allowed: &'static str,
    },
    /// A file is there twice, and not with the same facts.
    Twice {
        /// Its name.
        name: String,
    },
    /// It is the page of another project.
    OtherProject {
        /// The one that was asked for.
        wanted: String,
        /// The one that it names.
        found: String,
    },
    /// It is of a later version than 1 of the interface.
    Version {
        /// This one.
        version: String,
    },
    /// It is a form to log in, as proxies and portals send in place of pages.
    LogIn,
    /// It has no link to a file of a package.
    NoIndex {
        /// So many links.
        links: usize,
    },
    /// It has more of something than a table can count.
    TooMany {
        /// Of these.
        what: &'static str,
    },
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Long { bytes, most } => write!(
                f,
                "the index page has {bytes} bytes, and {most} are allowed; check the index URL"
            ),
            Self::Cut { bytes, wanted } => write!(
                f,
                "the index page is cut off after {bytes} bytes, where {wanted} should follow; fetch it again"
            ),
            Self::LongInside { bytes, most } => write!(
                f,
                "the {bytes} bytes of the answer become more than {most}, which are allowed; check the index URL"
            ),
            Self::Coding { found } => write!(
                f,
                "the answer has the coding {found:?}, and allowed are gzip and none; tell whoever runs the index"
            ),
            Self::Gzip { bytes, why } => write!(
                f,
                "the {bytes} bytes of the answer are not whole gzip: {why}; fetch it again"
            ),
            Self::Json { line, column, why } => write!(
                f,
                "the index page is not JSON of PEP 691 at line {line}, column {column}: {why}; check the index URL"
            ),
            Self::Field {
                file,
                field,
                found,
                allowed,
            } => {
                let of = if file.is_empty() { "page".to_owned() } else { format!("file {file:?}") };
                write!(
                    f,
                    "the field {field} of the {of} is {found:?}, and allowed is {allowed}; tell whoever runs the index"
                )
            }
            Self::Twice { name } => write!(
                f,
                "the index page has the file {name:?} twice, with different facts; tell whoever runs the index"
            ),
            Self::OtherProject { wanted, found } => write!(
                f,
                "the index page of {wanted:?} has the name {found:?}; tell whoever runs the index"
            ),
            Self::Version { version } => write!(
                f,
                "the index page is of version {version:?} of the interface, and allowed is 1.x; use a later pyindex"
            ),
            Self::LogIn => f.write_str(
                "the index page is a form to log in; give credentials in the index URL, or log in to the network",
            ),
            Self::NoIndex { links } => write!(
                f,
                "the page has {links} links, and none is to a file of a package; check that the index URL ends where the names of projects begin"
            ),
            Self::TooMany { what } => {
                write!(f, "the index page has 4 Gi {what} or more; check the index URL")
            }
        }
    }
}

impl std::error::Error for PageError {}
