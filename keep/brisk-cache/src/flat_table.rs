use std::cmp::Ordering;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::ops::Range;

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ValueParts;
use crate::fences::{Fences, shared};

/// A text of a [`FlatTable`], as a row has it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Text {
    start: U32,
    len: U32,
}

impl Text {
    /// Where it is in the bytes of all texts. None if no machine of this kind has so many.
    #[inline]
    fn range(self) -> Option<Range<usize>> {
        let start = usize::try_from(self.start.get()).ok()?;
        let len = usize::try_from(self.len.get()).ok()?;
        Some(start..start.checked_add(len)?)
    }
}

/// What a table begins with. All numbers are little-endian.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
struct Header {
    rows: U32,
    /// With how many bytes all texts begin that rows are sorted by. [`NOT_SORTED`] if there are no fences.
    shared: U32,
}

/// No table has a text of so many bytes.
const NOT_SORTED: u32 = u32::MAX;

impl Header {
    /// The number of rows, and their fences.
    fn parse(self) -> Option<(usize, Option<Fences>)> {
        let rows = usize::try_from(self.rows.get()).ok()?;
        let fences = match self.shared.get() {
            NOT_SORTED => None,
            shared => Some(Fences::of_rows(rows, usize::try_from(shared).ok()?)?),
        };
        Some((rows, fences))
    }
}

/// Rows of one size with texts, as they lie in a file: the number of rows in 4 bytes, in 4 more what texts have in common,
/// then [fences](FlatTableBuilder::finish_sorted) if the rows are sorted, the rows, and the bytes of all texts.
///
/// A row is a struct of unaligned little-endian numbers (`zerocopy::little_endian`) and [`Text`]s, so a table can begin
/// anywhere. Nothing is parsed ahead. Each call checks only the chunks that it touches ([`ValueParts`]), so a look-up in a table
/// of any length checks a few chunks at first, and none when it is repeated. In return, each call can fail.
///
/// # Errors
///
/// Those of [`Hit::part`](crate::Hit::part), for all calls. What is not in the table is none.
pub struct FlatTable<'a, R> {
    value: ValueParts<'a>,
    fences: Option<Fences>,
    /// 1. `rows_at + rows * size_of::<R>() == texts_at <= value.len()`.
    rows: usize,
    rows_at: usize,
    texts_at: usize,
    row: PhantomData<&'a [R]>,
}

/// Where fences begin, if there are any.
const FENCES_AT: usize = size_of::<Header>();

impl<'a, R: FromBytes + Immutable + KnownLayout + Unaligned> FlatTable<'a, R> {
    /// The table in this value. None if it has too few bytes for its rows.
    ///
    /// # Errors
    ///
    /// As [`Hit::part`](crate::Hit::part).
    pub fn view(value: ValueParts<'a>) -> io::Result<Option<Self>> {
        let Some(header) = value.part(0..FENCES_AT)? else {
            return Ok(None);
        };
        let table = || {
            let (rows, fences) = Header::read_from_bytes(header).ok()?.parse()?;
            let len = fences.as_ref().map_or(0, Fences::len);
            let rows_at = FENCES_AT.checked_add(len)?;
            let texts_at = rows.checked_mul(size_of::<R>())?.checked_add(rows_at)?;
            (texts_at <= value.len()).then_some(Self {
                value,
                fences,
                rows,
                rows_at,
                texts_at,
                row: PhantomData,
            })
        };
        Ok(table())
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// A row. None if there are fewer.
    ///
    /// # Errors
    ///
    /// As [`Hit::part`](crate::Hit::part).
    #[inline]
    pub fn row(&self, at: usize) -> io::Result<Option<&'a R>> {
        if at >= self.rows {
            return Ok(None);
        }
        // By invariant 1, nothing overflows.
        let start = self.rows_at + at * size_of::<R>();
        let bytes = self.value.part(start..start + size_of::<R>())?;
        Ok(bytes.and_then(|bytes| R::ref_from_bytes(bytes).ok()))
    }

