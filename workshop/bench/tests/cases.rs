//! The published cases of workshop/README.md: their published runs hold the bounds, and a run that has lost the case does not.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn checked(case: &str, raw: &Path) -> Output {
    let mut command = Command::new(root().join("workshop/lab/case"));
    command.arg(case).arg(raw).output().unwrap()
}

/// Checks a published run, and the same run after a change.
fn check(case: &str, published: &str, lost: &str, change: impl Fn(&mut Value)) {
    let raw = root().join("docs/runs").join(published);
    let holds = checked(case, &raw);
    assert_eq!(holds.status.code(), Some(0), "{holds:?}");
    let text = Command::new("gzip").arg("-dc").arg(raw).output().unwrap();
    let mut raw = serde_json::from_slice(&text.stdout).unwrap();
    change(&mut raw);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("raw.json");
    std::fs::write(&path, raw.to_string()).unwrap();
    let broken = checked(case, &path);
    assert_eq!(broken.status.code(), Some(1), "{broken:?}");
    let said = String::from_utf8(broken.stdout).unwrap();
    let lines: Vec<_> = said
        .lines()
        .filter(|line| line.contains("BROKEN"))
        .collect();
    assert_eq!(lines.len(), 1, "{said}");
    assert!(lines[0].trim_start().starts_with(lost), "{said}");
}

/// Makes a number so many times as large.
fn enlarge(value: &mut Value, times: f64) {
    *value = json!(value.as_f64().unwrap() * times);
}

#[test]
fn loading_as_slowly_as_reading_is_found() {
    let published = "2026-11-23-load-amd.json.gz";
    check("leyden", published, "warm: load, to reading: ", |raw| {
        let cases = raw["cases"].clone();
        for run in raw["runs"].as_array_mut().unwrap() {
            let case = usize::try_from(run["case"].as_u64().unwrap()).unwrap();
            if run["way"] == "chosen" && cases[case]["state"] == "warm" {
                enlarge(&mut run["exit_seconds"], 4.0);
            }
        }
    });
}

#[test]
fn a_slow_hit_is_found() {
    let published = "2026-11-26-together-index.json.gz";
    check(
        "uv",
        published,
        "1750 warm packages, to uv-client: ",
        |raw| {
            let rows = raw["rows"].clone();
            for run in raw["runs"].as_array_mut().unwrap() {
                let row = usize::try_from(run["row"].as_u64().unwrap()).unwrap();
                if rows[row]["way"] == "brisk" {
                    enlarge(&mut run["values"]["ns"], 2.0);
                }
            }
        },
    );
}

#[test]
fn a_slow_launch_is_found() {
    let published = "2026-11-22-launches-full-chromium.json.gz";
    check(
        "squashfs",
        published,
        "brisk-speed, to the directory: ",
        |raw| {
            for row in raw["apps"][0]["rows"].as_array_mut().unwrap() {
                if row["format"] == "brisk-speed" {
                    enlarge(&mut row["cold"]["seconds"]["median"], 2.0);
                }
            }
        },
    );
}

#[test]
fn slow_asynchronous_reads_are_found() {
    let published = "2026-11-26-reads-2.json.gz";
    check("siaqodb", published, "async-file, to pread: ", |raw| {
        let rows = raw["rows"].clone();
        for run in raw["runs"].as_array_mut().unwrap() {
            let row = usize::try_from(run["row"].as_u64().unwrap()).unwrap();
            if rows[row]["reader"] == "async-file" {
                enlarge(&mut run["nanoseconds"], 2.0);
            }
        }
    });
}
