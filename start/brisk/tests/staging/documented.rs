//! Compares JSON with its section of `docs/json.md`.
//!
//! A section is a heading with the tables below it that have the columns `field`, `type`, `meaning` and `null or absent`.
//! The page is the contract: a printed field that the section lacks is a failure, and so is a value of another type, a
//! missing field, and a null that the section does not allow.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Map, Value};

/// A field of a section.
#[derive(Debug, Clone)]
pub struct Field {
    /// Where it is: `a.b[].c`, and `[].a` if the whole is an array. A step in capitals stands for any name.
    pub path: String,
    /// The singular of what the column says, such as `text`.
    pub kind: String,
    /// What the last column says.
    lacks: String,
    /// The sections that the row refers to.
    sees: Vec<String>,
}

/// The sections of the page with fields, by their headings without backticks.
pub type Sections = BTreeMap<String, Vec<Field>>;

/// The section that all files of the labs share.
pub const OF_LABS: &str = "What the files of the labs have in common";

/// Reads the page.
pub fn sections() -> Sections {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.md");
    let page = fs::read_to_string(page).unwrap();
    let mut sections = Sections::new();
    let (mut heading, mut prefix) = (String::new(), None);
    let (mut paragraph, mut is_over) = (String::new(), true);
    for line in page.lines() {
        if line.starts_with('#') {
            heading = line.trim_start_matches('#').trim().replace('`', "");
            prefix = None;
            paragraph.clear();
        } else if line.starts_with("| field | type |") {
            // "A run, in `runs[]`:"
            let place = paragraph.split_once(", in `");
            let place = place.and_then(|(_, place)| place.split_once('`'));
            prefix = Some(place.map_or(String::new(), |(place, _)| format!("{place}.")));
            paragraph.clear();
        } else if let (Some(prefix), true) = (&prefix, line.starts_with("| ")) {
            let fields = sections.entry(heading.clone()).or_default();
            fields.extend(fields_of(line, prefix));
        } else if line.is_empty() {
            (prefix, is_over) = (None, true);
        } else if !line.starts_with('|') {
            prefix = None;
            if is_over {
                paragraph.clear();
            }
            paragraph += line;
            is_over = false;
        }
    }
    let common = sections[OF_LABS].clone();
    for (_, fields) in sections
        .iter_mut()
        .filter(|(heading, _)| heading.ends_with(".json"))
    {
        fields.extend(common.iter().cloned());
    }
    sections
}

/// The fields of a row. If it names several, those without a dot are beside the first.
fn fields_of(row: &str, prefix: &str) -> Vec<Field> {
    let cells: Vec<_> = row.split('|').map(str::trim).collect();
    let [_, names, kinds, meaning, lacks, _] = *cells else {
        panic!("a row of docs/json.md has other columns: {row}");
    };
    let names: Vec<_> = names.split('`').skip(1).step_by(2).collect();
    let beside = names[0].rsplit_once('.').map(|(parent, _)| parent);
    let each_kind: Vec<_> = kinds.split(", ").collect();
    let sees = [meaning, lacks].into_iter().flat_map(|cell| {
        let links = cell.split("](#").skip(1);
        links.filter_map(|link| Some(link.split_once(')')?.0.to_owned()))
    });
    let sees: Vec<_> = sees.collect();
    let numbered = names.iter().enumerate();
    let fields = numbered.map(|(number, name)| {
        let path = match beside {
            Some(beside) if number > 0 && !name.contains('.') => format!("{beside}.{name}"),
            _ => (*name).to_owned(),
        };
        let kind = match each_kind.len() == names.len() {
            true => each_kind[number],
            false => kinds,
        };
        Field {
            path: format!("{prefix}{path}"),
            kind: singular(kind).to_owned(),
            lacks: lacks.to_owned(),
            sees: sees.clone(),
        }
    });
    fields.collect()
}

fn singular(kind: &str) -> &str {
    match kind {
        "texts" | "integers" | "booleans" | "numbers" | "times" | "objects" | "ranges" => {
            kind.trim_end_matches('s')
        }
        _ => kind,
    }
}

impl Field {
    /// The name without what is before it, and with the brackets of an array.
    pub fn name(&self) -> &str {
        self.path
            .rsplit_once('.')
            .map_or(&self.path, |(_, name)| name)
    }

    fn may_be_null(&self) -> bool {
        self.lacks.contains("null") || self.lacks.starts_with("as ")
    }

    fn may_be_absent(&self) -> bool {
        let starts = ["as ", "only "].map(|start| self.lacks.starts_with(start));
        self.lacks.contains("absent") || starts.contains(&true)
    }

    /// Whether a value may be there.
    fn is_of(&self, value: &Value) -> bool {
        match self.kind.as_str() {
            "text" | "range" => value.is_string(),
            "boolean" => value.is_boolean(),
            "object" | "map" => value.is_object(),
            "number" | "seconds" => value.is_number(),
            "integer" | "bytes" | "KiB" | "time" | "microseconds" | "nanoseconds" => {
                value.is_u64() || value.is_i64()
            }
            "text or object" => value.is_string() || value.is_object(),
            // The meaning says what it is.
            "" => true,
            other => panic!("docs/json.md has the type {other:?}, for {}", self.path),
        }
    }

    /// Whether only the program's user knows what is in it.
    fn is_free(&self) -> bool {
        matches!(self.kind.as_str(), "map" | "text or object" | "") && self.sees.is_empty()
    }
}

fn is_any_name(step: &str) -> bool {
    !step.is_empty() && step.chars().all(char::is_uppercase)
}

