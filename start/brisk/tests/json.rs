//! `docs/json.md` says what verbs print without a session. The tests of sessions, of caches, of databases and of the labs
//! compare theirs.

#[path = "staging/documented.rs"]
mod documented;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use documented::assert_documented;

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
    for (section, arguments) in [
        ("pack and repack", "pack app -o a.img --profile p -q"),
        (
            "pack and repack",
            "repack a.img -o b.img --codec lz4 -q --verity",
        ),
        ("verity", "verity a.img -q"),
        ("publish", "publish a.img cache -q"),
        ("ls", "ls -R a.img"),
        ("info", "info a.img"),
        ("info", "info b.img"),
        ("diff", "diff a.img cache"),
        ("verify", "verify a.img -q --rebuild"),
        ("extract", "extract a.img out -q"),
        ("hot", "hot app --profile p -o h -q"),
        ("verify", "verify a.img -q --hot h"),
        ("profile show", "profile show p"),
        ("profile show", "profile show p app"),
        ("profile check", "profile check p app"),
        ("profile diff", "profile diff p q"),
        ("replay", "replay p"),
        ("replay", "warm p"),
        ("warm of an image or a directory", "warm app"),
        ("warm of an image or a directory", "warm a.img"),
        ("doctor", "doctor"),
    ] {
        assert_documented(section, &brisk(arguments));
    }
}

/// The sections of what verbs print, and not of what the labs write.
fn of_verbs() -> documented::Sections {
    let is_of_lab = |heading: &str| heading.ends_with(".json") || heading == documented::OF_LABS;
    let mut sections = documented::sections();
    sections.retain(|heading, _| !is_of_lab(heading));
    sections
}

#[test]
fn one_name_has_one_type_and_one_unit() {
    let mut known: BTreeMap<String, (String, String)> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (section, fields) in of_verbs() {
        for field in &fields {
            let (name, kind) = (field.name(), field.kind.as_str());
            let place = format!("{section}: {}, {kind}", field.path);
            let unit = match name {
                "block_size" | "dict_size" => "bytes",
                _ if name.ends_with("_hex") => "text",
                _ if name.ends_with("_us") => "microseconds",
                _ if name.ends_with("_ns") => "nanoseconds",
                _ if name.split('_').any(|word| word == "seconds") => "seconds",
                _ if name.split('_').any(|word| word == "bytes") => "bytes",
                _ => "",
            };
            let units = ["bytes", "seconds", "microseconds", "nanoseconds"];
            if (units.contains(&kind) || !unit.is_empty()) && kind != unit {
                wrong.push(format!("{place}, by its name {unit:?}"));
            }
            // An object groups fields, such as pages by what became of them.
            if kind == "object" {
                continue;
            }
            let (before, other) = known
                .entry(name.to_owned())
                .or_insert((kind.to_owned(), place.clone()));
            if before != kind && !kind.is_empty() && !before.is_empty() {
                wrong.push(format!("{place}, but {other}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The text of all tests in Rust below a directory.
fn tests_below(directory: &Path) -> String {
    let entries = fs::read_dir(directory).unwrap();
    let texts = entries.map(|entry| match entry.unwrap().path() {
        path if path.is_dir() => tests_below(&path),
        path if path.extension().is_some_and(|end| end == "rs") => {
            fs::read_to_string(path).unwrap()
        }
        _ => String::new(),
    });
    texts.collect()
}

#[test]
fn a_test_compares_each_section() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let tests = [
        "start/brisk",
        "start/brisk-fetch",
        "keep/brisk-db",
        "start/brisk-lab",
    ];
    let tests = tests.map(|name| tests_below(&crates.join(name).join("tests")));
    let headings = documented::sections().into_keys();
    let headings = headings.filter(|heading| heading != documented::OF_LABS);
    let named = |heading: &String| {
        tests
            .iter()
            .any(|text| text.contains(&format!("{heading:?},")))
    };
    let without: Vec<_> = headings.filter(|heading| !named(heading)).collect();
    assert!(without.is_empty(), "no test compares {without:?}");
}

/// What `--help` says of the verb with this path, and of those below it.
fn helps(verb: &str, found: &mut Vec<(String, String)>) {
    let output = Command::new(env!("CARGO_BIN_EXE_brisk"))
        .args(verb.split_whitespace())
        .arg("--help")
        .output()
        .unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    // The first help lists the verbs of each person.
    let is_start = |line: &str| line == "Commands:" || line.starts_with("I start");
    let below = help.lines().skip_while(|line| !is_start(line));
    let below = below.take_while(|line| *line != "Options:");
    let names = below.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    // The sections of labs are named after their files.
    for name in names.filter(|name| !["", "help", "lab"].contains(name)) {
        helps(&format!("{verb} {name}"), found);
    }
    found.push((verb.trim().to_owned(), help));
}

#[test]
fn each_verb_that_prints_json_has_a_section() {
    let mut verbs = Vec::new();
    helps("", &mut verbs);
    verbs.retain(|(_, help)| help.contains("--json"));
    assert!(verbs.len() > 20, "{verbs:#?}");
    let sections = documented::sections();
    let is_section = |verb: &str| {
        let verb = format!(" {verb} ");
        let mut headings = sections.keys();
        headings.any(|heading| format!(" {heading} ").contains(&verb))
    };
    let without: Vec<_> = verbs
        .iter()
        .filter(|(verb, _)| !is_section(verb))
        .map(|(verb, _)| verb)
        .collect();
    assert!(without.is_empty(), "docs/json.md lacks {without:?}");
}