    /// Some rows, side by side. None if there are fewer.
    ///
    /// # Errors
    ///
    /// As [`Hit::part`](crate::Hit::part).
    pub fn rows(&self, wanted: Range<usize>) -> io::Result<Option<&'a [R]>> {
        if wanted.start > wanted.end || wanted.end > self.rows {
            return Ok(None);
        }
        let at = |row: usize| self.rows_at + row * size_of::<R>();
        let bytes = self.value.part(at(wanted.start)..at(wanted.end))?;
        Ok(bytes.and_then(|bytes| <[R]>::ref_from_bytes_with_elems(bytes, wanted.len()).ok()))
    }

    /// A text of a row. None if the table does not have it, or if it is not UTF-8.
    ///
    /// # Errors
    ///
    /// As [`Hit::part`](crate::Hit::part).
    pub fn text(&self, text: Text) -> io::Result<Option<&'a str>> {
        let bytes = self.text_bytes(text)?;
        Ok(bytes.and_then(|bytes| std::str::from_utf8(bytes).ok()))
    }

    #[inline]
    fn text_bytes(&self, text: Text) -> io::Result<Option<&'a [u8]>> {
        let range = text.range().and_then(|range| {
            let start = self.texts_at.checked_add(range.start)?;
            Some(start..self.texts_at.checked_add(range.end)?)
        });
        match range {
            Some(range) => self.value.part(range),
            None => Ok(None),
        }
    }

    /// Looks for the row whose text is this one, in a table whose rows are sorted by the bytes of that text. A text that
    /// the table does not have sorts before all others. If the table was
    /// [finished](FlatTableBuilder::finish_sorted) as sorted by a text, that is the one to look for.
    ///
    /// # Errors
    ///
    /// As [`Hit::part`](crate::Hit::part).
    pub fn find(&self, wanted: &str, text: impl Fn(&R) -> Text) -> io::Result<Option<&'a R>> {
        let (mut from, mut to) = match &self.fences {
            Some(fences) => {
                let part = |part: Range<usize>| {
                    let bytes = self
                        .value
                        .part(FENCES_AT + part.start..FENCES_AT + part.end)?;
                    Ok(bytes.unwrap_or_default())
                };
                let among = fences.narrow(wanted.as_bytes(), part)?;
                (among.start, among.end)
            }
            None => (0, self.rows),
        };
        while from < to {
            let middle = from + (to - from) / 2;
            let Some(row) = self.row(middle)? else {
                return Ok(None);
            };
            match self.text_bytes(text(row))?.cmp(&Some(wanted.as_bytes())) {
                Ordering::Less => from = middle + 1,
                Ordering::Greater => to = middle,
                Ordering::Equal => return Ok(Some(row)),
            }
        }
        Ok(None)
    }
}

impl<R> Clone for FlatTable<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for FlatTable<'_, R> {}

impl<R> fmt::Debug for FlatTable<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlatTable")
            .field("rows", &self.rows)
            .field("bytes", &self.value.len())
            .finish()
    }
}

/// Makes the bytes of a [`FlatTable`].
#[derive(Debug)]
pub struct FlatTableBuilder<R> {
    count: u32,
    rows: Vec<u8>,
    texts: Vec<u8>,
    row: PhantomData<fn(R)>,
}

impl<R: IntoBytes + Immutable + Unaligned> FlatTableBuilder<R> {
    /// A table without rows.
    pub fn new() -> Self {
        Self {
            count: 0,
            rows: Vec::new(),
            texts: Vec::new(),
            row: PhantomData,
        }
    }

    /// Adds a text, for rows to have.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] if all texts together have 4 GiB or more.
    pub fn text(&mut self, text: &str) -> io::Result<Text> {
        let start = u32::try_from(self.texts.len()).ok();
        let len = u32::try_from(text.len()).ok();
        let (Some(start), Some(len)) = (start, len) else {
            return Err(too_many("bytes of texts"));
        };
        self.texts.extend_from_slice(text.as_bytes());
        Ok(Text {
            start: start.into(),
            len: len.into(),
        })
    }

    /// Adds a row behind the others.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] if there are 4 Gi rows already.
    pub fn row(&mut self, row: R) -> io::Result<()> {
        self.count = self.count.checked_add(1).ok_or_else(|| too_many("rows"))?;
        self.rows.extend_from_slice(row.as_bytes());
        Ok(())
    }

    /// The bytes of the table. If it has many rows and they are sorted by a text, see
    /// [`finish_sorted`](FlatTableBuilder::finish_sorted).
    pub fn finish(self) -> Vec<u8> {
        self.with_fences(NOT_SORTED, &[])
    }

