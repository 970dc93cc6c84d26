//! `caches`: all figures are measured with each store, and nothing is left behind.
//!
//! No test depends on a time.

mod place;

use std::collections::BTreeSet;
use std::fs;

use place::Place;
use serde_json::Value;

/// The arguments of a tiny experiment.
const TINY: [&str; 10] = [
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
];

/// A figure and a store.
type Row = (String, String);

fn row(figure: &str, store: &str) -> Row {
    (figure.to_owned(), store.to_owned())
}

fn row_of(value: &Value) -> Row {
    let [figure, store] = ["figure", "store"].map(|name| value[name].as_str().unwrap());
    row(figure, store)
}

/// How many runs a row has for each of the experiment.
fn runs_for_one(figure: &str) -> usize {
    match figure {
        "open" | "open-few" | "open-many" => 10,
        "get" => 3,
        _ => 1,
    }
}

/// Checks that each of these rows has its runs, that nothing else has, and that each operation was counted.
fn assert_rows(raw: &Value, expected: &BTreeSet<Row>) {
    let list = |name: &str| raw[name].as_array().unwrap();
    let rows: BTreeSet<_> = list("rows").iter().map(row_of).collect();
    assert_eq!(&rows, expected);
    assert_eq!(raw["lost"], 0);
    for (number, setting) in list("rows").iter().enumerate() {
        let (figure, store) = row_of(setting);
        let ran = list("runs").iter().filter(|run| run["row"] == number);
        assert_eq!(ran.count(), runs_for_one(&figure), "{figure} of {store}");
    }
    let counted: BTreeSet<_> = list("counted").iter().map(row_of).collect();
    let alone = expected
        .iter()
        .filter(|(figure, _)| figure != "one" && figure != "eight");
    assert_eq!(counted, alone.cloned().collect());
    for counted in list("counted") {
        let (figure, store) = row_of(counted);
        let calls = counted["system_calls"].as_f64().unwrap();
        match (&*figure, &*store) {
            ("get", "brisk" | "brisk-copied" | "memory" | "lmdb" | "lmdb-one-txn") => {
                assert_eq!(calls, 0.0, "{store}");
            }
            // Open, ask for the length, read to the end, close.
            ("get", "files") => assert!((4.0..7.0).contains(&calls), "{calls}"),
            // Opening maps something.
            ("open", _) => assert!(calls >= 3.0, "{store}: {calls}"),
            ("update" | "durable-update", _) => assert!(calls >= 1.0, "{store}: {calls}"),
            _ => {}
        }
    }
}

/// What the lab says that it did not measure.
fn missing(raw: &Value) -> BTreeSet<&str> {
    let missing = raw["missing"].as_array().unwrap().iter();
    missing.map(|left| left["what"].as_str().unwrap()).collect()
}

/// Every figure that does not need many entries.
const EACH: [&str; 11] = [
    "open",
    "get",
    "tables",
    "again",
    "cold",
    "update",
    "durable-update",
    "one",
    "eight",
    "open-few",
    "get-few",
];

#[test]
fn every_figure_is_measured_with_each_store() {
    let place = Place::new();
    let arguments = [&TINY[..], &["--runs", "1"]].concat();
    let output = place.run(env!("CARGO_BIN_EXE_caches"), &arguments, "");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let raw = place.json("out/cache.json");
    let with_rivals = cfg!(feature = "cache-rivals");
    for expected in [
        "\nOpen and first get of 1 KB, in a fresh process\n",
        "\nWarm gets of 1 KB, of 30 entries\n",
        "\nGets of 1 KB in a second by eight processes at once\n",
        "\nGets of 64 bytes at random, of 1000 entries in memory\n",
        "\nBytes that an update of 400 bytes writes\n",
        "\nallocations of a warm get ",
        "\nsystem calls of a warm get ",
        "\nget of many, to get of few ",
        "1 runs of each (10 of open, 3 of get, 10 of open-few, 10 of open-many), in turns, on ",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let of = |store: &str, figures: &[&str]| {
        let figures = figures.iter().map(|figure| row(figure, store));
        figures.collect::<Vec<_>>()
    };
    let with_many = [&EACH[..], &["open-many", "get-many"]].concat();
    let mut expected = BTreeSet::new();
    let mut left = BTreeSet::from(["files in open-many, get-many"]);
    for store in ["brisk", "brisk-copied"] {
        expected.extend(of(store, &with_many));
    }
    expected.extend(of("files", &EACH));
    expected.extend(of("memory", &["get", "one", "eight"]));
    if with_rivals {
        for store in ["lmdb", "redb", "sqlite"] {
            expected.extend(of(store, &with_many));
        }
        expected.extend(of("cacache", &EACH));
        expected.remove(&row("durable-update", "cacache"));
        expected.extend(of("files-rkyv", &["tables", "again", "cold"]));
        let one_txn = [
            "get", "tables", "again", "one", "eight", "get-few", "get-many",
        ];
        expected.extend(of("lmdb-one-txn", &one_txn));
        left.extend([
            "cacache in durable-update",
            "cacache in open-many, get-many",
            "files-rkyv in open, get, update, durable-update, one, eight, open-few, open-many, get-few, get-many",
            "lmdb-one-txn in open, cold, update, durable-update, open-few, open-many",
        ]);
        for goal in [
            "warm get of 1 KB, to LMDB with a transaction for each",
            "warm get of 1 KB, to LMDB in one transaction",
            "get of many, to LMDB in one transaction",
        ] {
            assert!(text.contains(&format!("\n{goal} ")), "{goal}: {text}");
        }
    } else {
        left.insert("databases");
    }
    assert_rows(&raw, &expected);
    assert_eq!(missing(&raw), left);
    assert_eq!(raw["settings"]["cold"], "system");
    for counted in raw["counted"].as_array().unwrap() {
        let allocations = counted["allocations"].as_f64().unwrap();
        match row_of(counted) {
            (figure, store) if figure == "get" && store == "brisk" => {
                assert_eq!(allocations, 0.0);
            }
            (figure, store) if figure == "get" && store == "files" => {
                // A path, and the bytes.
                assert!((2.0..4.0).contains(&allocations), "{allocations}");
            }
            _ => {}
        }
    }
    // The same tables for a page.
    let tables = place.tables("out/cache.json");
    for expected in [
        "| What brisk is to reach | goal | reached (95 %) |  |\n| --- | ---: | ---: | ---: |\n",
        "| Warm gets of 1 KB, of 30 entries | median (from-to) | /brisk (95 %) | processor user+system | \
         allocations, calls |\n",
        "\n| brisk-copied | ",
        "\n* files in open-many, get-many: ",
    ] {
        assert!(tables.contains(expected), "{expected}: {tables}");
    }
    assert_eq!(place.left(), ["cache.json", "report.html"]);
    let page = fs::read_to_string(place.path("out/report.html")).unwrap();
    assert!(page.contains("<h2 id=\"cache\">Caches on disk</h2>"));
}

#[test]
fn an_unknown_store_is_refused_before_anything_is_made() {
    let place = Place::new();
    let arguments = [&TINY[..], &["--only", "none"]].concat();
    let output = place.run(env!("CARGO_BIN_EXE_caches"), &arguments, "");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains("--only: found none, allowed are brisk, brisk-copied"),
        "{error}"
    );
    assert!(place.left().is_empty(), "{:?}", place.left());
}
