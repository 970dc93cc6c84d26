use std::fmt;

use super::collection::UntypedCollection;
use super::parts::decode;
use super::plain::Plain;
use crate::error::Error;
use crate::key::{behind, encode_open};
use crate::key_bytes::KeyBytes;
use crate::key_range::{Entries, KeyRange};
use crate::store_error::{self, Told};

/// Records of an [`UntypedCollection`], in the order of their keys or of an index. It reads nothing until it is asked.
pub struct UntypedQuery<'d> {
    of: UntypedCollection<'d>,
    /// None: the records themselves.
    index: Option<usize>,
    range: KeyRange,
    /// The bounds in words.
    bounds: Vec<String>,
    is_reversed: bool,
}

impl<'d> UntypedQuery<'d> {
    pub(super) fn new(of: UntypedCollection<'d>) -> Self {
        Self {
            of,
            index: None,
            range: KeyRange::default(),
            bounds: Vec::new(),
            is_reversed: false,
        }
    }

    /// Goes through the index with a name. This drops a range that was set before.
    ///
    /// # Errors
    ///
    /// [`Error::NoIndex`].
    pub fn by(self, name: &str) -> Result<Self, Error> {
        let schema = self.of.schema();
        let number = schema.indexes.iter().position(|index| index.name == name);
        match number {
            Some(number) => Ok(Self {
                index: Some(number),
                range: KeyRange::default(),
                bounds: Vec::new(),
                ..self
            }),
            None => Err(Error::NoIndex {
                collection: schema.collection,
                index: name.to_owned(),
                known: schema
                    .indexes
                    .iter()
                    .map(|index| index.name.to_owned())
                    .collect(),
            }),
        }
    }

    /// The fields by which it is ordered.
    pub fn fields(&self) -> &'static [&'static str] {
        let schema = self.of.schema();
        let index = self.index.and_then(|number| schema.indexes.get(number));
        index.map_or(schema.key, |index| index.fields)
    }

    /// What it is ordered by, in words.
    fn order(&self) -> String {
        let schema = self.of.schema();
        match self.index.and_then(|number| schema.indexes.get(number)) {
            Some(index) => format!("{index} of {}", schema.collection),
            None => format!("{} by {}", schema.collection, schema.key.join(", ")),
        }
    }

    fn encode(&self, parts: &[Plain]) -> Result<Vec<u8>, Error> {
        let fields = self.fields();
        let bytes = self
            .of
            .schema()
            .encode_parts(&self.order(), fields, parts)?;
        Ok(bytes.to_vec())
    }

    /// Begins at these first parts of a key.
    ///
    /// # Errors
    ///
    /// [`Error::Mismatch`] if the values are of other types.
    pub fn from(mut self, parts: &[Plain]) -> Result<Self, Error> {
        let bytes = self.encode(parts)?;
        self.range.begin_at(Some(bytes));
        self.bounds.push(format!("from {}", words(parts)));
        Ok(self)
    }

    /// Ends behind these first parts of a key.
    ///
    /// # Errors
    ///
    /// As [`from`](Self::from).
    pub fn to(mut self, parts: &[Plain]) -> Result<Self, Error> {
        let bytes = self.encode(parts)?;
        self.range.end_before(behind(bytes));
        self.bounds.push(format!("to {}", words(parts)));
        Ok(self)
    }

    /// Keeps only what has these first parts of a key. If the last one is a text, it may go on in the record.
    ///
    /// # Errors
    ///
    /// As [`from`](Self::from).
    pub fn prefix(mut self, parts: &[Plain]) -> Result<Self, Error> {
        let bytes = match parts {
            [first @ .., last] if last.text().is_some() => {
                let mut bytes = KeyBytes::new();
                bytes.extend_from_slice(&self.encode(first)?);
                // Checked for its type.
                self.encode(parts)?;
                if let Plain::Option(_) = last {
                    bytes.push(1);
                }
                encode_open(last.text().unwrap_or_default().as_bytes(), &mut bytes);
                self.bounds.push(format!("only {}…", words(parts)));
                bytes.to_vec()
            }
            _ => {
                self.bounds.push(format!("only {}", words(parts)));
                self.encode(parts)?
            }
        };
        self.range.begin_at(Some(bytes.clone()));
        self.range.end_before(behind(bytes));
        Ok(self)
    }

    /// Turns the order round: descending, or ascending again.
    pub fn rev(mut self) -> Self {
        self.is_reversed = !self.is_reversed;
        self
    }

    /// Begins behind the record of a key.
    ///
    /// # Errors
    ///
    /// As [`UntypedCollection::get`]. [`Error::Missing`] if the query goes through an index and there is no such record.
    pub fn after(mut self, key: &[Plain]) -> Result<Self, Error> {
        let schema = self.of.schema();
        let found = self.of.get(key)?;
        let what = format!("the key of {}", schema.collection);
        let bytes = schema.encode_parts(&what, schema.key, key)?;
        let entry = match (
            self.index.and_then(|number| schema.indexes.get(number)),
            found,
        ) {
            (None, _) => {
                let mut padded = bytes;
                padded.pad();
                padded
            }
            (Some(index), Some(record)) => schema.entry_of(index.fields, &record).0,
            (Some(_), None) => {
                return Err(Error::Missing {
                    collection: schema.collection,
                    key: schema.key_in_words(&bytes),
                });
            }
        };
        match self.is_reversed {
            true => self.range.end_before(Some(entry.to_vec())),
            false => self.range.begin_at(Some([&entry, [0].as_slice()].concat())),
        };
        self.bounds.push(format!("after {}", words(key)));
        Ok(self)
    }

    /// The records.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn iter(&self) -> Result<UntypedRecords<'d>, Error> {
        let parts = self.of.parts;
        let table = match self.index {
            None => Some(&parts.records),
            Some(number) => parts.indexes.get(number),
        };
        let entries = match table {
            Some(table) => self
                .range
                .entries(table, self.of.database.txn()?, self.is_reversed)
                .told(&self.of.database.env)?,
            None => Entries::None,
        };
        Ok(UntypedRecords {
            of: self.of,
            index: self.index,
            entries,
        })
    }

    /// What the query does to give records, in words.
    pub fn explain(&self) -> String {
        self.explained("; look up each record")
    }

    /// What the query does to give keys alone ([`UntypedRecords::next_key_parts`]), in words.
    pub fn explain_keys(&self) -> String {
        self.explained("; look up no record")
    }

    /// `looking` is how an index is used.
    fn explained(&self, looking: &str) -> String {
        let mut all = self.order();
        match self.bounds.as_slice() {
            [] => all.push_str(", all of it"),
            bounds => bounds.iter().for_each(|bound| {
                all.push_str(", ");
                all.push_str(bound);
            }),
        }
        if self.is_reversed {
            all.push_str(", backwards");
        }
        if self.index.is_some() {
            all.push_str(looking);
        }
        all
    }
}

