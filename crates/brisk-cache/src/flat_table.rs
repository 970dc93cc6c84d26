use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::ops::Range;

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

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

/// Rows of one size with texts, as they lie in a file: the number of rows in 4 bytes, the rows, and the bytes of all texts.
///
/// A row is a struct of unaligned little-endian numbers (`zerocopy::little_endian`) and [`Text`]s, so a table can begin
/// anywhere. Nothing is parsed ahead: a text is looked at when it is asked for. The value's own check comes before, and covers
/// all of it: for tables of more than some 100 KB, see [`LargeTable`](crate::LargeTable).
pub struct FlatTable<'a, R> {
    rows: &'a [R],
    texts: &'a [u8],
}

impl<'a, R: FromBytes + Immutable + KnownLayout + Unaligned> FlatTable<'a, R> {
    /// The table in these bytes. None if they are too few for its rows.
    pub fn view(bytes: &'a [u8]) -> Option<Self> {
        let (count, rest) = U32::ref_from_prefix(bytes).ok()?;
        let count = usize::try_from(count.get()).ok()?;
        let (rows, texts) = <[R]>::ref_from_prefix_with_elems(rest, count).ok()?;
        Some(Self { rows, texts })
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
    /// the table does not have sorts before all others.
    pub fn find(&self, wanted: &str, text: impl Fn(&R) -> Text) -> Option<&'a R> {
        let order = |row: &R| self.text_bytes(text(row)).cmp(&Some(wanted.as_bytes()));
        self.rows
            .binary_search_by(order)
            .ok()
            .and_then(|at| self.rows.get(at))
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

    /// The bytes of the table.
    pub fn finish(self) -> Vec<u8> {
        let mut bytes = self.count.to_le_bytes().to_vec();
        bytes.reserve_exact(self.rows.len().saturating_add(self.texts.len()));
        bytes.extend_from_slice(&self.rows);
        bytes.extend_from_slice(&self.texts);
        bytes
    }
}

impl<R: IntoBytes + Immutable + Unaligned> Default for FlatTableBuilder<R> {
    fn default() -> Self {
        Self::new()
    }
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

    fn table(names: &[&str]) -> Vec<u8> {
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
        builder.finish()
    }

    #[test]
    fn rows_and_texts_are_found_at_any_alignment() {
        let names = ["", "a", "ab", "b", "ä"];
        for shift in 0..9 {
            let mut bytes = vec![0; shift];
            bytes.extend(table(&names));
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
        assert!(
            FlatTable::<Row>::view(&table(&[]))
                .unwrap()
                .rows()
                .is_empty()
        );
    }

    #[test]
    fn no_cut_and_no_wrong_byte_is_more_than_a_miss() {
        let bytes = table(&["one", "three", "two"]);
        for len in 0..bytes.len() {
            let Some(view) = FlatTable::<Row>::view(&bytes[..len]) else {
                assert!(len < 4 + 3 * 16);
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
