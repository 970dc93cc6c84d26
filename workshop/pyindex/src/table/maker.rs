use std::borrow::Cow;
use std::collections::HashMap;
use std::str::FromStr;

use pep440_rs::Version;
use url::Url;
use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

use super::interner::Interner;
use super::record::{Path, Record};
use super::wire::{FileFlags, FileRow, Header, Span, VersionRow};
use crate::digest;
use crate::file_name::{FileName, NoFile};
use crate::page::{PageError, PageFile};
use crate::project_name::ProjectName;
use crate::sort_key::SortKey;
use crate::version_parts::VersionParts;

/// Makes the table of a project from the files of its page, one after another.
#[derive(Debug)]
pub(crate) struct TableMaker {
    project: ProjectName,
    /// Where the page is: addresses of files may be relative to it.
    page: Url,
    /// By how files spell them.
    spellings: HashMap<Box<str>, usize>,
    /// By what they are: `1.0` and `1.0.0` are one.
    numbers: HashMap<Version, usize>,
    versions: Vec<DraftVersion>,
    files: Vec<DraftFile>,
    names: HashMap<Box<str>, usize>,
    tails: Interner,
    requires: Interner,
    prefixes: Interner,
    stems: Interner,
    /// The records of all files, in the order of the page.
    records: Vec<u8>,
    left_out: [u32; 4],
}

#[derive(Debug)]
struct DraftVersion {
    version: Version,
    /// As PEP 440 spells it.
    text: String,
}

#[derive(Debug)]
struct DraftFile {
    version: usize,
    row: FileRow,
    record: std::ops::Range<usize>,
}

impl TableMaker {
    /// A table without files, for the page at this address.
    pub(crate) fn new(project: ProjectName, page: Url) -> Self {
        Self {
            project,
            page,
            spellings: HashMap::new(),
            numbers: HashMap::new(),
            versions: Vec::new(),
            files: Vec::new(),
            names: HashMap::new(),
            tails: Interner::default(),
            requires: Interner::default(),
            prefixes: Interner::default(),
            stems: Interner::default(),
            records: Vec::new(),
            left_out: [0; 4],
        }
    }

    /// The project.
    pub(crate) fn project(&self) -> &ProjectName {
        &self.project
    }

    /// Addresses are relative to this one from now on.
    pub(crate) fn set_base(&mut self, base: Url) {
        self.page = base;
    }

    pub(crate) fn page(&self) -> &Url {
        &self.page
    }

    pub(crate) fn add(&mut self, file: &PageFile<'_>) -> Result<(), PageError> {
        let parts = match FileName::parse(&file.name, &self.project) {
            Ok(parts) => parts,
            Err(why) => {
                self.leave_out(why);
                return Ok(());
            }
        };
        let Some(version) = self.version(parts.version) else {
            self.leave_out(NoFile::Version);
            return Ok(());
        };
        // The name is not stored where it follows from what is.
        let follows = self.versions[version].text == parts.version;
        let url = self.absolute(file)?;
        let (prefix, path, name_ends_url) = split(&url, &file.name);
        let full = |what| PageError::TooMany { what };
        let record = Record {
            name: (!follows).then(|| Cow::Borrowed(&*file.name)),
            stem: if follows {
                self.stems
                    .number(parts.stem)
                    .ok_or_else(|| full("spellings"))?
            } else {
                0
            },
            prefix: self.prefixes.number(prefix).ok_or_else(|| full("URLs"))?,
            path,
            name_ends_url,
            size: file.size,
            uploaded: file.uploaded,
            sha256: file.sha256,
            metadata_sha256: file.metadata.flatten(),
            other_digest: file.other_digest.as_deref().map(Cow::Borrowed),
            reason: file
                .yanked
                .as_deref()
                .filter(|reason| !reason.is_empty())
                .map(Cow::Borrowed),
        };
        let start = self.records.len();
        record.write(&mut self.records);
        let requires = match file.requires_python.as_deref().map(str::trim_ascii) {
            None | Some("") => 0,
            Some(text) => self
                .requires
                .number(text)
                .and_then(|number| number.checked_add(1))
                .ok_or_else(|| full("texts of requires-python"))?,
        };
        let mut flags = 0;
        if file.yanked.is_some() {
            flags |= FileFlags::YANKED;
        }
        if file.metadata.is_some() {
            flags |= FileFlags::METADATA;
        }
        let draft = DraftFile {
            version,
            row: FileRow {
                tail: self
                    .tails
                    .number(parts.tail)
                    .ok_or_else(|| full("ends of names"))?
                    .into(),
                requires: requires.into(),
                flags,
            },
            record: start..self.records.len(),
        };
        if let Some(at) = self.names.get(&*file.name) {
            let other = &self.files[*at];
            let same = self.records[other.record.clone()] == self.records[draft.record.clone()]
                && other.row.as_bytes() == draft.row.as_bytes();
            self.records.truncate(start);
            return if same {
                Ok(())
            } else {
                Err(PageError::Twice {
                    name: file.name.chars().take(200).collect(),
                })
            };
        }
        self.names.insert((*file.name).into(), self.files.len());
        self.files.push(draft);
        Ok(())
    }