    /// The bytes of the table, whose rows are sorted by the bytes of this text.
    ///
    /// It then has fences: the first bytes of the text of every 32nd row, side by side. A search looks there first, and then
    /// at some 32 rows. That takes a quarter of a byte for each row, and saves most of the places that a search among
    /// thousands of rows touches.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] if a row sorts before the one before it, or if its text is of another table.
    pub fn finish_sorted(self, text: impl Fn(&R) -> Text) -> io::Result<Vec<u8>>
    where
        R: FromBytes + KnownLayout,
    {
        let rows = <[R]>::ref_from_bytes(&self.rows);
        let rows = rows.map_err(|_| wrong("a row is cut off".to_owned()))?;
        let bytes_of = |row: &R| self.texts.get(text(row).range()?);
        let texts: Option<Vec<&[u8]>> = rows.iter().map(bytes_of).collect();
        let texts = texts.ok_or_else(|| wrong("a row has a text of another table".to_owned()))?;
        let mut pairs = texts.iter().zip(texts.iter().skip(1));
        if let Some(row) = pairs.position(|(row, next)| row > next) {
            let next = row.saturating_add(1);
            return Err(wrong(format!("row {next} sorts before row {row}")));
        }
        let shared = match (texts.first(), texts.last()) {
            (Some(first), Some(last)) => shared(first, last),
            _ => 0,
        };
        let fences = Fences::of_rows(rows.len(), shared).ok_or_else(|| too_many("rows"))?;
        let fences = fences.build(&texts);
        let shared = u32::try_from(shared).map_err(|_| too_many("bytes of texts"))?;
        Ok(self.with_fences(shared, &fences))
    }

    fn with_fences(self, shared: u32, fences: &[u8]) -> Vec<u8> {
        let header = Header {
            rows: self.count.into(),
            shared: shared.into(),
        };
        [header.as_bytes(), fences, &self.rows, &self.texts].concat()
    }
}

impl<R: IntoBytes + Immutable + Unaligned> Default for FlatTableBuilder<R> {
    fn default() -> Self {
        Self::new()
    }
}

fn wrong(what: String) -> io::Error {
    let what = format!("{what}; sort the rows by that text, and make it with the same builder");
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

fn too_many(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!(
            "a table has more than {} {what}; make several tables",
            u32::MAX
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::little_endian::U64;

    #[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
    #[repr(C)]
    struct Row {
        name: Text,
        number: U64,
    }

    /// Once as it is, and once with fences.
    fn tables(names: &[&str]) -> [Vec<u8>; 2] {
        let sorted = builder(names).finish_sorted(|row| row.name).unwrap();
        [builder(names).finish(), sorted]
    }

    fn builder(names: &[&str]) -> FlatTableBuilder<Row> {
        let mut builder = FlatTableBuilder::new();
        for (number, name) in (0u64..).zip(names) {
            let name = builder.text(name).unwrap();
            builder
                .row(Row {
                    name,
                    number: number.into(),
                })
                .unwrap();
        }
        builder
    }

    fn view(bytes: &[u8]) -> Option<FlatTable<'_, Row>> {
        FlatTable::view(bytes.into()).unwrap()
    }

    #[test]
    fn rows_and_texts_are_found_at_any_alignment() {
        let names = ["", "a", "ab", "b", "ä"];
        let aligned = tables(&names);
        for (shift, aligned) in (0..9).flat_map(|shift| aligned.iter().map(move |t| (shift, t))) {
            let mut bytes = vec![0; shift];
            bytes.extend(aligned);
            let view = view(&bytes[shift..]).unwrap();
            assert_eq!(view.len(), 5);
            for (number, name) in (0u64..).zip(names) {
                let row = view.find(name, |row| row.name).unwrap().unwrap();
                assert_eq!(
                    (row.number.get(), view.text(row.name).unwrap()),
                    (number, Some(name))
                );
            }
            assert!(view.find("aa", |row| row.name).unwrap().is_none());
        }
        for empty in tables(&[]) {
            let view = view(&empty).unwrap();
            assert!(view.is_empty() && view.find("a", |row| row.name).unwrap().is_none());
        }
    }

    #[test]
    fn only_sorted_rows_get_fences() {
        let e = builder(&["a", "c", "b"]).finish_sorted(|row| row.name);
        let e = e.unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::InvalidInput);
        assert!(
            e.to_string().starts_with("row 2 sorts before row 1; "),
            "{e}"
        );
        let elsewhere = builder(&["longer"]).text("than the others").unwrap();
        let e = builder(&["a"]).finish_sorted(|_| elsewhere).unwrap_err();
        assert!(
            e.to_string()
                .starts_with("a row has a text of another table; "),
            "{e}"
        );
    }
}
