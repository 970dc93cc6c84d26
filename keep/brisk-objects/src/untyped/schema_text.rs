//! Schemas as a file has them, in words.
//!
//! A [`Schema`] that a program derives is a constant. One that a file tells is used in its place, so its parts live as long as
//! the process.

use std::collections::HashSet;

use crate::kind::{Field, Type};
use crate::schema::{IndexSchema, Schema};

/// How many types a type may be nested in.
const DEEPEST: usize = 64;
/// How many bytes a text has at most.
const LONGEST: usize = 1 << 20;
/// How many variants an enum has at most: one byte says which.
const MOST_VARIANTS: usize = 256;
/// How many parts a key has at most.
pub(crate) const MOST_PARTS: usize = 8;

/// Which words are not those that [`Schema`] writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unread {
    Layout,
    /// The index of this number.
    Index(usize),
    /// The index of this number has the name of one before it.
    SameName(usize),
}

/// The schema of these words.
pub(crate) fn parse(collection: &str, layout: &str, indexes: &[String]) -> Result<Schema, Unread> {
    let mut schema = without_indexes(collection, layout).ok_or(Unread::Layout)?;
    let (mut read, mut names) = (Vec::new(), HashSet::new());
    for (number, text) in indexes.iter().enumerate() {
        let index = index_of(text).filter(|index| is_key(&schema, index.fields));
        let index = index.ok_or(Unread::Index(number))?;
        // Two indexes of one name would be one table.
        if !names.insert(index.name) {
            return Err(Unread::SameName(number));
        }
        read.push(index);
    }
    schema.indexes = read.leak();
    Ok(schema)
}

fn without_indexes(collection: &str, layout: &str) -> Option<Schema> {
    if layout.len() > LONGEST {
        return None;
    }
    let mut rest = layout;
    let kind = take_type(&mut rest, DEEPEST)?;
    let key = rest.strip_prefix(" key ")?;
    let (key, is_auto) = match key.strip_suffix(" auto") {
        Some(key) => (key, true),
        None => (key, false),
    };
    let schema = Schema {
        collection: kept(collection),
        layout: kind,
        key: names(key)?,
        is_auto,
        indexes: &[],
    };
    let is_auto_right = match schema.key {
        [name] => !schema.is_auto || schema.field(name) == Some(&Type::Unsigned(8)),
        _ => !schema.is_auto,
    };
    let is_right = is_key(&schema, schema.key) && is_auto_right;
    (is_right && schema.layout_text() == layout).then_some(schema)
}

/// Whether these fields can be a key, or that of an index.
fn is_key(schema: &Schema, fields: &[&str]) -> bool {
    let mut kinds = fields.iter().map(|name| schema.field(name));
    fields.len() <= MOST_PARTS && kinds.all(|kind| kind.is_some_and(Type::is_key))
}

fn kept(text: &str) -> &'static str {
    Box::leak(text.into())
}

fn index_of(text: &str) -> Option<IndexSchema> {
    if text.len() > LONGEST {
        return None;
    }
    let (kind, rest) = text.split_once(' ')?;
    let (name, fields) = rest.strip_suffix(')')?.split_once('(')?;
    let is_unique = match kind {
        "unique" => true,
        "index" => false,
        _ => return None,
    };
    Some(IndexSchema {
        name: kept(name),
        fields: names(fields)?,
        is_unique,
    })
}

fn names(text: &str) -> Option<&'static [&'static str]> {
    let names: Vec<_> = text.split(", ").map(kept).collect();
    let are_names = names.iter().all(|name| !name.is_empty());
    (are_names && are_distinct(names.iter().copied())).then_some(names.leak())
}

/// Whether no name comes twice.
fn are_distinct<'n>(names: impl Iterator<Item = &'n str>) -> bool {
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    let are_equal = |pair: &[&str]| matches!(pair, [one, two] if one == two);
    !names.windows(2).any(are_equal)
}

/// Takes a type from the front of a text.
fn take_type(text: &mut &str, depth: usize) -> Option<Type> {
    let depth = depth.checked_sub(1)?;
    if let Some(rest) = text.strip_prefix('{') {
        *text = rest;
        return take_struct(text, depth);
    }
    let end = text
        .find(|c: char| !c.is_ascii_alphanumeric())
        .unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    *text = rest;
    Some(match name {
        "enum" => {
            *text = text.strip_prefix('{')?;
            let Type::Struct(variants) = take_struct(text, depth)? else {
                return None;
            };
            let are_structs = variants
                .iter()
                .all(|one| matches!(one.kind, Type::Struct(_)));
            let is_enum = are_structs && (1..=MOST_VARIANTS).contains(&variants.len());
            is_enum.then_some(Type::Enum(variants))?
        }
        "map" => {
            *text = text.strip_prefix('<')?;
            let key = take_type(text, depth)?;
            *text = text.strip_prefix(", ")?;
            let value = take_type(text, depth)?;
            *text = text.strip_prefix('>')?;
            let is_map = key.is_key() && key.width().saturating_add(value.width()) > 0;
            let (key, value) = (Box::leak(Box::new(key)), Box::leak(Box::new(value)));
            is_map.then_some(Type::Map(key, value))?
        }
        "bool" => Type::Bool,
        "text" => Type::Text,
        "time" => Type::Time,
        "bytes" => {
            let (count, rest) = text.strip_prefix('<')?.split_once('>')?;
            *text = rest;
            Type::Array(count.parse().ok().filter(|&count| count <= LONGEST)?)
        }
        "option" => Type::Option(take_inner(text, depth)?),
        "list" => Type::List(take_inner(text, depth).filter(|inner| inner.width() > 0)?),
        _ => {
            let (kind, bits) = name.split_at_checked(1)?;
            let bytes = bits.parse::<u8>().ok()? / 8;
            match (kind, bytes) {
                ("u", 1 | 2 | 4 | 8 | 16) => Type::Unsigned(bytes),
                ("i", 1 | 2 | 4 | 8 | 16) => Type::Signed(bytes),
                ("f", 4 | 8) => Type::Float(bytes),
                _ => return None,
            }
        }
    })
}

