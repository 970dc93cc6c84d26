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
    auto, cache, diff, doctor, extract, hot, info, ls, pack, profile, publish, push, remote,
    replay, stat, verify, verity, warm,
};

/// What each verb prints.
fn types() -> Vec<(&'static str, Value)> {
    vec![
        ("pack and repack", schema::<pack::PackJson<'_>>()),
        ("verity", schema::<verity::VerityJson<'_>>()),
        ("publish", schema::<publish::PublishJson<'_>>()),
        ("push", schema::<push::PushJson<'_>>()),
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
        (
            "remote list and remote status",
            schema::<remote::EntryJson<'_>>(),
        ),
        ("remote gc", schema::<remote::GcJson>()),
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
    /// Its doc comments: several, if it is in several variants of an enum.
    docs: Vec<&'a str>,
    may_be_absent: bool,
    /// The variants of an enum that have it, with the texts that tell them from the others. Empty for a field of a struct.
    variants: Vec<Option<&'a str>>,
}

/// The fields of an object: those that are always there in the order of the type, then the others by name. The bytes of a
/// name are behind the name.
fn fields(object: &Value) -> Vec<Field<'_>> {
    let required = object["required"].as_array().into_iter().flatten();
    let required: Vec<_> = required.filter_map(Value::as_str).collect();
    let properties = object["properties"].as_object().into_iter().flatten();
    let properties = properties.map(|(name, schema)| Field {
        name,
        schema,
        docs: schema["description"].as_str().into_iter().collect(),
        may_be_absent: !required.contains(&name.as_str()),
        variants: Vec::new(),
    });
    let mut found: Vec<_> = properties.collect();
    found.sort_by_key(|field| {
        let base = field.name.strip_suffix("_hex").unwrap_or(field.name);
        let at = required.iter().position(|known| *known == base);
        (at.unwrap_or(usize::MAX), field.name)
    });
    let variants: Vec<_> = variants(object).into_iter().map(fields).collect();
    let always = |name: &str| {
        let is_field = |field: &Field<'_>| field.name == name && !field.may_be_absent;
        variants.iter().all(|fields| fields.iter().any(is_field))
    };
    for variant in &variants {
        let mut texts = variant.iter().map(|field| field.schema["const"].as_str());
        let text = texts.find(Option::is_some).flatten();
        for Field {
            name, schema, docs, ..
        } in variant
        {
            if !found.iter().any(|known| known.name == *name) {
                found.push(Field {
                    name,
                    schema,
                    docs: Vec::new(),
                    may_be_absent: !always(name),
                    variants: Vec::new(),
                });
            }
            for known in found.iter_mut().filter(|known| known.name == *name) {
                known.variants.push(text);
                known.docs.extend(docs);
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
    match (&schema["type"], &variants(schema)[..]) {
        (_, [one, other]) if is_null(other) => (one, true),
        (Value::Array(types), _) => (schema, types.iter().any(|known| known == "null")),
        _ => (schema, false),
    }
}

/// The type as JSON has it. Empty if there are several.
fn plain_type(schema: &Value) -> &str {
    match &schema["type"] {
        Value::String(one) => one,
        // The other one is null.
        Value::Array(types) => types.first().and_then(Value::as_str).unwrap_or(""),
        _ => {
            let variants = variants(schema);
            let types: BTreeSet<_> = variants.into_iter().map(plain_type).collect();
            types.first().filter(|_| types.len() == 1).unwrap_or(&"")
        }
    }
}

/// The type in words, with the unit that the name says. An array has several.
fn kind(name: &str, schema: &Value, is_array: bool) -> &'static str {
    let has = |word: &str| name.split('_').any(|known| known == word);
    let kinds = match plain_type(schema) {
        "string" => ["text", "texts"],
        "boolean" => ["boolean", "booleans"],
        "object" => ["object", "objects"],
        "integer" | "number" if has("seconds") => ["seconds"; 2],
        "integer" if has("us") => ["microseconds"; 2],
        "integer" if has("ns") => ["nanoseconds"; 2],
        "integer" if has("bytes") || ["block_size", "dict_size"].contains(&name) => ["bytes"; 2],
        "integer" if TIMES.contains(&name) => ["time", "times"],
        "integer" => ["integer", "integers"],
        "number" => ["number", "numbers"],
        _ => [""; 2],
    };
    kinds[usize::from(is_array)]
}

/// The texts that a value can have.
fn values(schema: &Value) -> Vec<&str> {
    let listed = schema["enum"].as_array().into_iter().flatten();
    let all = listed.chain(schema.get("const"));
    let below = variants(schema).into_iter().flat_map(values);
    all.filter_map(Value::as_str).chain(below).collect()
}

fn quoted<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let texts = texts.into_iter().map(|text| format!("`{text}`"));
    texts.collect::<Vec<_>>().join(", ")
}

/// A sentence as a cell of a table: in one line, without the capital and the period.
fn cell(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = text.strip_suffix('.').unwrap_or(&text);
    let mut letters = text.chars();
    let first = letters.next().unwrap_or_default();
    match letters.as_str().starts_with(char::is_uppercase) {
        true => text.to_owned(),
        false => first.to_lowercase().chain(letters).collect(),
    }
}

/// When a field is null or absent, by a doc comment.
fn is_when(text: &&str) -> bool {
    ["Null", "Absent", "Only"]
        .iter()
        .any(|word| text.starts_with(word))
}

/// What the field means, and when it is null or absent.
fn words(field: &Field<'_>, siblings: &[Field<'_>]) -> (String, String) {
    if let Some(of) = field.name.strip_suffix("_hex") {
        let base = siblings.iter().find(|known| known.name == of);
        let base = base.unwrap_or_else(|| panic!("{} is of no name", field.name));
        let word = if field.may_be_absent {
            "absent"
        } else {
            "null"
        };
        let or = match (base.may_be_absent, without_null(base.schema).1) {
            (true, _) => "absent or ",
            (_, true) => "null or ",
            _ => "",
        };
        let when = format!("{word} if `{of}` is {or}UTF-8");
        return ("its bytes in hexadecimal".to_owned(), when);
    }
    let texts = || quoted(field.variants.iter().flatten().copied());
    if field.schema["const"].is_string() {
        return (format!("one of {}", texts()), String::new());
    }
    let paragraphs = field.docs.iter().flat_map(|doc| doc.split("\n\n"));
    let (when, meaning): (Vec<_>, Vec<_>) = paragraphs.partition(is_when);
    let mut meaning: Vec<_> = meaning.into_iter().map(cell).collect();
    meaning.dedup();
    let when = match when.first() {
        Some(when) => cell(when),
        None if !field.may_be_absent || field.variants.is_empty() => String::new(),
        None if texts().is_empty() => "absent for others".to_owned(),
        None => format!("only for {}", texts()),
    };
    (meaning.join("; "), when)
}

/// Adds the rows of an object, which is at `path`.
fn add_rows(table: &mut Vec<String>, path: &str, object: &Value) {
    let fields = fields(object);
    for field in &fields {
        let (schema, is_nullable) = without_null(field.schema);
        let is_array = plain_type(schema) == "array";
        let (schema, brackets) = match is_array {
            true => (&schema["items"], "[]"),
            false => (schema, ""),
        };
        let at = format!("{path}{}{brackets}", field.name);
        let (mut meaning, when) = words(field, &fields);
        let values = values(schema);
        if !values.is_empty() && schema.get("const").is_none() {
            meaning = format!("{meaning}: {}", quoted(values));
        }
        assert!(!meaning.is_empty(), "{at} has no doc comment");
        let says_absent = when.contains("absent") || when.starts_with("only ");
        assert!(
            says_absent || !field.may_be_absent,
            "{at}: when is it absent? {when:?}"
        );
        let says_null = when.contains("null");
        assert!(
            says_null || field.may_be_absent || !is_nullable,
            "{at}: when is it null? {when:?}"
        );
        let may_lack = field.may_be_absent || is_nullable;
        assert!(
            when.is_empty() || may_lack,
            "{at} is always there: {when:?}"
        );
        let kind = kind(field.name, schema, is_array);
        let row = format!("| `{at}` | {kind} | {meaning} | {when} |");
        table.push(row.replace("|  |", "| |"));
        add_rows(table, &format!("{at}."), schema);
        add_rows(
            table,
            &format!("{at}.NAME."),
            &schema["additionalProperties"],
        );
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
