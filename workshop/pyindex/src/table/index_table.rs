use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::ops::Range;

use brisk_cache::{Stored, ValueParts, fingerprint};
use data_encoding::HEXLOWER;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::record::{Path, Record};
use super::wire::{FileFlags, FileRow, Header, Span, VersionRow};

/// The layout of stored tables, for [`Cache::get_stored`](brisk_cache::Cache::get_stored).
#[derive(Debug)]
pub struct PackageTable;

impl Stored for PackageTable {
    const FINGERPRINT: u64 = fingerprint(
        "package table 3: header, requires, tails, their texts, versions (key, first, flags), files, the newest first \
         (tail, requires, flags), version texts, prefixes, stems, records, heap",
    );
    type View<'a> = IndexTable<'a>;

    fn view(bytes: &[u8]) -> Option<IndexTable<'_>> {
        IndexTable::view(bytes.into()).ok()?
    }

    fn view_parts(value: ValueParts<'_>) -> io::Result<Option<IndexTable<'_>>> {
        IndexTable::view(value)
    }
}

/// The stored table of a project: its versions and files, as they lie in the cache.
///
/// Nothing is parsed ahead. A look at a row checks the part of the table that has it, so each call can fail with what
/// [`Hit::part`](brisk_cache::Hit::part) says, or with [`io::ErrorKind::InvalidData`] if the table refers to what it does
/// not have.
#[derive(Clone, Copy)]
pub struct IndexTable<'a> {
    value: ValueParts<'a>,
    /// 1. The columns, the texts and the heap end within the value.
    tails: Column<Span>,
    requires: Column<Span>,
    texts: usize,
    versions: Column<VersionRow>,
    files: Column<FileRow>,
    version_texts: Column<Span>,
    prefixes: Column<Span>,
    stems: Column<Span>,
    records: Column<Span>,
    heap: usize,
    left_out: LeftOut,
}

/// How many files of a page no installer takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeftOut {
    /// Their endings are of other kinds: eggs, installers, signatures.
    pub kind: u32,
    /// Their names are of another project.
    pub project: u32,
    /// Their versions are not of PEP 440, or have numbers of more than 64 bits.
    pub version: u32,
    /// Their names have too few or too many parts.
    pub form: u32,
}

impl LeftOut {
    /// So many files.
    pub fn files(&self) -> u64 {
        let Self {
            kind,
            project,
            version,
            form,
        } = *self;
        [kind, project, version, form]
            .into_iter()
            .map(u64::from)
            .sum()
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} files of the page are left out", self.files())?;
        let reasons = [
            (self.kind, "of kinds that no installer takes"),
            (self.project, "of other projects"),
            (self.version, "with versions that PEP 440 does not know"),
            (self.form, "with too few or too many parts in their names"),
        ];
        let reasons = reasons.iter().filter(|(files, _)| *files > 0);
        for ((files, what), before) in
            reasons.zip([": "].into_iter().chain(std::iter::repeat(", ")))
        {
            write!(f, "{before}{files} {what}")?;
        }
        Ok(())
    }
}

struct Column<R> {
    name: &'static str,
    at: usize,
    rows: usize,
    row: PhantomData<fn() -> R>,
}

impl<R> Clone for Column<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Column<R> {}

impl<R> Column<R> {
    /// The column that begins here, and where the next one does. None if there are no such places.
    fn place(name: &'static str, at: &mut usize, rows: U32) -> Option<Self> {
        let rows = usize::try_from(rows.get()).ok()?;
        let column = Self {
            name,
            at: *at,
            rows,
            row: PhantomData,
        };
        *at = rows.checked_mul(size_of::<R>())?.checked_add(*at)?;
        Some(column)
    }
}

impl<'a> IndexTable<'a> {
    /// The table in this value. None if it has too few or too many bytes for its rows.
    ///
    /// # Errors
    ///
    /// As [`Hit::part`](brisk_cache::Hit::part).
    pub fn view(value: ValueParts<'a>) -> io::Result<Option<Self>> {
        let Some(header) = value.part(0..size_of::<Header>())? else {
            return Ok(None);
        };
        Ok(Header::ref_from_bytes(header)
            .ok()
            .and_then(|header| Self::place(value, header)))
    }

