//! Keys as a shell takes them.

use anyhow::{Context, bail};
use brisk_objects::{Plain, Schema, Type};
use serde_json::Value;

use crate::record_json::{self, Shown};

/// The value of a type that a word says: a text as it is, and what JSON has in quotes without them.
pub(crate) fn parse_word(kind: &Type, word: &str) -> Result<Plain, record_json::Wrong> {
    let value = match (kind, word) {
        (Type::Option(_), "null") => Value::Null,
        (Type::Option(Type::Option(_)) | Type::Struct(_) | Type::Map(..), _) => json(word),
        (Type::Enum(_), _) if word.starts_with('{') => json(word),
        (Type::Option(Type::Text), _) if word.starts_with('"') => json(word),
        (Type::Option(inner), _) => {
            let value = parse_word(inner, word)?;
            return Ok(Plain::Option(Some(value.into())));
        }
        (Type::Bool, "true" | "false") => Value::Bool(word == "true"),
        (Type::List(inner), _) if **inner != Type::Unsigned(1) => json(word),
        _ => Value::String(word.to_owned()),
    };
    record_json::parse(kind, &value)
}

/// What a word says as JSON, or the word as a text, which an error then names.
fn json(word: &str) -> Value {
    serde_json::from_str(word).unwrap_or_else(|_| Value::String(word.to_owned()))
}

/// A value as a word that is read as the same one.
fn word(kind: &Type, value: &Plain) -> String {
    match (kind, value) {
        (Type::Text, Plain::Text(text)) => text.clone(),
        (Type::Option(Type::Option(_)), _) => text(kind, value),
        (Type::Option(Type::Text), Plain::Option(Some(inner))) => match &**inner {
            Plain::Text(plain) if plain == "null" || plain.starts_with('"') => text(kind, value),
            inner => word(&Type::Text, inner),
        },
        (Type::Option(inner), Plain::Option(Some(value))) => word(inner, value),
        _ => text(kind, value).trim_matches('"').to_owned(),
    }
}

fn text(kind: &Type, value: &Plain) -> String {
    // Writing to a string cannot fail.
    serde_json::to_string(&Shown { kind, value }).unwrap_or_default()
}

/// A key as a word: that of its one part, or a JSON array.
pub(crate) fn shown_key(schema: &Schema, key: &[Plain]) -> String {
    match (schema.types_of(schema.key).as_slice(), key) {
        ([kind], [value]) => word(kind, value),
        _ => json_key(schema, key),
    }
}

/// A key as a JSON array.
pub(crate) fn json_key(schema: &Schema, key: &[Plain]) -> String {
    let kinds = schema.types_of(schema.key);
    let parts = kinds.iter().zip(key).map(|(kind, value)| text(kind, value));
    format!("[{}]", parts.collect::<Vec<_>>().join(","))
}

/// The first parts of a key with these fields. `what` names where the words come from.
pub(crate) fn parse_key(
    schema: &Schema,
    fields: &[&str],
    words: &[String],
    what: &str,
) -> anyhow::Result<Vec<Plain>> {
    let kinds = schema.types_of(fields);
    let has_several = kinds.len() > 1;
    let parts: Vec<Result<Plain, record_json::Wrong>> = match words {
        [word] if has_several && word.starts_with('[') => {
            let values: Vec<Value> = serde_json::from_str(word)
                .with_context(|| format!("{what}: {word} is no JSON array"))?;
            if values.len() > kinds.len() {
                bail!(too_many(schema, fields, what, values.len()));
            }
            let pairs = kinds.iter().zip(&values);
            pairs
                .map(|(kind, value)| record_json::parse(kind, value))
                .collect()
        }
        words => {
            if words.len() > kinds.len() {
                bail!(too_many(schema, fields, what, words.len()));
            }
            let pairs = kinds.iter().zip(words);
            pairs.map(|(kind, word)| parse_word(kind, word)).collect()
        }
    };
    let named = fields.iter().zip(parts);
    named
        .map(|(field, part)| part.with_context(|| format!("{what}: {field}")))
        .collect()
}

/// A whole key.
pub(crate) fn parse_whole_key(
    schema: &Schema,
    words: &[String],
    what: &str,
) -> anyhow::Result<Vec<Plain>> {
    let key = parse_key(schema, schema.key, words, what)?;
    if key.len() < schema.key.len() {
        bail!(
            "{what}: found {}, but the key of {} is {}",
            brisk_terminal::messages::count(parts_len(&key), "part", "parts"),
            schema.collection,
            fields_in_words(schema, schema.key)
        );
    }
    Ok(key)
}

fn parts_len(key: &[Plain]) -> u64 {
    u64::try_from(key.len()).unwrap_or(u64::MAX)
}

fn too_many(schema: &Schema, fields: &[&str], what: &str, found: usize) -> String {
    format!(
        "{what}: found {found} parts, allowed is {}",
        fields_in_words(schema, fields)
    )
}

/// Fields and their types.
pub(crate) fn fields_in_words(schema: &Schema, fields: &[&str]) -> String {
    let pairs = fields.iter().zip(schema.types_of(fields));
    let words: Vec<_> = pairs
        .map(|(name, kind)| format!("{name}: {kind}"))
        .collect();
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTION: Type = Type::Option(&Type::Text);

    #[test]
    fn words_are_read_as_they_are_shown() {
        let some = |text: &str| Plain::Option(Some(Plain::Text(text.to_owned()).into()));
        for (kind, value, expected) in [
            (Type::Text, Plain::Text("a \"b\"".to_owned()), "a \"b\""),
            (Type::Unsigned(4), Plain::Unsigned(7), "7"),
            (Type::Unsigned(16), Plain::Unsigned(7), "7"),
            (Type::Signed(8), Plain::Signed(-7), "-7"),
            (Type::Bool, Plain::Bool(true), "true"),
            (Type::Float(8), Plain::Float64(1.5), "1.5"),
            (Type::Float(8), Plain::Float64(f64::INFINITY), "inf"),
            (Type::Time, Plain::Time(5, 0), "1970-01-01T00:00:05Z"),
            (Type::Array(2), Plain::Bytes(vec![1, 2]), "0102"),
            (OPTION, Plain::Option(None), "null"),
            (OPTION, some("a"), "a"),
            (OPTION, some("null"), "\"null\""),
            (OPTION, some("\"a"), "\"\\\"a\""),
            (
                Type::Option(&OPTION),
                Plain::Option(Some(some("a").into())),
                "[\"a\"]",
            ),
            (
                Type::Option(&Type::Time),
                Plain::Option(Some(Plain::Time(5, 0).into())),
                "1970-01-01T00:00:05Z",
            ),
        ] {
            assert_eq!(word(&kind, &value), expected);
            assert_eq!(parse_word(&kind, expected), Ok(value), "{expected}");
        }
        assert_eq!(
            parse_word(&Type::Unsigned(1), "x").unwrap_err().to_string(),
            "found \"x\", allowed is a whole number from 0 to 255"
        );
    }
}
