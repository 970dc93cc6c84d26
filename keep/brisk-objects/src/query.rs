use std::cmp::Ordering;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

use crate::cursor::Cursor;
use crate::error::Error;
use crate::index::Index;
use crate::key::{AsKey, AsKeyPrefix, Key, behind, describe_key, encode_open};
use crate::key_bytes::KeyBytes;
use crate::key_range::{Entries, KeyRange, Row};
use crate::kind::Fingerprint;
use crate::reading::Reading;
use crate::record::{Record, ViewOf};
use crate::snapshot::Snapshot;
use crate::stored_record;
use crate::table::{Table, damaged};

/// Records of a collection, in the order of their keys or of an index. It reads nothing until it is asked.
///
/// `K` is what it is ordered by. [`iter`](Self::iter) gives views, which borrow from the file.
pub struct Query<'t, R: Record, K = <R as Record>::Key> {
    held: Held<'t>,
    plan: Plan<'t, R>,
    key: PhantomData<fn() -> K>,
}

enum Held<'t> {
    Borrowed(Reading<'t>),
    Own(Box<Snapshot<'static>>),
}

type Filter<'t, R> = Box<dyn Fn(&ViewOf<'_, R>) -> bool + 't>;
type Order<'t, R> = Box<dyn Fn(&ViewOf<'_, R>, &ViewOf<'_, R>) -> Ordering + 't>;

/// What a query does.
struct Plan<'t, R: Record> {
    /// None: the records themselves.
    index: Option<usize>,
    /// What passes over the part of an entry by which it is ordered.
    skip_key: fn(&mut &[u8]) -> Option<()>,
    /// What tells that part in words.
    describe: fn(&[u8]) -> String,
    range: KeyRange,
    /// The range in words, if it is that of the first parts of a key.
    parts: Option<String>,
    is_reversed: bool,
    filters: Vec<Filter<'t, R>>,
    order: Option<Order<'t, R>>,
    offset: usize,
    limit: Option<usize>,
}

impl<'t, R: Record> Query<'t, R> {
    pub(crate) fn of(reading: Reading<'t>) -> Self {
        Self::new(Held::Borrowed(reading))
    }

    pub(crate) fn of_own(snapshot: Snapshot<'static>) -> Self {
        Self::new(Held::Own(Box::new(snapshot)))
    }

    fn new(held: Held<'t>) -> Self {
        Self {
            held,
            plan: Plan {
                index: None,
                skip_key: R::Key::skip,
                describe: describe_key::<R::Key>,
                range: KeyRange::default(),
                parts: None,
                is_reversed: false,
                filters: Vec::new(),
                order: None,
                offset: 0,
                limit: None,
            },
            key: PhantomData,
        }
    }
}