    fn place(value: ValueParts<'a>, header: &Header) -> Option<Self> {
        let mut at = size_of::<Header>();
        let [kind, project, version, form] = header.left_out.map(U32::get);
        let requires = Column::place("requires-python", &mut at, header.requires)?;
        let tails = Column::place("end of name", &mut at, header.tails)?;
        let texts = at;
        at = usize::try_from(header.texts.get()).ok()?.checked_add(at)?;
        let table = Self {
            value,
            tails,
            requires,
            texts,
            versions: Column::place("version", &mut at, header.versions)?,
            files: Column::place("file", &mut at, header.files)?,
            version_texts: Column::place("text of version", &mut at, header.versions)?,
            prefixes: Column::place("beginning of URLs", &mut at, header.prefixes)?,
            stems: Column::place("spelling of project", &mut at, header.stems)?,
            records: Column::place("record of file", &mut at, header.files)?,
            heap: at,
            left_out: LeftOut {
                kind,
                project,
                version,
                form,
            },
        };
        let end = usize::try_from(header.heap.get()).ok()?.checked_add(at)?;
        (end == value.len()).then_some(table)
    }

    /// The number of versions.
    pub fn versions(&self) -> usize {
        self.versions.rows
    }

    /// The number of files.
    pub fn files(&self) -> usize {
        self.files.rows
    }

    /// Files of the page that are not in the table.
    pub fn left_out(&self) -> LeftOut {
        self.left_out
    }