/// Values as an explanation has them.
fn words(parts: &[Plain]) -> String {
    match parts {
        [one] => one.to_string(),
        several => {
            let words: Vec<_> = several.iter().map(ToString::to_string).collect();
            format!("({})", words.join(", "))
        }
    }
}

impl Plain {
    /// The text that this is, or has.
    fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Option(Some(inner)) => match &**inner {
                Self::Text(text) => Some(text),
                _ => None,
            },
            _ => None,
        }
    }
}

impl fmt::Debug for UntypedQuery<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UntypedQuery")
            .field(&self.explain())
            .finish()
    }
}

/// The records of an [`UntypedQuery`]. An error of one does not end it.
pub struct UntypedRecords<'d> {
    of: UntypedCollection<'d>,
    index: Option<usize>,
    entries: Entries<'d>,
}

/// The key of a record, padded, and its bytes if they are at hand.
type Found<'d> = (KeyBytes, Option<&'d [u8]>);

impl<'d> UntypedRecords<'d> {
    fn next_key(&mut self) -> Option<Result<Found<'d>, Error>> {
        let (entry, value) = match self.entries.next()? {
            Ok(row) => row,
            Err(e) => return Some(Err(store_error::of_open_file(&self.of.database.env, e))),
        };
        let schema = self.of.schema();
        let mut key = KeyBytes::new();
        let Some(number) = self.index else {
            key.extend_from_slice(entry);
            return Some(Ok((key, Some(value))));
        };
        let fields = schema
            .indexes
            .get(number)
            .map_or(&[][..], |index| index.fields);
        let mut rest = entry;
        if decode(&schema.types_of(fields), &mut rest).is_none() {
            return Some(Err(self.of.parts.damaged(entry)));
        }
        key.extend_from_slice(rest);
        key.pad();
        Some(Ok((key, None)))
    }

    /// The key of the next record, without a look at the record.
    pub fn next_key_parts(&mut self) -> Option<Result<Vec<Plain>, Error>> {
        let of = self.of;
        let next = self.next_key()?;
        Some(next.and_then(|(key, _)| {
            let parts = of.schema().decode_key(&key);
            parts.ok_or_else(|| of.parts.damaged(&key))
        }))
    }
}

impl Iterator for UntypedRecords<'_> {
    type Item = Result<Plain, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let of = self.of;
        let next = self.next_key()?;
        Some(next.and_then(|(key, bytes)| match bytes {
            Some(bytes) => of.parts.read(&key, bytes),
            None => {
                let found = of.parts.get(&of.database.env, of.database.txn()?, &key)?;
                found.ok_or_else(|| of.parts.damaged(&key))
            }
        }))
    }
}
