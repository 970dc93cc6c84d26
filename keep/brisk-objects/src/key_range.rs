//! A range of a table.

use std::ops::Bound;

use heed::iteration_method::MoveThroughDuplicateValues;
use heed::types::Bytes;
use heed::{DefaultComparator, RoRange, RoRevRange, RoTxn};

use crate::table::{MOST_KEY, Table};

/// What of a table is wanted. Each further bound makes it smaller.
#[derive(Debug, Default)]
pub(crate) struct KeyRange {
    pub(crate) from: Option<Vec<u8>>,
    /// The first entry that is not part of it.
    pub(crate) until: Option<Vec<u8>>,
    /// Whether nothing can be in it.
    pub(crate) is_empty: bool,
}

impl KeyRange {
    /// Whether this has made it smaller. None: nothing is behind that.
    pub(crate) fn begin_at(&mut self, from: Option<Vec<u8>>) -> bool {
        match from {
            Some(from) if self.from.as_ref().is_none_or(|now| *now < from) => {
                self.from = Some(from);
                true
            }
            Some(_) => false,
            // Behind the last one of all.
            None => {
                self.is_empty = true;
                false
            }
        }
    }

    /// Whether this has made it smaller. None: all is before that.
    pub(crate) fn end_before(&mut self, until: Option<Vec<u8>>) -> bool {
        match until {
            Some(until) if self.until.as_ref().is_none_or(|now| until < *now) => {
                self.until = Some(until);
                true
            }
            _ => false,
        }
    }

    /// The entries, in descending order if `is_reversed`.
    pub(crate) fn entries<'q>(
        &self,
        table: &Table,
        txn: &'q RoTxn<'q>,
        is_reversed: bool,
    ) -> heed::Result<Entries<'q>> {
        let Some(range) = self.bounds() else {
            return Ok(Entries::None);
        };
        match is_reversed {
            false => table.range(txn, &range).map(Entries::Up),
            true => table.rev_range(txn, &range).map(Entries::Down),
        }
    }

    /// The range as LMDB can take it: it has no key without bytes, and none of more than 511. None if nothing is in it.
    fn bounds(&self) -> Option<Bounds<'_>> {
        let (from, until) = (self.from.as_deref(), self.until.as_deref());
        let is_empty = self.is_empty
            || until
                .is_some_and(|until| until.is_empty() || from.is_some_and(|from| from >= until));
        // No entry lies between the first bytes of a long key and the key, but one that has just these is before it.
        let from = match from.map(|from| from.split_at_checked(MOST_KEY)) {
            Some(Some((first, [_, ..]))) => Bound::Excluded(first),
            _ => from.map_or(Bound::Unbounded, Bound::Included),
        };
        let until = match until.map(|until| until.split_at_checked(MOST_KEY)) {
            Some(Some((first, [_, ..]))) => Bound::Included(first),
            _ => until.map_or(Bound::Unbounded, Bound::Excluded),
        };
        let from = match from {
            Bound::Included([]) => Bound::Unbounded,
            from => from,
        };
        (!is_empty).then_some((from, until))
    }
}

/// An entry and its value.
pub(crate) type Row<'q> = (&'q [u8], &'q [u8]);
type Bounds<'q> = (Bound<&'q [u8]>, Bound<&'q [u8]>);
type Up<'q> = RoRange<'q, Bytes, Bytes, DefaultComparator, MoveThroughDuplicateValues>;
type Down<'q> = RoRevRange<'q, Bytes, Bytes, DefaultComparator, MoveThroughDuplicateValues>;

/// Entries of a table in a range.
pub(crate) enum Entries<'q> {
    None,
    Up(Up<'q>),
    Down(Down<'q>),
}

impl<'q> Iterator for Entries<'q> {
    type Item = heed::Result<Row<'q>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::None => None,
            Self::Up(up) => up.next(),
            Self::Down(down) => down.next(),
        }
    }
}