    /// A version as it is spelled, by its place in the order of PEP 440.
    ///
    /// # Errors
    ///
    /// See [`IndexTable`].
    pub fn version(&self, at: usize) -> io::Result<&'a str> {
        self.text(self.heap, self.version_texts, at)
    }

    pub(crate) fn version_row(&self, at: usize) -> io::Result<&'a VersionRow> {
        self.row(self.versions, at)
    }

    /// The places of the files of a version.
    ///
    /// # Errors
    ///
    /// See [`IndexTable`].
    pub fn files_of(&self, version: usize) -> io::Result<Range<usize>> {
        let first = |at| -> io::Result<usize> {
            let first = self.version_row(at)?.first.get();
            usize::try_from(first).map_err(|_| self.damaged("file", usize::MAX))
        };
        let end = match version.checked_sub(1) {
            None => self.files.rows,
            Some(older) => first(older)?,
        };
        let files = first(version)?..end;
        if files.start > files.end || files.end > self.files.rows {
            return Err(self.damaged("files of version", version));
        }
        Ok(files)
    }

    pub(crate) fn file_row(&self, at: usize) -> io::Result<&'a FileRow> {
        self.row(self.files, at)
    }

    /// Rows side by side.
    pub(crate) fn file_rows(&self, files: Range<usize>) -> io::Result<&'a [FileRow]> {
        self.rows(self.files, files)
    }

    pub(crate) fn tails(&self) -> usize {
        self.tails.rows
    }

    pub(crate) fn tail(&self, at: usize) -> io::Result<&'a str> {
        self.text(self.texts, self.tails, at)
    }

    /// The same, not yet known to be text.
    pub(crate) fn tail_bytes(&self, at: usize) -> io::Result<&'a [u8]> {
        self.bytes(self.texts, self.tails, at)
    }

    pub(crate) fn requirements(&self) -> usize {
        self.requires.rows
    }

    /// What [`FileRow::requires`] says of Python.
    pub(crate) fn requires(&self, number: u32) -> io::Result<Option<&'a str>> {
        let Some(at) = number.checked_sub(1) else {
            return Ok(None);
        };
        let at = usize::try_from(at).map_err(|_| self.damaged("requires-python", usize::MAX))?;
        self.text(self.texts, self.requires, at).map(Some)
    }

    /// A text of requires-python, by its place. It is not yet known to be text.
    pub(crate) fn requires_bytes(&self, at: usize) -> io::Result<&'a [u8]> {
        self.bytes(self.texts, self.requires, at)
    }

    /// All that is known of a file of a version.
    ///
    /// # Errors
    ///
    /// See [`IndexTable`].
    pub fn file(&self, version: usize, file: usize) -> io::Result<FileRecord<'a>> {
        let row = self.file_row(file)?;
        let bytes = self.bytes(self.heap, self.records, file)?;
        let record = Record::read(bytes).ok_or_else(|| self.damaged(self.records.name, file))?;
        let at = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        let name = match &record.name {
            Some(name) => name.clone().into_owned(),
            None => {
                let stem = self.text(self.heap, self.stems, at(record.stem))?;
                let tail = self.tail(at(row.tail.get()))?;
                [stem, "-", self.version(version)?, tail].concat()
            }
        };
        let prefix = self.text(self.heap, self.prefixes, at(record.prefix))?;
        let path = match &record.path {
            Path::Tree(_) | Path::Flat(_) => 64 + 3,
            Path::Text(path) => path.len(),
        };
        let mut url = String::with_capacity(prefix.len() + path + name.len());
        url.push_str(prefix);
        match &record.path {
            Path::Tree(digest) => {
                let (first, rest) = digest.split_at(1);
                let (second, rest) = rest.split_at(1);
                for part in [first, second, rest] {
                    HEXLOWER.encode_append(part, &mut url);
                    url.push('/');
                }
            }
            Path::Flat(digest) => {
                HEXLOWER.encode_append(digest, &mut url);
                url.push('/');
            }
            Path::Text(path) => url.push_str(path),
        }
        if record.name_ends_url {
            url.push_str(&name);
        }
        Ok(FileRecord {
            name,
            url,
            requires_python: self.requires(row.requires.get())?,
            yanked: row.flags & FileFlags::YANKED != 0,
            yank_reason: record.reason.map(|reason| reason.into_owned()),
            metadata: row.flags & FileFlags::METADATA != 0,
            metadata_sha256: record
                .metadata_sha256
                .map(|digest| HEXLOWER.encode(&digest)),
            digest: match (&record.sha256, record.other_digest) {
                (Some(digest), _) => {
                    // One allocation, with room for 64 digits.
                    let mut text = String::with_capacity("sha256=".len() + 64);
                    text.push_str("sha256=");
                    HEXLOWER.encode_append(digest, &mut text);
                    Some(text)
                }
                (None, other) => other.map(|other| other.into_owned()),
            },
            size: record.size,
            uploaded: record.uploaded,
        })
    }

    #[inline]
    fn row<R: FromBytes + Immutable + KnownLayout + Unaligned>(
        &self,
        column: Column<R>,
        at: usize,
    ) -> io::Result<&'a R> {
        if at >= column.rows {
            return Err(self.damaged(column.name, at));
        }
        let row = self.rows(column, at..at + 1)?.first();
        row.ok_or_else(|| self.damaged(column.name, at))
    }

    /// Rows side by side.
    #[inline]
    fn rows<R: FromBytes + Immutable + KnownLayout + Unaligned>(
        &self,
        column: Column<R>,
        rows: Range<usize>,
    ) -> io::Result<&'a [R]> {
        let Range { start, end } = rows;
        if start > end || end > column.rows {
            return Err(self.damaged(column.name, start));
        }
        // By invariant 1, nothing overflows.
        let at = |row| column.at + row * size_of::<R>();
        self.value
            .part(at(start)..at(end))?
            .and_then(|bytes| <[R]>::ref_from_bytes(bytes).ok())
            .ok_or_else(|| self.damaged(column.name, start))
    }

    /// `among`: where the bytes begin that the spans of a column count from.
    fn bytes(&self, among: usize, column: Column<Span>, at: usize) -> io::Result<&'a [u8]> {
        let span = self.row(column, at)?;
        let range = || {
            let start = usize::try_from(span.start.get()).ok()?.checked_add(among)?;
            Some(start..start.checked_add(usize::try_from(span.len.get()).ok()?)?)
        };
        let range = range().ok_or_else(|| self.damaged(column.name, at))?;
        self.value
            .part(range)?
            .ok_or_else(|| self.damaged(column.name, at))
    }

    fn text(&self, among: usize, column: Column<Span>, at: usize) -> io::Result<&'a str> {
        std::str::from_utf8(self.bytes(among, column, at)?)
            .map_err(|_| self.damaged(column.name, at))
    }

    #[cold]
    fn damaged(&self, what: &'static str, at: usize) -> io::Error {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "a stored table of {} bytes has no {what} {at}; fetch the page again with --refresh",
                self.value.len()
            ),
        )
    }
}

impl fmt::Debug for IndexTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IndexTable")
            .field("versions", &self.versions.rows)
            .field("files", &self.files.rows)
            .field("bytes", &self.value.len())
            .finish_non_exhaustive()
    }
}

