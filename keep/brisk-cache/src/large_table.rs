use std::cmp::Ordering;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::ops::Range;

use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::fences::Fences;
use crate::flat_table::Header;
use crate::{Text, ValueParts};

/// A [`FlatTable`](crate::FlatTable) of which only the parts are checked that are looked at.
///
/// The bytes are the same: [`FlatTableBuilder`](crate::FlatTableBuilder) makes them. A flat table needs the whole value,
/// and so its check. This one asks [`ValueParts`] for each row and each text, so a look-up in a table of any length
/// checks a few chunks of it at first, and nothing later. For that, each call can fail.
///
/// # Errors
///
/// Those of [`Hit::part`](crate::Hit::part), for all calls. What is not in the table is none.
pub struct LargeTable<'a, R> {
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

impl<'a, R: FromBytes + Immutable + KnownLayout + Unaligned> LargeTable<'a, R> {
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
    /// [finished](crate::FlatTableBuilder::finish_sorted) as sorted by a text, that is the one to look for.
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
                    Ok::<_, io::Error>(bytes.unwrap_or_default())
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

impl<R> Clone for LargeTable<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for LargeTable<'_, R> {}

impl<R> fmt::Debug for LargeTable<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LargeTable")
            .field("rows", &self.rows)
            .field("bytes", &self.value.len())
            .finish()
    }
}
