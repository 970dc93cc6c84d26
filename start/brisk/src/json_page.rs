//! The tables of `docs/json.md` with a line `<!-- fields of VERB -->` before them are what the types of the verbs say.
//!
//! After an intended change, write them again and look at the difference:
//!
//! ```text
//! BRISK_WRITE_JSON=1 cargo test -p brisk --lib json_page; git diff docs/json.md
//! ```
//!
//! The doc comment of a field is its meaning. If the field can be null or absent, its last paragraph says when, and begins
//! with that word or with "Only". Names that end in `_hex` need no comment. Units follow from names.

use std::collections::BTreeSet;

use brisk_image::hot_pack::Audit;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::verbs::{
    auto, cache, diff, doctor, extract, hot, info, ls, pack, profile, replay, stat, verify, verity,
    warm,
};

/// What each verb prints.
fn types() -> Vec<(&'static str, Value)> {
    vec![
        ("pack and repack", schema::<pack::PackJson<'_>>()),
        ("verity", schema::<verity::VerityJson<'_>>()),
        ("ls", schema::<ls::EntryJson<'_>>()),
        ("extract", schema::<extract::ExtractJson<'_>>()),
        ("info", schema::<info::InfoJson<'_>>()),
        ("diff", schema::<diff::DiffJson<'_>>()),
        ("verify", schema::<verify::VerifyJson>()),
        ("hot", schema::<hot::HotJson<'_>>()),
        ("profile show", schema::<profile::ShowJson<'_>>()),
        ("profile check", schema::<profile::CheckJson<'_>>()),
        ("profile diff", schema::<profile::DiffJson>()),
        ("run --audit", schema::<Audit>()),
        ("replay", schema::<replay::ReplayJson>()),
        (
            "warm of an image or a directory",
            schema::<warm::WarmJson>(),
        ),
        ("auto list", schema::<auto::ListJson<'_>>()),
        ("cache ls", schema::<cache::ls::EntryJson<'_>>()),
        ("cache get", schema::<cache::get::GetJson<'_>>()),
        ("cache stat", schema::<cache::stat::StatJson<'_>>()),
        (
            "cache stat of an old cache",
            schema::<cache::stat::OldCodeCacheJson<'_>>(),
        ),
        ("cache explain", schema::<cache::explain::ExplainJson<'_>>()),
        ("cache verify", schema::<cache::verify::VerifyJson<'_>>()),
        (
            "cache prune and cache clear",
            schema::<cache::prune::PruneJson>(),
        ),
        ("stat", schema::<Vec<stat::SessionJson<'_>>>()),
        ("doctor", schema::<doctor::DoctorJson>()),
    ]
}

fn schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let settings = settings.with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<T>().into()
}

/// Names of moments, in seconds since 1970.
const TIMES: [&str; 5] = ["made", "mtime", "written", "last_used", "since"];

/// A field of an object.
struct Field<'a> {
    name: &'a str,
    schema: &'a Value,
    /// What its doc comments say: several, if it is in several variants of an enum.
    described: Vec<&'a str>,
    may_be_absent: bool,
    /// The texts by which the variants are known that have it.
    only_for: Vec<&'a str>,
}

/// The fields of an object: those that are always there in the order of the type, then the others by name. The bytes of a
/// name are behind the name.
fn fields(object: &Value) -> Vec<Field<'_>> {
    let mut found: Vec<Field<'_>> = Vec::new();
    let required = object["required"].as_array().into_iter().flatten();
    let required: Vec<_> = required.filter_map(Value::as_str).collect();
    let properties = object["properties"].as_object().into_iter().flatten();
    for (name, schema) in properties {
        found.push(Field {
            name,
            schema,
            described: schema["description"].as_str().into_iter().collect(),
            may_be_absent: !required.contains(&name.as_str()),
            only_for: Vec::new(),
        });
    }
    let place = |name: &str| {
        let base = name.strip_suffix("_hex").unwrap_or(name);
        let at = required.iter().position(|known| *known == base);
        (at.unwrap_or(usize::MAX), name.to_owned())
    };
    found.sort_by_key(|field| place(field.name));
    // Each variant of an enum has fields of its own.
    let variants = variants(object);
    for variant in &variants {
        let own = fields(variant);
        let mut texts = own
            .iter()
            .filter_map(|field| field.schema["const"].as_str());
        let known_by = texts.next();
        for mut field in own {
            let is_there = |variant: &&Value| {
                fields(variant)
                    .iter()
                    .any(|known| known.name == field.name && !known.may_be_absent)
            };
            field.may_be_absent = !variants.iter().all(is_there);
            field.only_for.extend(known_by);
            match found.iter_mut().find(|known| known.name == field.name) {
                None => found.push(field),
                Some(known) => {
                    known.only_for.extend(known_by);
                    let new = field.described.into_iter();
                    let new: Vec<_> = new.filter(|text| !known.described.contains(text)).collect();
                    known.described.extend(new);
                }
            }
        }
    }
    found
}

fn variants(schema: &Value) -> Vec<&Value> {
    let listed = ["oneOf", "anyOf"].map(|key| schema[key].as_array());
    listed.into_iter().flatten().flatten().collect()
}

/// The schema without null, and whether there was null.
fn without_null(schema: &Value) -> (&Value, bool) {
    let is_null = |schema: &Value| schema["type"] == "null";
    for key in ["anyOf", "oneOf"] {
        if let Some([one, other]) = schema[key].as_array().map(Vec::as_slice)
            && is_null(other)
        {
            return (one, true);
        }
    }
    let types = schema["type"].as_array();
    let has_null = types.is_some_and(|types| types.iter().any(|known| known == "null"));
    (schema, has_null)
}

/// The type as JSON has it. Empty if there are several.
fn plain_type(schema: &Value) -> &str {
    let of = |schema: &Value| match &schema["type"] {
        Value::String(one) => Some(one.clone()),
        Value::Array(several) => {
            let mut others = several.iter().filter(|known| *known != "null");
            match (others.next(), others.next()) {
                (Some(Value::String(one)), None) => Some(one.clone()),
                _ => None,
            }
        }
        _ => None,
    };
    let known = |text: &str| {
        let types = ["string", "integer", "number", "boolean", "object", "array"];
        types.into_iter().find(|known| *known == text).unwrap_or("")
    };
    if let Some(one) = of(schema) {
        return known(&one);
    }
    let variants: BTreeSet<_> = variants(schema).into_iter().map(plain_type).collect();
    match variants.len() {
        1 => variants.into_iter().next().unwrap_or(""),
        _ => "",
    }
}

/// The type in words, with the unit that the name says.
fn kind(name: &str, schema: &Value) -> &'static str {
    let words = |word: &str| name.split('_').any(|known| known == word);
    match plain_type(schema) {
        "string" => "text",
        "boolean" => "boolean",
        "object" => "object",
        "integer" | "number" if words("seconds") => "seconds",
        "integer" if name.ends_with("_us") => "microseconds",
        "integer" if name.ends_with("_ns") => "nanoseconds",
        "integer" if words("bytes") || ["block_size", "dict_size"].contains(&name) => "bytes",
        "integer" if TIMES.contains(&name) => "time",
        "integer" => "integer",
        "number" => "number",
        _ => "",
    }
}

/// The texts that a value can have.
fn values(schema: &Value) -> Vec<String> {
    let listed = schema["enum"].as_array().into_iter().flatten();
    let all = listed.chain(schema.get("const"));
    let own = all.filter_map(Value::as_str);
    let mut texts: Vec<_> = own.map(|text| format!("`{text}`")).collect();
    texts.extend(variants(schema).into_iter().flat_map(values));
    texts
}

/// A sentence as a cell of a table: in one line, without the capital and the period.
fn cell(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = text.strip_suffix('.').unwrap_or(&text);
    let mut letters = text.chars();
    let first = letters.next().unwrap_or_default();
    let is_name = text.chars().nth(1).is_some_and(char::is_uppercase);
    match is_name {
        true => text.to_owned(),
        false => first.to_lowercase().chain(letters).collect(),
    }
}

/// Adds the rows of an object, which is at `path`.
fn add_rows(table: &mut Vec<String>, path: &str, object: &Value) {
    for field in fields(object) {
        let name = field.name;
        let (mut schema, is_nullable) = without_null(field.schema);
        let says_when = |text: &&str| {
            ["Null", "Absent", "Only "]
                .iter()
                .any(|word| text.starts_with(word))
        };
        let paragraphs = field.described.iter().flat_map(|text| text.split("\n\n"));
        let (when, what): (Vec<_>, Vec<_>) = paragraphs.partition(says_when);
        let mut when = when.first().map(|text| cell(text)).unwrap_or_default();
        let mut meaning = what.into_iter().map(cell).collect::<Vec<_>>().join("; ");
        let texts: Vec<_> = field
            .only_for
            .iter()
            .map(|text| format!("`{text}`"))
            .collect();
        if field.schema["const"].is_string() {
            meaning = format!("one of {}", texts.join(", "));
        } else if field.may_be_absent && when.is_empty() && !name.ends_with("_hex") {
            when = match texts.is_empty() {
                true => "absent for others".to_owned(),
                false => format!("only for {}", texts.join(", ")),
            };
        }
        let mut at = format!("{path}{name}");
        let mut many = "";
        if plain_type(schema) == "array" {
            schema = &schema["items"];
            at.push_str("[]");
            many = "s";
        }
        let kind = kind(name, schema);
        if let Some(of) = name.strip_suffix("_hex") {
            let siblings = fields(object);
            let base = siblings.iter().find(|known| known.name == of);
            let base = base.unwrap_or_else(|| panic!("{at} is of no name"));
            let base = match (base.may_be_absent, without_null(base.schema).1) {
                (true, _) => format!("`{of}` is absent or UTF-8"),
                (_, true) => format!("`{of}` is null or UTF-8"),
                _ => format!("`{of}` is UTF-8"),
            };
            let word = if is_nullable && !field.may_be_absent {
                "null"
            } else {
                "absent"
            };
            "its bytes in hexadecimal".clone_into(&mut meaning);
            when = format!("{word} if {base}");
        }
        let listed = values(schema);
        if !listed.is_empty() && field.schema.get("const").is_none() {
            meaning = format!("{meaning}: {}", listed.join(", "));
        }
        assert!(!meaning.is_empty(), "{at} has no doc comment");
        let says_absent = when.contains("absent") || when.starts_with("only ");
        assert_eq!(says_absent, field.may_be_absent, "{at}: absent? {when:?}");
        if !field.may_be_absent {
            assert_eq!(when.contains("null"), is_nullable, "{at}: null? {when:?}");
        }
        let many = if ["bytes", "seconds", ""].contains(&kind) {
            ""
        } else {
            many
        };
        table
            .push(format!("| `{at}` | {kind}{many} | {meaning} | {when} |").replace("|  |", "| |"));
        add_rows(table, &format!("{at}."), schema);
        let named = &schema["additionalProperties"];
        if named.is_object() {
            add_rows(table, &format!("{at}.NAME."), named);
        }
    }
}

#[test]
fn the_page_is_what_the_types_say() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.md");
    let page = std::fs::read_to_string(path).unwrap();
    let mut new = page.clone();
    for (verb, schema) in types() {
        let mut table = vec![
            "| field | type | meaning | null or absent |".to_owned(),
            "|---|---|---|---|".to_owned(),
        ];
        match plain_type(&schema) {
            "array" => add_rows(&mut table, "[].", &schema["items"]),
            _ => add_rows(&mut table, "", &schema),
        }
        let marker = format!("<!-- fields of {verb} -->\n\n");
        let (before, after) = new
            .split_once(&marker)
            .unwrap_or_else(|| panic!("the page lacks {marker:?}"));
        let (_, after) = after.split_once("\n\n").unwrap_or_default();
        new = format!("{before}{marker}{}\n\n{after}", table.join("\n"));
    }
    let markers = new.matches("<!-- fields of ").count();
    assert_eq!(markers, types().len(), "the page has tables of no type");
    if std::env::var_os("BRISK_WRITE_JSON").is_some() {
        std::fs::write(path, &new).unwrap();
    }
    assert!(
        page == new,
        "docs/json.md is not what the types say; if that is meant, write it anew as the head of src/json_page.rs says"
    );
}