impl<'t, R: Record, K: Key> Query<'t, R, K> {
    /// Goes through an index. This drops a range that was set before.
    pub fn by<I: Key>(self, index: Index<R, I>) -> Query<'t, R, I> {
        Query {
            held: self.held,
            plan: Plan {
                index: Some(index.number),
                skip_key: I::skip,
                describe: describe_key::<I>,
                range: KeyRange::default(),
                parts: None,
                ..self.plan
            },
            key: PhantomData,
        }
    }

    /// Keeps only what has this key.
    pub fn is(self, key: impl AsKey<K>) -> Self {
        let mut bytes = KeyBytes::new();
        key.encode_key(&mut bytes);
        self.prefixed(&bytes)
    }

    /// Keeps only what has a key in a range.
    pub fn range<Q: AsKey<K>>(mut self, range: impl RangeBounds<Q>) -> Self {
        let bytes = |key: &Q| {
            let mut bytes = KeyBytes::new();
            key.encode_key(&mut bytes);
            bytes.to_vec()
        };
        match range.start_bound() {
            Bound::Included(start) => self.plan.begin_at(Some(bytes(start))),
            Bound::Excluded(start) => self.plan.begin_at(behind(bytes(start))),
            Bound::Unbounded => {}
        }
        match range.end_bound() {
            Bound::Included(end) => self.plan.end_before(behind(bytes(end))),
            Bound::Excluded(end) => self.plan.end_before(Some(bytes(end))),
            Bound::Unbounded => {}
        }
        self
    }

    /// Keeps only what has these first parts of a key of several parts, as in `.prefix(("ann",))`.
    pub fn prefix(self, parts: impl AsKeyPrefix<K> + fmt::Debug) -> Self {
        let mut bytes = KeyBytes::new();
        parts.encode_prefix(&mut bytes);
        self.prefixed_by_parts(&bytes, format!("{parts:?}"))
    }

    fn prefixed(mut self, bytes: &[u8]) -> Self {
        self.plan.begin_at(Some(bytes.to_vec()));
        self.plan.end_before(behind(bytes.to_vec()));
        self
    }

    /// The same, of a prefix that is no whole key. Only these words can tell it.
    fn prefixed_by_parts(self, bytes: &[u8], words: String) -> Self {
        let is_all = self.plan.range.from.is_none() && self.plan.range.until.is_none();
        let mut this = self.prefixed(bytes);
        this.plan.parts = Some(words).filter(|_| is_all);
        this
    }

    /// Turns the order round: descending, or ascending again.
    pub fn rev(mut self) -> Self {
        self.plan.is_reversed = !self.plan.is_reversed;
        self
    }

    /// Keeps only records for which this is true. It looks at the stored bytes.
    pub fn filter(mut self, is_wanted: impl Fn(&ViewOf<'_, R>) -> bool + 't) -> Self {
        self.plan.filters.push(Box::new(is_wanted));
        self
    }

    /// Sorts by something that no index has. The query then looks at all records before it gives the first one, and has views
    /// of all that pass the filters in memory. Equal records stay in the order that they had.
    pub fn order_by<O: Ord>(mut self, by: impl Fn(&ViewOf<'_, R>) -> O + 't) -> Self {
        let compare = move |one: &ViewOf<'_, R>, two: &ViewOf<'_, R>| by(one).cmp(&by(two));
        self.plan.order = Some(Box::new(compare));
        self
    }

    /// Leaves out the first `count` records.
    pub fn skip(mut self, count: usize) -> Self {
        self.plan.offset = self.plan.offset.saturating_add(count);
        self
    }

    /// Gives at most `count` records.
    pub fn take(mut self, count: usize) -> Self {
        self.plan.limit = Some(self.plan.limit.map_or(count, |limit| limit.min(count)));
        self
    }

    /// Begins behind the end of another page of the same query.
    ///
    /// # Errors
    ///
    /// [`Error::Cursor`] if the cursor is of another index, layout or direction.
    pub fn after(mut self, cursor: &Cursor) -> Result<Self, Error> {
        let plan = &mut self.plan;
        if cursor.of != plan.number() || cursor.is_reversed != plan.is_reversed {
            return Err(Error::Cursor);
        }
        match plan.is_reversed {
            true => plan.end_before(Some(cursor.last.clone())),
            false => plan.begin_at(Some([cursor.last.as_slice(), &[0]].concat())),
        }
        Ok(self)
    }

    fn reading(&self) -> Reading<'_> {
        match &self.held {
            Held::Borrowed(reading) => *reading,
            Held::Own(snapshot) => snapshot.reading(),
        }
    }

    /// The records, as views.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`] if the database was opened without the collection. Otherwise those of the system.
    pub fn iter(&self) -> Result<Records<'_, 't, R>, Error> {
        let reading = self.reading();
        let entries = self.plan.entries(reading)?;
        Ok(Records {
            entries,
            reading,
            records: reading.inner.collection::<R>()?.records,
            key: KeyBytes::new(),
            plan: &self.plan,
            sorted: None,
            left: self.plan.limit.unwrap_or(usize::MAX),
            to_skip: self.plan.offset,
            last: None,
        })
    }

    /// What the index has of each record, and its key. Records are looked up only if there are filters or an order.
    ///
    /// # Errors
    ///
    /// As [`Query::iter`].
    pub fn keys(&self) -> Result<Keys<'_, 't, R, K>, Error> {
        Ok(Keys {
            needs_records: self.plan.needs_records(),
            records: self.iter()?,
            key: PhantomData,
        })
    }

    /// Copies of all records.
    ///
    /// # Errors
    ///
    /// As [`Query::iter`] and its items.
    pub fn collect(&self) -> Result<Vec<R>, Error> {
        self.iter()?.map(|view| view.map(R::owned)).collect()
    }

    /// A copy of the first record.
    ///
    /// # Errors
    ///
    /// As [`Query::collect`].
    pub fn first(&self) -> Result<Option<R>, Error> {
        self.iter()?
            .next()
            .map(|view| view.map(R::owned))
            .transpose()
    }

    /// How many records there are.
    ///
    /// # Errors
    ///
    /// As [`Query::collect`].
    pub fn count(&self) -> Result<usize, Error> {
        let mut keys = self.keys()?;
        let mut count = 0;
        while let Some(entry) = keys.next_entry() {
            entry?;
            count += 1;
        }
        Ok(count)
    }

    /// What the query does to give records, in words.
    pub fn explain(&self) -> String {
        self.plan.to_string()
    }

    /// What the query does for [`keys`](Self::keys) and [`count`](Self::count), in words.
    pub fn explain_keys(&self) -> String {
        Explained {
            plan: &self.plan,
            keys_only: true,
        }
        .to_string()
    }
}

