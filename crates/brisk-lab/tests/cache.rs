//! `brisk lab cache`: all figures are measured with the lab's own stores, and nothing is left behind.
//!
//! No test depends on a time.

#[path = "../../brisk/tests/staging/mod.rs"]
mod staging;

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use serde_json::Value;
use staging::documented::assert_documented;
use staging::{Stage, watched_for};

/// How long a test may take, on a slow and busy machine.
const LIMIT: Duration = Duration::from_secs(300);

#[test]
fn every_figure_is_measured_with_each_store() {
    watched_for(LIMIT, || {
        let stage = Stage::on_disk(0);
        let arguments = [
            "lab",
            "cache",
            "--out",
            "out",
            "--seed",
            "1",
            "--entries",
            "30",
            "--many",
            "500",
            "--updates",
            "20",
            "--runs",
            "1",
        ];
        let output = stage.brisk(&arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        for expected in [
            "\nOpen and first get, in a fresh process\n",
            "\nWarm gets of 1 KB, of 30 entries\n",
            "\nGets in a second by eight processes at once\n",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        let raw = fs::read_to_string(stage.path("out/cache.json")).unwrap();
        assert_documented("cache.json", &raw);
        let raw: Value = serde_json::from_str(&raw).unwrap();
        let list = |name: &str| raw[name].as_array().unwrap();
        let rows: BTreeSet<(&str, &str)> = list("rows")
            .iter()
            .map(|row| {
                (
                    row["figure"].as_str().unwrap(),
                    row["store"].as_str().unwrap(),
                )
            })
            .collect();
        let three = ["brisk", "brisk-copied", "files"];
        let mut expected = BTreeSet::new();
        for figure in ["open", "tables", "cold", "update", "durable-update"] {
            expected.extend(three.map(|store| (figure, store)));
        }
        expected.extend(three.map(|store| ("get", store)));
        expected.insert(("get", "memory"));
        for figure in ["one", "eight"] {
            expected.extend([(figure, "brisk"), (figure, "memory")]);
        }
        expected.extend([("open-many", "brisk"), ("get-many", "brisk")]);
        assert_eq!(rows, expected);
        assert_eq!(list("runs").len(), rows.len());
        for counted in list("counted") {
            let of = (
                counted["figure"].as_str().unwrap(),
                counted["store"].as_str().unwrap(),
            );
            let Some(calls) = counted["system_calls"].as_f64() else {
                assert!(raw["missing"].to_string().contains("strace"), "{raw}");
                continue;
            };
            match of {
                ("get", "brisk" | "brisk-copied" | "memory") => {
                    assert!(calls < 0.5, "{of:?}: {calls}");
                }
                ("get", "files") => assert!((3.5..9.0).contains(&calls), "{of:?}: {calls}"),
                _ => {}
            }
        }
        // A wrong name is refused before anything is made.
        let arguments = ["lab", "cache", "--out", "out", "--stores", "none"];
        let output = stage.brisk(&arguments).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(
            error.contains("--stores: found none, allowed are brisk, brisk-copied"),
            "{error}"
        );
        let entries = fs::read_dir(stage.path("out")).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["cache.json", "report.html"]);
        let page = fs::read_to_string(stage.path("out/report.html")).unwrap();
        assert!(page.contains("<h2 id=\"cache\">Caches on disk</h2>"));
    });
}
