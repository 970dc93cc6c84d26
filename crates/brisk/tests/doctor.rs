//! `brisk doctor`: a line for each finding.

mod looking;

use brisk_mount::{KernelSupport, Support};
use looking::{Place, assert_help};
use serde_json::Value;

#[test]
fn help() {
    assert_help("doctor");
}

#[test]
fn words_and_json_say_the_same() {
    let place = Place::new();
    let words = place.brisk(&["doctor"]);
    let said = place.brisk(&["doctor", "--json"]);
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