impl<R: Record> Plan<'_, R> {
    fn begin_at(&mut self, from: Option<Vec<u8>>) {
        if self.range.begin_at(from) {
            self.parts = None;
        }
    }

    fn end_before(&mut self, until: Option<Vec<u8>>) {
        if self.range.end_before(until) {
            self.parts = None;
        }
    }

    /// Whether it looks at records even if nobody wants more than keys.
    fn needs_records(&self) -> bool {
        !self.filters.is_empty() || self.order.is_some()
    }

    /// A number of what it goes through.
    fn number(&self) -> u64 {
        let index = self.index.and_then(|number| R::SCHEMA.indexes.get(number));
        let of = index.map_or(R::FINGERPRINT, |index| index.fingerprint(R::FINGERPRINT));
        Fingerprint::new().number(of).text(R::SCHEMA.collection).0
    }

    fn entries<'q>(&self, reading: Reading<'q>) -> Result<Entries<'q>, Error> {
        reading.inner.check_process()?;
        let collection = reading.inner.collection::<R>()?;
        let table = match self.index {
            None => Some(&collection.records),
            Some(number) => collection.indexes.get(number),
        };
        let table = table.ok_or(Error::Unknown {
            collection: R::SCHEMA.collection,
        })?;
        let entries = self.range.entries(table, reading.txn, self.is_reversed);
        entries.map_err(|e| reading.inner.told(e))
    }

    /// The key of the record of an entry, without its padding.
    fn record_key<'e>(&self, entry: &'e [u8]) -> Result<&'e [u8], Error> {
        let mut rest = entry;
        (self.skip_key)(&mut rest).ok_or_else(|| self.damaged_entry(entry))?;
        Ok(rest)
    }

    fn damaged_entry(&self, entry: &[u8]) -> Error {
        Error::Damaged {
            collection: R::SCHEMA.collection,
            key: (self.describe)(entry),
        }
    }
}

/// What the query does for records.
impl<R: Record> fmt::Display for Plan<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (plan, keys_only) = (self, false);
        Explained { plan, keys_only }.fmt(f)
    }
}

/// What a query does, in words.
struct Explained<'p, 't, R: Record> {
    plan: &'p Plan<'t, R>,
    /// Whether nobody wants more than keys.
    keys_only: bool,
}

