//! Checks that `docs/json.md` has every field of some JSON.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

/// The names in the backticks of the page. `a.b[].c` gives three of them.
fn documented() -> BTreeSet<String> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.md");
    let page = fs::read_to_string(page).unwrap();
    let quoted = page
        .lines()
        .flat_map(|line| line.split('`').skip(1).step_by(2));
    let names = quoted.flat_map(|text| text.split(['.', '[', ']', '{', '}', ',', ' ', '"', ':']));
    names.map(str::to_owned).collect()
}

/// The names of all fields in a value, each with where it is.
fn fields(value: &Value, at: &str, found: &mut BTreeSet<(String, String)>) {
    match value {
        // The user chooses these names.
        Value::Object(_) if at.ends_with(".env") => {}
        Value::Object(object) => {
            for (name, value) in object {
                found.insert((name.clone(), format!("{at}.{name}")));
                fields(value, &format!("{at}.{name}"), found);
            }
        }
        Value::Array(array) => {
            for value in array {
                fields(value, &format!("{at}[]"), found);
            }
        }
        _ => {}
    }
}

/// Fails if `text`, one or more JSON values, has a field that the page does not name.
#[track_caller]
pub fn assert_documented(what: &str, text: &str) {
    let mut found = BTreeSet::new();
    // Some verbs print an object for each line, others one for everything.
    for value in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
        fields(&value.unwrap(), what, &mut found);
    }
    assert!(!found.is_empty(), "{what} prints {text:?}");
    let known = documented();
    let missing = found.iter().filter(|(name, _)| !known.contains(name));
    let missing: Vec<_> = missing.map(|(_, place)| place).collect();
    assert!(missing.is_empty(), "docs/json.md lacks {missing:#?}");
}