    fn leave_out(&mut self, why: NoFile) {
        let at = match why {
            NoFile::Kind => 0,
            NoFile::Project => 1,
            NoFile::Version => 2,
            NoFile::Form => 3,
        };
        self.left_out[at] = self.left_out[at].saturating_add(1);
    }

    /// The number of a version. None if it is none to one of two parsers.
    fn version(&mut self, text: &str) -> Option<usize> {
        if let Some(number) = self.spellings.get(text) {
            return Some(*number);
        }
        let version = Version::from_str(text).ok()?;
        let next = self.versions.len();
        let number = *self.numbers.entry(version.clone()).or_insert(next);
        if number == next {
            let text = version.to_string();
            self.versions.push(DraftVersion { version, text });
        }
        self.spellings.insert(text.into(), number);
        Some(number)
    }

    fn absolute<'f>(&self, file: &'f PageFile<'_>) -> Result<Cow<'f, str>, PageError> {
        let url = file.url.split_once('#').map_or(&*file.url, |(url, _)| url);
        let wrong = || PageError::Field {
            file: file.name.chars().take(200).collect(),
            field: "url",
            found: file.url.chars().take(200).collect(),
            allowed: "a URL of http, https or file, or one relative to the page",
        };
        let scheme = |url: &str| {
            ["https://", "http://", "file://"]
                .iter()
                .any(|scheme| url.starts_with(scheme))
        };
        if scheme(url) {
            return Ok(Cow::Borrowed(url));
        }
        let joined = self.page.join(url).map_err(|_| wrong())?;
        if !scheme(joined.as_str()) {
            return Err(wrong());
        }
        Ok(Cow::Owned(joined.into()))
    }