/// All that is known of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRecord<'a> {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub url: String,
    /// Which Pythons it takes.
    pub requires_python: Option<&'a str>,
    /// Nobody should get it who does not pin its version.
    pub yanked: bool,
    /// Why.
    pub yank_reason: Option<String>,
    /// Its metadata is at its URL and `.metadata`.
    pub metadata: bool,
    /// The SHA-256 of its metadata, in hexadecimal.
    pub metadata_sha256: Option<String>,
    /// `algorithm=digest`.
    pub digest: Option<String>,
    /// In bytes.
    pub size: Option<u64>,
    /// In microseconds since 1970.
    pub uploaded: Option<i64>,
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;
    use crate::{PageForm, ProjectName, table_of_page};

    const PAGE: &str = include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/pyindex.md"
    ));

    /// The rows of the table of the page whose head begins so.
    fn rows(head: &str) -> Vec<Vec<&'static str>> {
        let lines = PAGE.lines().skip_while(|line| !line.starts_with(head));
        lines
            .skip(2)
            .take_while(|line| line.starts_with('|'))
            .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
            .collect()
    }

    #[test]
    fn the_page_describes_the_header() {
        let fields = [
            ("versions", offset_of!(Header, versions)),
            ("files", offset_of!(Header, files)),
            ("tails", offset_of!(Header, tails)),
            ("requires", offset_of!(Header, requires)),
            ("texts", offset_of!(Header, texts)),
            ("prefixes", offset_of!(Header, prefixes)),
            ("stems", offset_of!(Header, stems)),
            ("heap", offset_of!(Header, heap)),
            ("left_out", offset_of!(Header, left_out)),
        ];
        let ends = fields.iter().skip(1).map(|(_, start)| *start);
        let ends = ends.chain([size_of::<Header>()]);
        let expected = fields.iter().zip(ends).map(|((name, start), end)| {
            vec![
                start.to_string(),
                (end - start).to_string(),
                (*name).to_owned(),
            ]
        });
        assert_eq!(rows("| offset | bytes |"), expected.collect::<Vec<_>>());
    }

    #[test]
    fn the_page_describes_the_columns() {
        // Each column has another number of rows.
        let files: Vec<_> = [
            "1-py3-none-any.whl",
            "1.zip",
            "1.tar.gz",
            "2.zip",
            "3.zip",
            "4.zip",
        ]
        .iter()
        .zip(1..)
        .map(|(end, python)| {
            let python = (python < 3).then(|| format!(r#", "requires-python": ">={python}""#));
            let python = python.unwrap_or_default();
            format!(r#"{{"filename": "some-{end}", "url": "some-{end}", "hashes": {{}}{python}}}"#)
        })
        .collect();
        let page = format!(r#"{{"files": [{}]}}"#, files.join(","));
        let address = "https://index.example/some/".parse().unwrap();
        let name = ProjectName::parse("some").unwrap();
        let bytes = table_of_page(&name, &address, PageForm::Json, page.as_bytes()).unwrap();
        let table = IndexTable::view((&*bytes).into()).unwrap().unwrap();
        let (header, _) = Header::ref_from_prefix(&bytes).unwrap();
        let count = |field: &str| match field.trim_matches('`') {
            "1" => 1,
            "versions" => header.versions.get(),
            "files" => header.files.get(),
            "tails" => header.tails.get(),
            "requires" => header.requires.get(),
            "texts" => header.texts.get(),
            "prefixes" => header.prefixes.get(),
            "stems" => header.stems.get(),
            "heap" => header.heap.get(),
            other => panic!("{other}"),
        };
        let counts = ["versions", "files", "tails", "requires", "prefixes"].map(count);
        assert_eq!(counts, [4, 6, 3, 2, 1]);
        let mut at = 0;
        let mut described = Vec::new();
        for row in rows("| column |") {
            described.push((row[0], at));
            at += usize::try_from(count(row[1])).unwrap() * row[2].parse::<usize>().unwrap();
        }
        assert_eq!(at, bytes.len());
        let expected = [
            ("header", 0),
            (table.requires.name, table.requires.at),
            (table.tails.name, table.tails.at),
            ("texts", table.texts),
            (table.versions.name, table.versions.at),
            (table.files.name, table.files.at),
            (table.version_texts.name, table.version_texts.at),
            (table.prefixes.name, table.prefixes.at),
            (table.stems.name, table.stems.at),
            (table.records.name, table.records.at),
            ("heap", table.heap),
        ];
        assert_eq!(described, expected);
    }

    #[test]
    fn the_page_has_the_flags_of_records() {
        let flags: Vec<u16> = rows("| flag |")
            .iter()
            .map(|row| row[0].parse().unwrap())
            .collect();
        assert_eq!(flags, super::super::record::FLAGS);
    }
}
