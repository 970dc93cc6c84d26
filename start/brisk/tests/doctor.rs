//! `brisk doctor`: a line for each finding.

mod looking;

use brisk_serve::{KernelSupport, Support};
use looking::{Place, Said, assert_help};
use serde_json::Value;

/// brisk without what the user of the tests has learned.
fn brisk(place: &Place, arguments: &[&str]) -> Said {
    let mut command = place.command(arguments);
    let output = command.env("XDG_CACHE_HOME", place.path("cache")).output();
    output.expect("brisk can be started").into()
}

#[test]
fn help() {
    assert_help("doctor");
}

#[test]
fn words_and_json_say_the_same() {
    let place = Place::new();
    let words = brisk(&place, &["doctor"]);
    let said = brisk(&place, &["doctor", "--json"]);
    assert_eq!((words.code, words.err.as_str()), (said.code, ""));
    let report: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(report["usable"], said.code == Some(0));
    let support = KernelSupport::probe();
    assert_eq!(report["kernel"], support.release.as_str());
    assert_eq!(report["page_bytes"], support.page_size);
    let findings = report["findings"].as_array().unwrap();
    for finding in findings {
        let text = |field: &str| finding[field].as_str().unwrap_or_default().to_owned();
        let star = if finding["needed"] == true { "*" } else { "" };
        let start = format!("{:<8}{}{star}", text("state"), text("name"));
        let line = words.out.lines().find(|line| line.starts_with(&start));
        let line = line.unwrap_or_else(|| panic!("no line starts with {start:?}"));
        // The disk is measured each time, so this differs.
        if text("name") != "rates of the disk" {
            assert!(line.ends_with(&text("detail")), "{line}");
        }
        // Each "no" has a cure, and nothing else has one.
        assert_eq!(finding.get("cure").is_some(), text("state") == "no");
    }
    let state = |name: &str| {
        let found = findings.iter().find(|finding| finding["name"] == name);
        found.unwrap_or_else(|| panic!("{name} is missing"))["state"].clone()
    };
    for (codec, found) in &support.codecs {
        let expected = match found {
            Support::Yes | Support::Module => "ok",
            Support::No => "no",
            Support::Unknown => "unknown",
        };
        assert_eq!(state(&format!("codec {codec}")), expected, "{codec}");
    }
    let detail = |name: &str| {
        let found = findings.iter().find(|finding| finding["name"] == name);
        found.unwrap()["detail"].as_str().unwrap().to_owned()
    };
    if let Some(decoding) = support.squashfs_decoding {
        assert_eq!(detail("squashfs decoding"), decoding.to_string());
    }
    let rates = detail("rates of the disk");
    let is_measured = rates.contains(" MB/s in reads of 1 MiB, ");
    assert!(
        is_measured || rates.starts_with("cannot measure it: "),
        "{rates}"
    );
    assert_eq!(findings.len(), 28);
}

#[test]
fn it_says_what_brisk_does_for_programs_that_it_has_learned() {
    let place = Place::new();
    // A program that reads too little.
    for _ in 0..2 {
        let started = brisk(&place, &["run", "--auto", "--", "sleep", "0.5"]);
        assert_eq!(started.code, Some(0), "{started:?}");
    }
    let list = brisk(&place, &["auto", "list"]);
    assert!(list.out.contains("/sleep, a program\n"), "{list:?}");
    let words = brisk(&place, &["doctor"]);
    let line = "no      start of sleep            it reads less than 2 MiB, so brisk cannot make it faster\n        \
                -> nothing: brisk starts it plainly\n";
    assert!(words.out.contains(line), "{words:?}");
}
