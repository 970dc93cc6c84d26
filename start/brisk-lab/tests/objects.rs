//! `brisk lab objects`: each figure is measured with each store that can do it, a wrong run ends the experiment, and nothing is
//! left behind.
//!
//! No test depends on a time: the stores of `ways/objects.py` only claim times.

#[path = "../../brisk/tests/staging/mod.rs"]
mod staging;

use std::collections::BTreeMap;
use std::fs;
use std::process::Output;
use std::time::Duration;

use serde_json::{Value, json};
use staging::documented::assert_documented;
use staging::{Stage, watched_for};

/// How long a test may take, on a slow and busy machine.
const LIMIT: Duration = Duration::from_secs(300);

/// Where the stub of the stores is.
const STUB: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ways/objects.py");

/// A tiny experiment, with these arguments behind its own.
fn lab(stage: &Stage, more: &[&str], stub: &str) -> Output {
    let tiny = [
        "lab",
        "objects",
        "--out",
        "out",
        "--seed",
        "1",
        "--runs",
        "2",
        "--records",
        "1000",
        "--program",
        STUB,
    ];
    let arguments: Vec<&str> = tiny.iter().chain(more).copied().collect();
    stage.brisk(&arguments).env("STUB", stub).output().unwrap()
}

#[test]
fn every_figure_is_measured_with_each_store() {
    watched_for(LIMIT, || {
        let stage = Stage::on_disk(0);
        let output = lab(&stage, &[], "");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let raw = fs::read_to_string(stage.path("out/objects.json")).unwrap();
        assert_documented("objects.json", &raw);
        let raw: Value = serde_json::from_str(&raw).unwrap();
        let mut runs = BTreeMap::new();
        for run in raw["runs"].as_array().unwrap() {
            let row = &raw["rows"][run["row"].as_u64().unwrap() as usize];
            let name = |field: &str| row[field].as_str().unwrap().to_owned();
            *runs.entry((name("figure"), name("store"))).or_insert(0) += 1;
        }
        let mut expected = BTreeMap::new();
        for figure in [
            "get",
            "one-by-one",
            "one-by-one-near",
            "cold",
            "cold-many",
            "scan-keys",
            "scan-records",
            "insert-full",
            "insert-normal",
        ] {
            for store in ["brisk", "lmdb", "sqlite", "pread"] {
                let is_of_pread = ["one-by-one", "cold"]
                    .iter()
                    .any(|name| figure.starts_with(name));
                if store != "pread" || is_of_pread {
                    expected.insert((figure.to_owned(), store.to_owned()), 2);
                }
            }
        }
        assert_eq!(runs, expected);
        assert_eq!(raw["lost"], json!(0));
        for row in [
            "Get by key, at random, in one transaction, to lmdb",
            "Scan an index of 10,000 entries, without the records, to sqlite",
            "the same, again, to sqlite",
            "Get 5,000 records by key, at random, by one call, cold, to pread one by one",
            "Get 5,000 records by key, at random, one by one, all of them",
            "Insert 20,000 records with two indexes into an empty store",
            "The kernel reads ahead ",
        ] {
            assert!(text.contains(row), "{row}: {text}");
        }
        let output = stage
            .brisk(&["lab", "report", "out/objects.json", "--markdown"])
            .output()
            .unwrap();
        let tables = String::from_utf8(output.stdout).unwrap();
        for expected in [
            "| What brisk is to reach | goal | reached (95 %) |  |\n| --- | ---: | ---: | ---: |\n",
            "\n| brisk | **100.00 (100.00-100.00) ns** | 0.25",
            "\n| sqlite | 102.40 |\n",
            // 5,000 of 100 ns each, and then of 50 ns.
            "one by one, all of them | &lt;= 2 ms | 0.50 (0.50-0.50) ms | yes |\n\
             | the same, again | &lt;= 2 ms | 0.25 (0.25-0.25) ms | yes |\n",
        ] {
            assert!(tables.contains(expected), "{expected}: {tables}");
        }
        let entries = fs::read_dir(stage.path("out")).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["objects.json", "report.html"]);
        let page = fs::read_to_string(stage.path("out/report.html")).unwrap();
        assert!(page.contains("<h2 id=\"objects\">Typed records</h2>"));
    });
}

#[test]
fn wrong_runs_end_the_experiment() {
    watched_for(LIMIT, || {
        let stage = Stage::on_disk(0);
        for (more, stub, error) in [
            (&[][..], "wrong", "found 1, expected 2"),
            (
                &["--only", "none"],
                "",
                "--only: found none, allowed are brisk, lmdb, sqlite, pread",
            ),
        ] {
            let output = lab(&stage, more, stub);
            assert_eq!(output.status.code(), Some(2), "{output:?}");
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(said.contains(error), "{error}: {said}");
            let entries = fs::read_dir(stage.path("out")).unwrap();
            let left: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
            assert!(left.is_empty(), "{left:?}");
        }
    });
}