    /// The bytes of the table.
    ///
    /// # Errors
    ///
    /// [`PageError::TooMany`] if they are 4 GiB or more.
    pub(crate) fn finish(self) -> Result<Vec<u8>, PageError> {
        let mut keys = Vec::with_capacity(self.versions.len());
        for draft in &self.versions {
            let parts = VersionParts::parse(&draft.text).ok_or_else(|| PageError::Version {
                version: draft.text.clone(),
            })?;
            keys.push(SortKey::of(&parts));
        }
        let mut order: Vec<usize> = (0..self.versions.len()).collect();
        order.sort_by(|a, b| {
            keys[*a]
                .0
                .cmp(&keys[*b].0)
                .then_with(|| self.versions[*a].version.cmp(&self.versions[*b].version))
        });
        let mut files_of = vec![Vec::new(); self.versions.len()];
        for (at, file) in self.files.iter().enumerate() {
            files_of[file.version].push(at);
        }

        let (mut heap, mut texts) = (Heap::default(), Heap::default());
        let (mut versions, mut version_texts) = (Vec::new(), Vec::new());
        let mut first = count(self.files.len())?.get();
        for at in &order {
            first -= count(files_of[*at].len())?.get();
            let (key, flags) = keys[*at];
            let row = VersionRow {
                key: key.0.into(),
                first: first.into(),
                flags: flags.0,
            };
            versions.extend(row.as_bytes());
            version_texts.extend(heap.span(self.versions[*at].text.as_bytes())?.as_bytes());
        }

        // A choice looks at the newest versions. So the rows and the texts of their files lie side by side.
        let newest_first = || order.iter().rev().flat_map(|at| &files_of[*at]);
        let (mut tails, mut requires) = (Interner::default(), Interner::default());
        let mut files = Vec::new();
        for file in newest_first() {
            let FileRow {
                tail,
                requires: python,
                flags,
            } = self.files[*file].row;
            let tail = tails.number(self.tails.text(tail.get()));
            let python = match python.get().checked_sub(1) {
                None => Some(0),
                Some(number) => requires
                    .number(self.requires.text(number))
                    .and_then(|number| number.checked_add(1)),
            };
            // There are no more than in the order of the page.
            let (Some(tail), Some(python)) = (tail, python) else {
                return Err(PageError::TooMany { what: "texts" });
            };
            let row = FileRow {
                tail: tail.into(),
                requires: python.into(),
                flags,
            };
            files.extend(row.as_bytes());
        }
        let compared = texts.column(&[&requires, &tails])?;
        let others = heap.column(&[&self.prefixes, &self.stems])?;
        // Last, because nothing that is compared is in them.
        let mut records = Vec::new();
        for file in newest_first() {
            let record = self.files[*file].record.clone();
            records.extend(heap.span(&self.records[record])?.as_bytes());
        }

        let header = Header {
            versions: count(self.versions.len())?,
            files: count(self.files.len())?,
            tails: count(tails.texts().len())?,
            requires: count(requires.texts().len())?,
            texts: count(texts.bytes.len())?,
            prefixes: count(self.prefixes.texts().len())?,
            stems: count(self.stems.texts().len())?,
            heap: count(heap.bytes.len())?,
            left_out: self.left_out.map(U32::new),
        };
        let mut bytes = header.as_bytes().to_vec();
        for column in [compared, texts.bytes, versions, files] {
            bytes.extend(column);
        }
        for column in [version_texts, others, records, heap.bytes] {
            bytes.extend(column);
        }
        Ok(bytes)
    }
}

/// Bytes of texts and records.
#[derive(Default)]
struct Heap {
    bytes: Vec<u8>,
}

impl Heap {
    fn span(&mut self, bytes: &[u8]) -> Result<Span, PageError> {
        let start = count(self.bytes.len())?;
        self.bytes.extend(bytes);
        Ok(Span {
            start,
            len: count(bytes.len())?,
        })
    }

    /// The spans of all these texts.
    fn column(&mut self, texts: &[&Interner]) -> Result<Vec<u8>, PageError> {
        let mut column = Vec::new();
        for text in texts.iter().flat_map(|texts| texts.texts()) {
            column.extend(self.span(text.as_bytes())?.as_bytes());
        }
        Ok(column)
    }
}

fn count(number: usize) -> Result<U32, PageError> {
    u32::try_from(number)
        .map(U32::new)
        .map_err(|_| PageError::TooMany { what: "bytes" })
}

/// A URL in its beginning, which many files share, what is between, and whether the name ends it.
fn split<'u>(url: &'u str, name: &str) -> (&'u str, Path<'u>, bool) {
    let Some(directory) = url.strip_suffix(name).filter(|url| url.ends_with('/')) else {
        let prefix = url.rfind('/').map_or(0, |at| at + 1);
        return (&url[..prefix], Path::Text(url[prefix..].into()), false);
    };
    let tree = directory.len().checked_sub(67).and_then(|at| {
        let path = directory.get(at..)?;
        let parts = (
            path.get(..2)?,
            path.get(2..3)?,
            path.get(3..5)?,
            path.get(5..6)?,
            path.get(6..66)?,
        );
        let (first, "/", second, "/", rest) = parts else {
            return None;
        };
        digest::of_hex(&[first, second, rest].concat()).map(|digest| (at, Path::Tree(digest)))
    });
    let flat = || {
        let at = directory.len().checked_sub(65)?;
        digest::of_hex(directory.get(at..at + 64)?).map(|digest| (at, Path::Flat(digest)))
    };
    match tree.or_else(flat) {
        // Before it is a whole directory.
        Some((at, path)) if directory[..at].ends_with('/') => (&directory[..at], path, true),
        _ => (directory, Path::default(), true),
    }
}
