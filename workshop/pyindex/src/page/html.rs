use std::borrow::Cow;

use html5gum::Span;
use html5gum::emitters::callback::{CallbackEmitter, CallbackEvent};
use html5gum::{Error as HtmlError, Tokenizer};
use percent_encoding::percent_decode_str;

use super::page_error::PageError;
use super::page_file::PageFile;
use crate::table::TableMaker;

/// Adds the files of a page of PEP 503, 592, 658 and 714: each link is a file. HTML5 lets pages leave out the end tags of the
/// document. A page that does is taken if it is known to be whole and ends any other tag; otherwise it may be cut.
pub(crate) fn add_files(
    page: &[u8],
    maker: &mut TableMaker,
    is_whole: bool,
) -> Result<(), PageError> {
    let mut reader = Reader::new(maker);
    let emitter = CallbackEmitter::new(|event: CallbackEvent<'_>, _span: Span<()>| {
        reader.event(&event).err()
    });
    // The first token of this emitter is the first error.
    if let Some(Ok(refused)) = Tokenizer::new_with_emitter(page, emitter).next() {
        return Err(refused);
    }
    reader.finish(page, is_whole)
}

struct Reader<'m> {
    maker: &'m mut TableMaker,
    tag: Tag,
    attribute: Vec<u8>,
    link: Link,
    links: usize,
    /// A link of them is to a file of any project.
    files: usize,
    /// Tags that began and did not end: of a link, and of the document.
    open_link: bool,
    open_document: bool,
    ended_document: bool,
    /// Any tag ended.
    ended: bool,
    cut: bool,
    form: bool,
    password: bool,
    /// It says that it is an index page, so it may be empty.
    says_index: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Tag {
    Link,
    Base,
    Meta,
    Input,
    Other,
}

/// The attributes of a link.
#[derive(Default)]
struct Link {
    href: Option<String>,
    requires_python: Option<String>,
    yanked: Option<String>,
    core_metadata: Option<String>,
    dist_info_metadata: Option<String>,
}

impl<'m> Reader<'m> {
    fn new(maker: &'m mut TableMaker) -> Self {
        Self {
            maker,
            tag: Tag::Other,
            attribute: Vec::new(),
            link: Link::default(),
            links: 0,
            files: 0,
            open_link: false,
            open_document: false,
            ended_document: false,
            ended: false,
            cut: false,
            form: false,
            password: false,
            says_index: false,
        }
    }

    fn event(&mut self, event: &CallbackEvent<'_>) -> Result<(), PageError> {
        match event {
            CallbackEvent::OpenStartTag { name } => self.open(name),
            CallbackEvent::AttributeName { name } => {
                self.attribute.clear();
                self.attribute.extend(*name);
                // Without a value it is there all the same.
                self.attribute_value("")?;
            }
            CallbackEvent::AttributeValue { value } => {
                self.attribute_value(&String::from_utf8_lossy(value))?;
            }
            CallbackEvent::CloseStartTag { .. } if self.tag == Tag::Link => self.add_link()?,
            CallbackEvent::EndTag { name } => {
                self.ended = true;
                match *name {
                    b"a" => self.open_link = false,
                    b"html" | b"body" => self.ended_document = true,
                    _ => {}
                }
            }
            CallbackEvent::String { value } => {
                let text = value.trim_ascii_start();
                self.says_index |= text
                    .get(..9)
                    .is_some_and(|start| start.eq_ignore_ascii_case(b"links for"));
            }
            CallbackEvent::Error(
                HtmlError::EofInTag
                | HtmlError::EofBeforeTagName
                | HtmlError::EofInComment
                | HtmlError::EofInDoctype,
            ) => self.cut = true,
            _ => {}
        }
        Ok(())
    }

    fn open(&mut self, name: &[u8]) {
        self.tag = match name {
            b"a" => {
                self.open_link = true;
                self.link = Link::default();
                Tag::Link
            }
            b"base" => Tag::Base,
            b"meta" => Tag::Meta,
            b"input" => Tag::Input,
            other => {
                self.form |= other == b"form";
                self.open_document |= matches!(other, b"html" | b"body");
                Tag::Other
            }
        };
    }