fn take_inner(text: &mut &str, depth: usize) -> Option<&'static Type> {
    *text = text.strip_prefix('<')?;
    let inner = take_type(text, depth)?;
    *text = text.strip_prefix('>')?;
    Some(Box::leak(Box::new(inner)))
}

fn take_struct(text: &mut &str, depth: usize) -> Option<Type> {
    let mut fields = Vec::new();
    loop {
        if let Some(rest) = text.strip_prefix('}') {
            *text = rest;
            let names = fields.iter().map(|field: &Field| field.name);
            return are_distinct(names).then(|| Type::Struct(fields.leak()));
        }
        if !fields.is_empty() {
            *text = text.strip_prefix(", ")?;
        }
        let (name, rest) = text.split_once(": ")?;
        *text = rest;
        fields.push(Field {
            name: kept(name),
            kind: take_type(text, depth)?,
        });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WHOLE: &str = "{id: u64, at: time, owner: option<text>, parts: list<{name: text, hash: bytes<32>, price: f64}>, \
                         flags: list<bool>, wide: i128, empty: {}, raw: list<u8>, one: enum{None: {}, Pair: {0: u8, 1: text}}, \
                         map: map<text, list<u16>>} key id, at";

    #[test]
    fn what_a_schema_writes_is_read() {
        let indexes = [
            "unique owner(owner)",
            "index at_id(at, id)",
            "index raw(raw)",
        ]
        .map(str::to_owned);
        let schema = parse("things", WHOLE, &indexes).unwrap();
        assert_eq!(schema.layout_text(), WHOLE);
        let texts: Vec<_> = schema.indexes.iter().map(ToString::to_string).collect();
        assert_eq!(texts, indexes);
        assert_eq!((schema.collection, schema.is_auto), ("things", false));
        let auto = parse("a", "{auto: u64} key auto auto", &[]).unwrap();
        assert_eq!((auto.key, auto.is_auto), (["auto"].as_slice(), true));
        let plain = parse("a", "{auto: u64} key auto", &[]).unwrap();
        assert!(!plain.is_auto);
        // As many fields as a key of the derive macro can have.
        let eight =
            "{a: u8, b: u8, c: u8, d: u8, e: u8, f: u8, g: u8, h: u8} key a, b, c, d, e, f, g, h";
        assert_eq!(parse("a", eight, &[]).unwrap().key.len(), 8);
    }

    #[test]
    fn nothing_else_is() {
        for layout in [
            "",
            "{id: u64}",
            "{id: u64} key ",
            "{id: u64} key other",
            "{id: u65} key id",
            "{id: u9} key id",
            "{id: u064} key id",
            "{id: u64,} key id",
            "{id: u64 } key id",
            "{id: list<u64} key id",
            "{id: bytes<x>} key id",
            "{id: bytes<99999999>} key id",
            "{id: u64} key id, ",
            "{id: u64, id: u64} key id",
            "{id: u64, no: list<{}>} key id",
            "{id: {a: u64}} key id",
            "{id: list<u64>} key id",
            "{id: u32} key id auto",
            "{a: u64, b: u64} key a, b auto",
            "{a: u8, b: u8, c: u8, d: u8, e: u8, f: u8, g: u8, h: u8, i: u8} key a, b, c, d, e, f, g, h, i",
            "{id: enum{}} key id",
            "{id: enum{One: u8}} key id",
            "{id: enum{One: {a: u8}}} key id",
            "{id: u64, map: map<u64>} key id",
            "{id: u64, map: map<list<u64>, u64>} key id",
            "{id: u64, map: map<bytes<0>, {}>} key id",
            "{id: map<u64, u64>} key id",
            "u64 key id",
            "{id: u64} key id, id",
        ] {
            assert_eq!(parse("a", layout, &[]), Err(Unread::Layout), "{layout}");
        }
        for index in [
            "",
            "index a",
            "index a(b)",
            "unique a()",
            "other id(id)",
            "index a(id, id)",
        ] {
            let indexes = ["index right(id)".to_owned(), index.to_owned()];
            let found = parse("a", "{id: u64} key id", &indexes);
            assert_eq!(found, Err(Unread::Index(1)), "{index}");
        }
        let two = ["index a(x)", "unique a(y)"].map(str::to_owned);
        let layout = "{id: u64, x: u64, y: u64} key id";
        assert_eq!(parse("a", layout, &two), Err(Unread::SameName(1)));
        let nested = |depth: usize| {
            let (lists, ends) = ("list<".repeat(depth), ">".repeat(depth));
            let layout = format!("{{id: u64, deep: {lists}u64{ends}}} key id");
            parse("a", &layout, &[]).is_ok()
        };
        assert_eq!((nested(62), nested(63)), (true, false));
    }

    proptest! {
        #[test]
        fn no_text_does_harm(at in 0..WHOLE.len(), with in any::<Option<char>>(), text in any::<String>()) {
            parse("a", &text, std::slice::from_ref(&text)).ok();
            let changed: String = WHOLE.chars().enumerate().filter_map(|(n, c)| if n == at { with } else { Some(c) }).collect();
            if let Ok(schema) = parse("a", &changed, &[]) {
                prop_assert_eq!(schema.layout_text(), changed);
            }
        }
    }
}
