use std::fmt;

use crate::kind::{Fingerprint, Type};

/// What is stored of a record type, and how it is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schema {
    /// The name of the collection in a database.
    pub collection: &'static str,
    /// The fields of a record.
    pub layout: Type,
    /// The fields of the key, in their order.
    pub key: &'static [&'static str],
    /// Whether the database chooses the key.
    pub is_auto: bool,
    /// Its indexes. Their order is no part of what is stored.
    pub indexes: &'static [IndexSchema],
}

/// An index over fields of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexSchema {
    /// Its name in the collection.
    pub name: &'static str,
    /// The fields that it has, in their order.
    pub fields: &'static [&'static str],
    /// Whether no two records have the same values there.
    pub is_unique: bool,
}

impl Schema {
    /// A number that changes with what the bytes of a record mean: its fields, their types and its key. Indexes are no part
    /// of that.
    pub const fn layout_fingerprint(&self) -> u64 {
        // The version of the form of all values.
        let mut print = Fingerprint::new()
            .text("brisk-objects 1")
            .kind(&self.layout);
        let mut at = 0;
        while at < self.key.len() {
            print = print.text(self.key[at]);
            at += 1;
        }
        print.0
    }

    /// A number that changes with the layout, and with what the indexes are.
    pub(crate) const fn whole_fingerprint(&self) -> u64 {
        let layout = self.layout_fingerprint();
        let mut print = Fingerprint::new().number(layout).byte(self.is_auto as u8);
        let mut at = 0;
        while at < self.indexes.len() {
            let index = &self.indexes[at];
            print = print.text(index.name).byte(index.is_unique as u8);
            let mut field = 0;
            while field < index.fields.len() {
                print = print.text(index.fields[field]);
                field += 1;
            }
            at += 1;
        }
        print.0
    }

    /// The type of a field of the records.
    pub fn field(&self, name: &str) -> Option<&'static Type> {
        let Type::Struct(fields) = self.layout else {
            return None;
        };
        let found = fields.iter().find(|field| field.name == name);
        found.map(|field| &field.kind)
    }

    /// The layout and the key in words.
    pub fn layout_text(&self) -> String {
        let auto = if self.is_auto { " auto" } else { "" };
        format!("{} key {}{auto}", self.layout, self.key.join(", "))
    }
}

impl IndexSchema {
    /// A number that changes with what the entries of an index are.
    pub(crate) fn fingerprint(&self, layout: u64) -> u64 {
        let print = Fingerprint::new()
            .number(layout)
            .byte(u8::from(self.is_unique));
        let fields = self.fields.iter();
        fields.fold(print, |print, field| print.text(field)).0
    }
}

impl fmt::Display for IndexSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_unique { "unique" } else { "index" };
        write!(f, "{kind} {}({})", self.name, self.fields.join(", "))
    }
}
