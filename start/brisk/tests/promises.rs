//! The pages that promise something name the tests that hold it. These tests exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The pages that name tests.
const PAGES: [&str; 2] = ["docs/reliability.md", "SECURITY.md"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The source files below a directory.
fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("it has one");
        if path.is_dir() && name != "target" {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// The names of all tests in a source: functions with an attribute `test`.
fn tests_of(text: &str) -> impl Iterator<Item = &str> {
    let mut is_test = false;
    text.lines().filter_map(move |line| {
        let line = line.trim_start();
        if line.starts_with("#[") {
            is_test |= line.starts_with("#[test]") || line.contains("::test");
            return None;
        }
        let function = line
            .strip_prefix("async fn ")
            .or_else(|| line.strip_prefix("fn "));
        let name = function.filter(|_| is_test)?.split(['(', '<']).next();
        is_test = false;
        name
    })
}

/// What a page has in backticks.
fn quoted(page: &str) -> impl Iterator<Item = &str> {
    page.split('`').skip(1).step_by(2)
}

/// Whether it looks like the name of a test: words of small letters, with at least two underscores.
fn names_a_test(text: &str) -> bool {
    let is_of_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    text.chars().all(is_of_name) && text.matches('_').count() >= 2
}

#[test]
fn each_test_that_a_page_names_exists() {
    let root = root();
    let mut files = Vec::new();
    for directory in ["ground", "start", "keep", "workshop"] {
        sources(&root.join(directory), &mut files);
    }
    let texts: Vec<_> = files
        .iter()
        .map(|path| fs::read_to_string(path).expect("UTF-8"))
        .collect();
    let tests: BTreeSet<&str> = texts.iter().flat_map(|text| tests_of(text)).collect();
    let mut missing = BTreeMap::new();
    for page in PAGES {
        let text = fs::read_to_string(root.join(page)).expect("a page");
        let named: Vec<&str> = quoted(&text).filter(|text| names_a_test(text)).collect();
        assert!(named.len() > 10, "{page} names {} tests", named.len());
        let gone: Vec<_> = named
            .into_iter()
            .filter(|name| !tests.contains(name))
            .map(str::to_owned)
            .collect();
        if !gone.is_empty() {
            missing.insert(page, gone);
        }
    }
    assert!(missing.is_empty(), "no test has these names: {missing:?}");
}

#[test]
fn each_source_that_a_page_names_exists() {
    let root = root();
    for page in PAGES {
        let text = fs::read_to_string(root.join(page)).expect("a page");
        let families = ["ground/", "start/", "keep/", "workshop/"];
        let sources = |text: &&str| families.iter().any(|family| text.starts_with(family));
        for path in quoted(&text).filter(sources) {
            assert!(root.join(path).exists(), "{page} names {path}");
        }
    }
}