/// Whether a path of the page is this one.
fn is_path(documented: &str, path: &str) -> bool {
    let (mut documented, mut path) = (documented.split('.'), path.split('.'));
    loop {
        match (documented.next(), path.next()) {
            (None, None) => return true,
            (Some(any), Some(_)) if is_any_name(any) => {}
            (Some(one), Some(other)) if one == other => {}
            _ => return false,
        }
    }
}

/// Whether a path of the page is below this one.
fn is_below(documented: &str, path: &str) -> bool {
    documented.match_indices(['.', '[']).any(|(end, _)| {
        documented
            .get(..end)
            .is_some_and(|start| is_path(start, path))
    })
}

/// The heading's anchor in a link.
fn anchor(heading: &str) -> String {
    let known = heading
        .chars()
        .filter(|c| c.is_alphanumeric() || "- ".contains(*c));
    known.collect::<String>().to_lowercase().replace(' ', "-")
}

/// Compares values with the fields of a section.
struct Comparison<'a> {
    sections: &'a Sections,
    fields: &'a [Field],
    /// Whether all fields of the section have to be there.
    whole: bool,
    wrong: Vec<String>,
}

impl Comparison<'_> {
    fn object(&mut self, object: &Map<String, Value>, at: &str) {
        for (name, value) in object {
            let path = match at {
                "" => name.clone(),
                _ => format!("{at}.{name}"),
            };
            self.value(value, &path);
        }
        let children = self
            .fields
            .iter()
            .filter(|field| match field.path.rsplit_once('.') {
                Some((parent, _)) => is_path(parent, at),
                None => at.is_empty(),
            });
        for field in children.filter(|field| self.whole && !field.may_be_absent()) {
            let name = field.name().trim_end_matches("[]");
            if !object.contains_key(name) && !is_any_name(name) {
                self.wrong.push(format!("{} is absent", field.path));
            }
        }
    }

    fn value(&mut self, value: &Value, path: &str) {
        let field = self
            .fields
            .iter()
            .find(|field| is_path(&field.path, path))
            .or_else(|| {
                // An array may be null as a whole.
                let of_array = format!("{path}[]");
                let mut fields = self.fields.iter();
                fields.find(|field| value.is_null() && is_path(&field.path, &of_array))
            });
        let mut below = self
            .fields
            .iter()
            .filter(|field| is_below(&field.path, path))
            .peekable();
        let is_parent = below.peek().is_some();
        if value.is_null() {
            let name = path.rsplit(['.', ']']).next().unwrap_or(path);
            let said = format!("`{name}` is null");
            if !field.is_some_and(Field::may_be_null)
                && !below.any(|field| field.lacks.contains(&said))
            {
                self.wrong.push(format!("{path} is null"));
            }
            return;
        }
        match field {
            Some(field) if !field.is_of(value) && !value.is_array() => {
                let kind = &field.kind;
                self.wrong.push(format!("{path} is {value}, and no {kind}"));
                return;
            }
            Some(field) if field.is_free() => return,
            Some(field) if !is_parent && !field.sees.is_empty() && !value.is_string() => {
                return self.elsewhere(field, value, path);
            }
            None if !is_parent => {
                self.wrong.push(format!("{path} is not in the section"));
                return;
            }
            _ => {}
        }
        match value {
            Value::Object(object) if is_parent => self.object(object, path),
            Value::Object(_) => self
                .wrong
                .push(format!("{path} has fields that are not in it")),
            Value::Array(values) => {
                for value in values {
                    self.value(value, &format!("{path}[]"));
                }
            }
            _ if field.is_none() => self.wrong.push(format!("{path} is {value}, and no object")),
            _ => {}
        }
    }

    /// Compares with the section that the field refers to: its fields of the same place, or else all of it.
    fn elsewhere(&mut self, field: &Field, value: &Value, path: &str) {
        let found = self
            .sections
            .iter()
            .find(|(heading, _)| field.sees.contains(&anchor(heading)));
        let Some((_, fields)) = found else {
            return;
        };
        let mut there = Comparison {
            sections: self.sections,
            fields,
            whole: false,
            wrong: Vec::new(),
        };
        let is_same_place = fields.iter().any(|known| is_below(&known.path, path));
        match value {
            Value::Object(object) if !is_same_place => there.object(object, ""),
            Value::Object(_) | Value::Array(_) if is_same_place => there.value(value, path),
            _ => {}
        }
        self.wrong.append(&mut there.wrong);
    }
}

/// Fails unless `text`, one or more JSON values, is what this section of the page says.
#[track_caller]
pub fn assert_documented(section: &str, text: &str) {
    let sections = sections();
    let fields = sections.get(section);
    let fields = fields.unwrap_or_else(|| panic!("docs/json.md has no section {section}"));
    let mut comparison = Comparison {
        sections: &sections,
        fields,
        whole: true,
        wrong: Vec::new(),
    };
    let mut values = 0;
    // Some verbs print an object for each line, others one for everything.
    for value in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
        values += 1;
        match value.unwrap() {
            Value::Object(object) => comparison.object(&object, ""),
            Value::Array(array) => {
                for value in &array {
                    let object = value.as_object().expect("an array of objects");
                    comparison.object(object, "[]");
                }
            }
            other => panic!("{section} prints {other}"),
        }
    }
    assert!(values > 0, "{section} prints {text:?}");
    comparison.wrong.sort();
    comparison.wrong.dedup();
    let wrong = comparison.wrong;
    assert!(
        wrong.is_empty(),
        "{section} and docs/json.md differ: {wrong:#?}"
    );
}
