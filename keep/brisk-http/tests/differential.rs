//! brisk-http and the crate `http-cache-semantics` decide alike, or their difference has a judgement.
//!
//! `testdata/differential.txt` has a case of each kind of difference, with both verdicts and the judgement.
//! `docs/conformance.md` lists the kinds.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

#[path = "support/differential.rs"]
mod support;

use proptest::prelude::*;
use support::{KINDS, Scenario, Verdict, explain};

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn every_kind_has_a_case_and_every_case_its_verdicts() {
    let text = read("testdata/differential.txt");
    let mut missing: BTreeSet<&str> = KINDS.iter().map(|kind| kind.name).collect();
    let mut wrong = Vec::new();
    let cases = text
        .split("\n\n")
        .filter(|case| !case.trim_start().starts_with('#'));
    for case in cases {
        let (name, rest) = case.trim_start().split_once('\n').expect("a name");
        let (scenario, _) = rest.split_once("brisk: ").expect("verdicts");
        let scenario = Scenario::parse(scenario).unwrap_or_else(|| panic!("{name}: no scenario"));
        let (brisk, peer) = (scenario.brisk(), scenario.peer());
        let found = explain(&scenario);
        if found.as_deref() != Ok(&[name]) {
            wrong.push(format!("{name}: it is of the kinds {found:?}"));
        }
        let kind = KINDS.iter().find(|kind| kind.name == name);
        let right = kind.map_or_else(String::new, |kind| {
            format!("{}, by {}", kind.right, kind.section())
        });
        let expected = format!("{scenario}brisk: {brisk}\npeer: {peer}\nright: {right}");
        if rest.trim_end() != expected {
            wrong.push(format!("{name}: it must be\n{expected}\n"));
        }
        missing.remove(name);
    }
    wrong.extend(missing.iter().map(|name| format!("{name}: no case")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The page tells what is right, and by which section.
#[test]
fn the_page_lists_the_kinds() {
    let page = read("../../docs/conformance.md");
    let listed: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("| `"))
        .collect();
    let row = |kind: &support::Kind| {
        format!(
            "| `{}` | {} | {} | {} |",
            kind.name,
            kind.reason,
            kind.right,
            kind.section()
        )
    };
    let missing: Vec<String> = KINDS
        .iter()
        .map(row)
        .filter(|row| !listed.contains(&row.as_str()))
        .collect();
    assert!(
        missing.is_empty(),
        "docs/conformance.md lacks:\n{}",
        missing.join("\n")
    );
}

/// An age that has no room makes the peer panic. [`Scenario::peer`] says so without trying.
#[test]
fn the_peer_panics_where_it_is_said_to() {
    let text = "private\n> GET\n< 200\n< age: 18446744073709551615\nafter 1\n>> GET";
    let scenario = Scenario::parse(text).unwrap();
    assert_eq!(scenario.peer(), Verdict::Panics);
    assert!(std::panic::catch_unwind(|| scenario.peer_alone()).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn differences_have_a_judgement(choices in prop::collection::vec(any::<u16>(), 0..120)) {
        let mut choices = choices.into_iter();
        let scenario = Scenario::made(|below| usize::from(choices.next().unwrap_or(0)) % below);
        let (brisk, peer) = (scenario.brisk(), scenario.peer());
        let explained = explain(&scenario);
        prop_assert!(explained.is_ok(), "{explained:?}\n{scenario}brisk: {brisk}\npeer: {peer}");
        // The text of a case says all of it.
        prop_assert_eq!(Scenario::parse(&scenario.to_string()), Some(scenario));
    }
}