/// One step after another.
impl<R: Record> fmt::Display for Explained<'_, '_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plan = self.plan;
        let index = plan.index.and_then(|number| R::SCHEMA.indexes.get(number));
        match index {
            Some(index) => write!(f, "{index} of {}", R::SCHEMA.collection)?,
            None => write!(
                f,
                "{} by {}",
                R::SCHEMA.collection,
                R::SCHEMA.key.join(", ")
            )?,
        }
        match (&plan.range.from, &plan.range.until) {
            _ if plan.range.is_empty => f.write_str(", nothing of it")?,
            (None, None) => f.write_str(", all of it")?,
            _ if plan.parts.is_some() => {
                write!(f, ", only {}", plan.parts.as_deref().unwrap_or_default())?;
            }
            (Some(from), Some(until)) if behind(from.clone()).as_ref() == Some(until) => {
                write!(f, ", only {}", (plan.describe)(from))?;
            }
            (from, until) => {
                if let Some(from) = from {
                    write!(f, ", from {}", (plan.describe)(from))?;
                }
                if let Some(until) = until {
                    write!(f, ", until {}", (plan.describe)(until))?;
                }
            }
        }
        if plan.is_reversed {
            f.write_str(", backwards")?;
        }
        if plan.index.is_some() {
            f.write_str(match self.keys_only && !plan.needs_records() {
                true => "; look up no record",
                false => "; look up each record",
            })?;
        }
        match plan.filters.len() {
            0 => {}
            1 => f.write_str("; filter")?,
            filters => write!(f, "; filter by {filters} conditions")?,
        }
        if plan.order.is_some() {
            f.write_str("; sort all in memory")?;
        }
        if plan.offset > 0 {
            write!(f, "; skip {}", plan.offset)?;
        }
        if let Some(limit) = plan.limit {
            write!(f, "; take {limit}")?;
        }
        Ok(())
    }
}

/// An entry and the record that it leads to.
type Found<'q, R> = (&'q [u8], ViewOf<'q, R>);

/// The records of a [`Query`], as views.
pub struct Records<'q, 't, R: Record> {
    entries: Entries<'q>,
    reading: Reading<'q>,
    /// The table of the records.
    records: Table,
    /// The key of the record that is being looked up.
    key: KeyBytes,
    plan: &'q Plan<'t, R>,
    /// If they come in another order than the entries.
    sorted: Option<std::vec::IntoIter<Found<'q, R>>>,
    left: usize,
    to_skip: usize,
    /// The entry of the last record that came.
    last: Option<&'q [u8]>,
}

impl<'q, R: Record> Records<'q, '_, R> {
    /// Where the page that came so far ends. None if nothing came, or if the query has an order of its own.
    pub fn cursor(&self) -> Option<Cursor> {
        let last = self.last.filter(|_| self.plan.order.is_none())?;
        Some(Cursor {
            of: self.plan.number(),
            is_reversed: self.plan.is_reversed,
            last: last.to_vec(),
        })
    }

    #[inline]
    fn next_entry(&mut self) -> Result<Option<Row<'q>>, Error> {
        let next = self.entries.next().transpose();
        next.map_err(|e| self.reading.inner.told(e))
    }

    fn record_of(&mut self, entry: &'q [u8], value: &'q [u8]) -> Result<ViewOf<'q, R>, Error> {
        if self.plan.index.is_none() {
            let view = stored_record::view::<R>(entry, value);
            return view.ok_or_else(|| damaged::<R>(entry));
        }
        self.key.clear();
        self.key.extend_from_slice(self.plan.record_key(entry)?);
        self.key.pad();
        let found = self.reading.get_from::<R>(&self.records, &self.key)?;
        let (_bytes, view) = found.ok_or_else(|| self.plan.damaged_entry(entry))?;
        Ok(view)
    }

    /// The next record that passes the filters, and its entry.
    fn next_wanted(&mut self) -> Result<Option<Found<'q, R>>, Error> {
        while let Some((entry, value)) = self.next_entry()? {
            let view = self.record_of(entry, value)?;
            if self.plan.filters.iter().all(|is_wanted| is_wanted(&view)) {
                return Ok(Some((entry, view)));
            }
        }
        Ok(None)
    }

    /// The same, in the order of the query.
    fn next_in_order(&mut self) -> Result<Option<Found<'q, R>>, Error> {
        let Some(order) = &self.plan.order else {
            return self.next_wanted();
        };
        if self.sorted.is_none() {
            let mut all = Vec::new();
            while let Some(found) = self.next_wanted()? {
                all.push(found);
            }
            all.sort_by(|one, two| order(&one.1, &two.1));
            self.sorted = Some(all.into_iter());
        }
        Ok(self.sorted.as_mut().and_then(Iterator::next))
    }

    /// Whether one more may come.
    fn begin_next(&mut self) -> bool {
        let may = self.left > 0;
        self.left = self.left.saturating_sub(1);
        may
    }

    fn next_record(&mut self) -> Result<Option<ViewOf<'q, R>>, Error> {
        if !self.begin_next() {
            return Ok(None);
        }
        while self.to_skip > 0 {
            self.to_skip -= 1;
            if self.next_in_order()?.is_none() {
                return Ok(None);
            }
        }
        let next = self.next_in_order()?;
        Ok(next.map(|(entry, view)| {
            self.last = Some(entry);
            view
        }))
    }
}

