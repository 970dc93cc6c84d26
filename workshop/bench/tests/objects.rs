//! `objects`: each figure is measured with each store that can do it, a wrong run ends the experiment, and nothing is left
//! behind.
//!
//! No test depends on a time: the stores of `stubs/objects.py` only claim times.

mod place;

use std::collections::BTreeMap;
use std::fs;
use std::process::Output;

use place::Place;
use serde_json::{Value, json};

/// Where the stub of the stores is.
const STUB: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stubs/objects.py");

/// A tiny experiment, with these arguments behind its own.
fn measured(place: &Place, more: &[&str], stub: &str) -> Output {
    let tiny = [
        "--out",
        "out",
        "--seed",
        "1",
        "--runs",
        "2",
        "--records",
        "1000",
    ];
    let arguments: Vec<&str> = tiny.iter().chain(more).copied().collect();
    place.run(env!("CARGO_BIN_EXE_objects"), &arguments, stub)
}

/// How many runs each store has in each figure.
fn runs(raw: &Value) -> BTreeMap<(String, String), u32> {
    let mut runs = BTreeMap::new();
    for run in raw["runs"].as_array().unwrap() {
        let row = &raw["rows"][run["row"].as_u64().unwrap() as usize];
        let name = |field: &str| row[field].as_str().unwrap().to_owned();
        *runs.entry((name("figure"), name("store"))).or_insert(0) += 1;
    }
    runs
}

const FIGURES: [&str; 9] = [
    "get",
    "one-by-one",
    "one-by-one-near",
    "cold",
    "cold-many",
    "scan-keys",
    "scan-records",
    "insert-full",
    "insert-normal",
];

#[test]
fn every_figure_is_measured_with_each_store() {
    let place = Place::new();
    let output = measured(&place, &["--program", STUB], "");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let raw = place.json("out/objects.json");
    let mut expected = BTreeMap::new();
    for figure in FIGURES {
        for store in ["brisk", "lmdb", "sqlite", "pread"] {
            let is_of_pread = ["one-by-one", "cold"]
                .iter()
                .any(|name| figure.starts_with(name));
            if store != "pread" || is_of_pread {
                expected.insert((figure.to_owned(), store.to_owned()), 2);
            }
        }
    }
    assert_eq!(runs(&raw), expected);
    assert_eq!(raw["lost"], json!(0));
    assert_eq!(raw["brisk"], brisk_lab::VERSION);
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
    let tables = place.tables("out/objects.json");
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
    assert_eq!(place.left(), ["objects.json", "report.html"]);
    let page = fs::read_to_string(place.path("out/report.html")).unwrap();
    assert!(page.contains("<h2 id=\"objects\">Typed records</h2>"));
}

#[test]
fn wrong_runs_end_the_experiment() {
    let place = Place::new();
    for (more, stub, error) in [
        (&[][..], "wrong", "found 1, expected 2"),
        (
            &["--only", "none"],
            "",
            "--only: found none, allowed are brisk, lmdb, sqlite, pread",
        ),
    ] {
        let more = [&["--program", STUB], more].concat();
        let output = measured(&place, &more, stub);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(error), "{error}: {said}");
        assert!(place.left().is_empty(), "{:?}", place.left());
    }
}

#[test]
fn the_stores_themselves_read_what_they_were_given() {
    // The last one does the same as the one before, ten times as often.
    let figures = &FIGURES[..8];
    let place = Place::new();
    let output = measured(&place, &["--figures", &figures.join(",")], "");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let raw = place.json("out/objects.json");
    let mut stores = vec!["pread"];
    if cfg!(feature = "object-stores") {
        stores.extend(["brisk", "brisk-async", "lmdb", "heed", "sqlite", "redb"]);
        stores.push("native-db");
    }
    let mut expected = BTreeMap::new();
    for store in stores {
        for &figure in figures {
            let can = match (store, figure) {
                ("pread", _) => figure.starts_with("one-by-one") || figure.starts_with("cold"),
                ("native-db" | "brisk-async", "scan-keys") | ("brisk-async", "get") => false,
                _ => true,
            };
            if can {
                expected.insert((figure.to_owned(), store.to_owned()), 2);
            }
        }
    }
    assert_eq!(runs(&raw), expected);
}
