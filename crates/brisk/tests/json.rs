//! `docs/json.md` has every field that brisk prints and writes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn documents() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// The names in the backticks of the page: of `a.b[].c` all three.
fn documented() -> BTreeSet<String> {
    let page = fs::read_to_string(documents().join("json.md")).unwrap();
    let quoted = page
        .lines()
        .flat_map(|line| line.split('`').skip(1).step_by(2));
    let names = quoted.flat_map(|text| text.split(['.', '[', ']', '{', '}', ',', ' ', '"', ':']));
    names.map(str::to_owned).collect()
}

/// The names of all fields in a value, each with where it is.
fn fields(value: &Value, at: &str, found: &mut BTreeSet<(String, String)>) {
    match value {
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

#[track_caller]
fn assert_documented(what: &str, text: &str) {
    let mut found = BTreeSet::new();
    // Some print an object for each line, and others one for all.
    for value in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
        fields(&value.unwrap(), what, &mut found);
    }
    assert!(!found.is_empty(), "{what} prints {text:?}");
    let known = documented();
    let missing = found.iter().filter(|(name, _)| !known.contains(name));
    let missing: Vec<_> = missing.map(|(_, place)| place).collect();
    assert!(missing.is_empty(), "docs/json.md lacks {missing:#?}");
}

#[test]
fn every_field_that_verbs_print_without_a_session_is_documented() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::create_dir_all(path("app/data")).unwrap();
    fs::write(path("app/data/big"), vec![7; 70 * 4096]).unwrap();
    fs::write(path("app/data/odd \u{9b}"), "odd").unwrap();
    std::os::unix::fs::symlink("data/big", path("app/link")).unwrap();
    fs::create_dir(path("cache")).unwrap();
    let text = format!(
        r#"{{"brisk_profile": 1, "brisk": "0.1.0", "command": ["bin/app"], "runs": 1,
"roots": [["{}", "directory"]], "files": [[0, "data/big", {}, null], [0, "data/none", 1, null]],
"directories": [[0, "data"]],
"steps": [["found", 0, "big", 0, 1], ["pages", 0, 3, 30, 1, 1], ["absent", 0, "bigger", 3, 1]]}}"#,
        path("app").display(),
        70 * 4096
    );
    fs::write(path("q"), text.replace("3, 30", "3, 9")).unwrap();
    fs::write(path("p"), text).unwrap();
    let brisk = |arguments: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_brisk"))
            .args(arguments.split(' '))
            .arg("--json")
            .current_dir(&directory)
            .env("XDG_RUNTIME_DIR", directory.path())
            .env("XDG_CACHE_HOME", path("cache"))
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() < Some(2), "{arguments}: {error}");
        String::from_utf8(output.stdout).unwrap()
    };
    for arguments in [
        "pack app -o a.img --profile p -q",
        "repack a.img -o b.img --codec lz4 -q",
        "ls -R a.img",
        "info a.img",
        "diff a.img cache",
        "verify a.img -q",
        "extract a.img out -q",
        "hot app --profile p -o h -q",
        "profile show p",
        "profile show p app",
        "profile check p app",
        "profile diff p q",
        "replay p",
        "warm app",
        "warm a.img",
        "doctor",
    ] {
        assert_documented(arguments, &brisk(arguments));
    }
}

#[test]
fn every_field_that_labs_write_is_documented() {
    for run in [
        "2026-11-23-launches-full-javac.json",
        "2026-11-23-load-amd-250m.json",
        "2026-11-23-reads-amd-block-on.json",
    ] {
        let text = fs::read_to_string(documents().join("runs").join(run)).unwrap();
        assert_documented(run, &text);
    }
}
