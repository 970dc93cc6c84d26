use std::convert::Infallible;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::ops::Range;

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

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
    pub(crate) fn range(self) -> Option<Range<usize>> {
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
pub(crate) struct Header {
    rows: U32,
    /// With how many bytes all texts begin that rows are sorted by. [`NOT_SORTED`] if there are no fences.
    shared: U32,
}

/// No table has a text of so many bytes.
const NOT_SORTED: u32 = u32::MAX;

impl Header {
    /// The number of rows, and their fences.
    pub(crate) fn parse(self) -> Option<(usize, Option<Fences>)> {
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
/// anywhere. Nothing is parsed ahead: a text is looked at when it is asked for. The value's own check comes before, and covers
/// all of it: for tables of more than some 100 KB, see [`LargeTable`](crate::LargeTable).
pub struct FlatTable<'a, R> {
    fences: Option<Fences>,
    fence_bytes: &'a [u8],
    rows: &'a [R],
    texts: &'a [u8],
}

impl<'a, R: FromBytes + Immutable + KnownLayout + Unaligned> FlatTable<'a, R> {
    /// The table in these bytes. None if they are too few for its rows.
    pub fn view(bytes: &'a [u8]) -> Option<Self> {
        let (header, rest) = Header::read_from_prefix(bytes).ok()?;
        let (count, fences) = header.parse()?;
        let len = fences.as_ref().map_or(0, Fences::len);
        let (fence_bytes, rest) = rest.split_at_checked(len)?;
        let (rows, texts) = <[R]>::ref_from_prefix_with_elems(rest, count).ok()?;
        Some(Self {
            fences,
            fence_bytes,
            rows,
            texts,
        })
    }

    /// The rows.
    pub fn rows(&self) -> &'a [R] {
        self.rows
    }

    /// A text of a row. None if the table does not have it, or if it is not UTF-8.
    pub fn text(&self, text: Text) -> Option<&'a str> {
        std::str::from_utf8(self.text_bytes(text)?).ok()
    }

    fn text_bytes(&self, text: Text) -> Option<&'a [u8]> {
        self.texts.get(text.range()?)
    }

    /// Looks for the row whose text is this one, in a table whose rows are sorted by the bytes of that text. A text that
    /// the table does not have sorts before all others. If the table was [finished](FlatTableBuilder::finish_sorted) as
    /// sorted by a text, that is the one to look for.
    pub fn find(&self, wanted: &str, text: impl Fn(&R) -> Text) -> Option<&'a R> {
        let among = match &self.fences {
            Some(fences) => {
                let part = |part| {
                    let bytes = self.fence_bytes.get(part).unwrap_or_default();
                    Ok::<_, Infallible>(bytes)
                };
                let Ok(among) = fences.narrow(wanted.as_bytes(), part);
                self.rows.get(among)?
            }
            None => self.rows,
        };
        let order = |row: &R| self.text_bytes(text(row)).cmp(&Some(wanted.as_bytes()));
        among
            .binary_search_by(order)
            .ok()
            .and_then(|at| among.get(at))
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
            .field("rows", &self.rows.len())
            .field("text_bytes", &self.texts.len())
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

    #[test]
    fn rows_and_texts_are_found_at_any_alignment() {
        let names = ["", "a", "ab", "b", "ä"];
        let aligned = tables(&names);
        for (shift, aligned) in (0..9).flat_map(|shift| aligned.iter().map(move |t| (shift, t))) {
            let mut bytes = vec![0; shift];
            bytes.extend(aligned);
            let view = FlatTable::<Row>::view(&bytes[shift..]).unwrap();
            assert_eq!(view.rows().len(), 5);
            for (number, name) in (0u64..).zip(names) {
                let row = view.find(name, |row| row.name).unwrap();
                assert_eq!(
                    (row.number.get(), view.text(row.name)),
                    (number, Some(name))
                );
            }
            assert!(view.find("aa", |row| row.name).is_none());
        }
        for empty in tables(&[]) {
            let view = FlatTable::<Row>::view(&empty).unwrap();
            assert!(view.rows().is_empty() && view.find("a", |row| row.name).is_none());
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

    #[test]
    fn no_cut_and_no_wrong_byte_is_more_than_a_miss() {
        let [_, bytes] = tables(&["one", "three", "two"]);
        for len in 0..bytes.len() {
            let Some(view) = FlatTable::<Row>::view(&bytes[..len]) else {
                assert!(len < 8 + 8 + 3 * 16);
                continue;
            };
            for row in view.rows() {
                // It may be cut off.
                let text = view.text(row.name).unwrap_or("two");
                assert!(["one", "three", "two"].contains(&text));
            }
        }
        for at in 0..bytes.len() {
            for wrong in [0, 1, 0x7F, 0x80, 0xFF] {
                let mut bytes = bytes.clone();
                bytes[at] = wrong;
                // A panic would end the test.
                if let Some(view) = FlatTable::<Row>::view(&bytes) {
                    view.find("two", |row| row.name);
                    let texts = view.rows().iter().filter_map(|row| view.text(row.name));
                    assert!(texts.map(str::len).sum::<usize>() <= 3 * bytes.len());
                }
            }
        }
    }
}