    fn attribute_value(&mut self, value: &str) -> Result<(), PageError> {
        let link = &mut self.link;
        let field = match (self.tag, &*self.attribute) {
            (Tag::Link, b"href") => &mut link.href,
            (Tag::Link, b"data-requires-python") => &mut link.requires_python,
            (Tag::Link, b"data-yanked") => &mut link.yanked,
            (Tag::Link, b"data-core-metadata") => &mut link.core_metadata,
            (Tag::Link, b"data-dist-info-metadata") => &mut link.dist_info_metadata,
            (Tag::Base, b"href") if !value.is_empty() => {
                let base = self
                    .maker
                    .page()
                    .join(value)
                    .map_err(|_| PageError::Field {
                        file: String::new(),
                        field: "base",
                        found: value.chars().take(200).collect(),
                        allowed: "a URL",
                    })?;
                self.maker.set_base(base);
                return Ok(());
            }
            (Tag::Meta, b"name") => {
                self.says_index |= value == "pypi:repository-version";
                return Ok(());
            }
            // Only index pages have this one, and its value is that of the interface.
            (Tag::Meta, b"content") if self.says_index => {
                let major = value.split('.').next().unwrap_or_default();
                if !value.is_empty() && major != "1" && major.parse::<u32>().is_ok() {
                    return Err(PageError::Version {
                        version: value.chars().take(100).collect(),
                    });
                }
                return Ok(());
            }
            (Tag::Input, b"type") => {
                self.password |= value.eq_ignore_ascii_case("password");
                return Ok(());
            }
            _ => return Ok(()),
        };
        *field = Some(value.to_owned());
        Ok(())
    }

    fn add_link(&mut self) -> Result<(), PageError> {
        self.tag = Tag::Other;
        self.links = self.links.saturating_add(1);
        let link = std::mem::take(&mut self.link);
        let Some(href) = link.href else {
            return Ok(());
        };
        let (url, fragment) = href.split_once('#').unwrap_or((&href, ""));
        let path = url.split_once('?').map_or(url, |(path, _)| path);
        let name = percent_decode_str(path.rsplit('/').next().unwrap_or_default());
        let name = name.decode_utf8_lossy();
        if name.is_empty() {
            return Ok(());
        }
        if ENDINGS.iter().any(|ending| name.ends_with(ending)) {
            self.files = self.files.saturating_add(1);
        }
        let mut file = PageFile {
            name,
            url: Cow::Borrowed(url),
            requires_python: link.requires_python.map(Cow::Owned),
            yanked: link.yanked.map(Cow::Owned),
            ..PageFile::default()
        };
        if let Some((algorithm, digest)) = fragment.split('&').find_map(digest) {
            file.digest(algorithm, digest)?;
        }
        file.metadata = match link.core_metadata.or(link.dist_info_metadata) {
            None => None,
            Some(value) if value == "false" => None,
            Some(value) => Some(
                value
                    .strip_prefix("sha256=")
                    .map(|digest| file.sha256_of("data-core-metadata", digest))
                    .transpose()?,
            ),
        };
        self.maker.add(&file)
    }

    fn finish(self, page: &[u8], is_whole: bool) -> Result<(), PageError> {
        if self.password || (self.form && self.files == 0) {
            return Err(PageError::LogIn);
        }
        let wanted = if self.cut {
            Some("the rest of a tag")
        } else if self.open_link {
            Some("</a>")
        } else if self.open_document && !self.ended_document && !(is_whole && self.ended) {
            Some("</html>")
        } else {
            None
        };
        if let Some(wanted) = wanted {
            return Err(PageError::Cut {
                bytes: page.len(),
                wanted,
            });
        }
        if self.files == 0 && (self.links > 0 || !self.says_index) {
            return Err(PageError::NoIndex { links: self.links });
        }
        Ok(())
    }
}

/// Endings of files that indexes have or had.
const ENDINGS: [&str; 15] = [
    ".whl", ".tar.gz", ".tgz", ".zip", ".tar.bz2", ".tar.xz", ".tar.Z", ".tar", ".egg", ".exe",
    ".msi", ".rpm", ".deb", ".dmg", ".asc",
];

/// `sha256=01…` of a fragment, which can also say other things of a link.
fn digest(part: &str) -> Option<(&str, &str)> {
    part.split_once('=')
        .filter(|(name, _)| ["sha256", "sha512", "sha384", "sha224", "sha1", "md5"].contains(name))
}