impl<'q, R: Record> Iterator for Records<'q, '_, R> {
    type Item = Result<ViewOf<'q, R>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next_record();
        if next.is_err() {
            self.left = 0;
        }
        next.transpose()
    }
}

/// What an index has of the records of a [`Query`], and their keys.
pub struct Keys<'q, 't, R: Record, K> {
    records: Records<'q, 't, R>,
    needs_records: bool,
    key: PhantomData<fn() -> K>,
}

impl<'q, R: Record, K: Key> Keys<'q, '_, R, K> {
    /// As [`Records::cursor`].
    pub fn cursor(&self) -> Option<Cursor> {
        self.records.cursor()
    }

    /// The next entry, with a look at the record only if something asks for that.
    // Most scans want no more than entries, and spend as much time here as in LMDB.
    #[inline]
    fn next_entry(&mut self) -> Option<Result<&'q [u8], Error>> {
        let records = &mut self.records;
        if self.needs_records || records.to_skip > 0 {
            return self.next_entry_slowly().transpose();
        }
        if records.left == 0 {
            return None;
        }
        records.left -= 1;
        match records.entries.next()? {
            Ok((entry, _)) => {
                records.last = Some(entry);
                Some(Ok(entry))
            }
            Err(e) => Some(Err(records.reading.inner.told(e))),
        }
    }

    /// The same, with records or an offset.
    #[inline(never)]
    fn next_entry_slowly(&mut self) -> Result<Option<&'q [u8]>, Error> {
        let records = &mut self.records;
        if self.needs_records {
            return Ok(records.next_record()?.and(records.last));
        }
        if !records.begin_next() {
            return Ok(None);
        }
        while records.to_skip > 0 {
            records.to_skip -= 1;
            if records.next_entry()?.is_none() {
                return Ok(None);
            }
        }
        let next = records.next_entry()?;
        Ok(next.map(|(entry, _)| {
            records.last = Some(entry);
            entry
        }))
    }

    #[inline]
    fn decode(&self, entry: &[u8]) -> Option<(K, R::Key)> {
        let mut rest = entry;
        let key = K::decode(&mut rest)?;
        // The records themselves are ordered by the key alone.
        let mut of_record = match self.records.plan.index {
            Some(_) => rest,
            None => entry,
        };
        Some((key, R::Key::decode(&mut of_record)?))
    }

    #[cold]
    fn failed(&mut self, e: Error) -> Error {
        self.records.left = 0;
        e
    }
}

impl<R: Record, K: Key> Iterator for Keys<'_, '_, R, K> {
    type Item = Result<(K, R::Key), Error>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let entry = match self.next_entry()? {
            Ok(entry) => entry,
            Err(e) => return Some(Err(self.failed(e))),
        };
        match self.decode(entry) {
            Some(keys) => Some(Ok(keys)),
            None => {
                let e = self.records.plan.damaged_entry(entry);
                Some(Err(self.failed(e)))
            }
        }
    }
}

impl<R: Record> Query<'_, R, String> {
    /// Keeps only what has a text that begins with this.
    pub fn starts_with(self, text: &str) -> Self {
        let mut bytes = KeyBytes::new();
        encode_open(text.as_bytes(), &mut bytes);
        self.prefixed_by_parts(&bytes, format!("{text:?}…"))
    }
}

impl<R: Record, K> fmt::Debug for Query<'_, R, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Query")
            .field(&self.plan.to_string())
            .finish()
    }
}

impl<R: Record> fmt::Debug for Records<'_, '_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Records")
            .field(&self.plan.to_string())
            .finish()
    }
}

impl<R: Record, K> fmt::Debug for Keys<'_, '_, R, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Keys")
            .field(&self.records.plan.to_string())
            .finish()
    }
}
