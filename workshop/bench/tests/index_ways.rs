//! `index-ways`: each figure is measured by each way, runs that ask too often or choose wrongly end the experiment, and
//! nothing is left behind.
//!
//! No test depends on a time: the ways of `stubs/ways.py` only claim times.

mod place;

use std::collections::BTreeSet;
use std::fs;
use std::process::Output;

use place::Place;
use serde_json::{Value, json};

/// Where the stub of the ways is.
const STUB: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stubs/ways.py");

/// A page of an index with two files.
fn page(name: &str) -> String {
    let file = |file: String| {
        json!({"filename": file, "url": format!("https://files.example/{file}"), "hashes": {"sha256": "00".repeat(32)},
            "requires-python": ">=3.8"})
    };
    let files = [
        file(format!("{name}-1.0-py3-none-any.whl")),
        file(format!("{name}-2.0-py3-none-any.whl")),
    ];
    json!({"meta": {"api-version": "1.1"}, "name": name, "files": files}).to_string()
}

/// What is frozen of it.
fn frozen(name: &str) -> Value {
    let file = format!("{name}-2.0-py3-none-any.whl");
    json!({"name": name, "specifiers": ">=1", "bytes": page(name).len(), "versions": 2, "files": 2,
        "url": format!("https://files.example/{file}"), "file": file})
}

/// A place with the stub, one that counts, and frozen pages of two projects and a largest one.
fn prepared() -> Place {
    let place = Place::new();
    for name in ["ways", "ways-counted"] {
        place.install(STUB, name);
    }
    fs::create_dir(place.path("pages")).unwrap();
    for name in ["one", "two", "large"] {
        fs::write(place.path(&format!("pages/{name}.page")), page(name)).unwrap();
    }
    let list = json!({
        "brisk_index_pages": 1,
        "python": "3.12.0",
        "platform": "manylinux_2_28_x86_64",
        "packages": [frozen("one"), frozen("two")],
        "largest": frozen("large"),
        "left_out": [{"name": "other", "why": "pyindex chooses a, and the crates of uv b"}],
    });
    fs::write(place.path("pages/packages.json"), list.to_string()).unwrap();
    place
}

/// A tiny experiment, with these arguments behind its own.
fn measured(place: &Place, pages: &str, more: &[&str], stub: &str) -> Output {
    let tiny = [
        "measure",
        "--out",
        "out",
        "--seed",
        "1",
        "--runs",
        "2",
        "--packages",
        "1,5",
        "--pages",
        pages,
    ];
    let arguments: Vec<&str> = tiny.iter().chain(more).copied().collect();
    place.run(env!("CARGO_BIN_EXE_index-ways"), &arguments, stub)
}

/// The argument for the stub.
const BY_STUB: [&str; 2] = ["--program", "./ways"];

fn rows(raw: &Value) -> BTreeSet<(String, u64, String)> {
    let rows = raw["rows"].as_array().unwrap().iter();
    rows.map(|row| {
        let text = |name: &str| row[name].as_str().unwrap().to_owned();
        (
            text("figure"),
            row["packages"].as_u64().unwrap(),
            text("way"),
        )
    })
    .collect()
}

#[test]
fn every_figure_is_measured_by_each_way() {
    let place = prepared();
    let output = measured(&place, "pages", &BY_STUB, "");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let raw = place.json("out/index.json");
    let mut expected = BTreeSet::new();
    for way in ["brisk", "parsed", "uv-client"] {
        for figure in ["warm", "stale", "miss"] {
            expected.extend([1, 5].map(|packages| (figure.to_owned(), packages, way.to_owned())));
        }
        expected.insert(("largest".to_owned(), 1, way.to_owned()));
    }
    assert_eq!(rows(&raw), expected);
    assert_eq!(raw["runs"].as_array().unwrap().len(), 2 * expected.len());
    assert_eq!((&raw["lost"], &raw["missing"]), (&json!(0), &json!([])));
    for counted in raw["counted"].as_array().unwrap() {
        let row = &raw["rows"][counted["row"].as_u64().unwrap() as usize];
        assert_eq!(counted["allocations"], 2.5);
        let page = page("one").len() as f64;
        let written = match row["figure"].as_str().unwrap() {
            "stale" => 5.0,
            "miss" => page,
            _ => 0.0,
        };
        assert_eq!(counted["written"], written, "{row}");
    }
    let whats = raw["stored"].as_array().unwrap().iter();
    let whats = whats.map(|stored| {
        (
            stored["what"].as_str().unwrap(),
            stored["packages"].as_u64().unwrap(),
        )
    });
    let expected = [("fresh", 5), ("stale", 5), ("largest", 1)];
    assert_eq!(whats.collect::<Vec<_>>(), [expected; 3].concat());
    for line in [
        "\nWarm, 5 packages: open, decide, choose a file of each\n",
        "\nThe page of large (0.0 MB, 2 files), warm: open, decide, choose a file\n",
        "\nother is in no run: pyindex chooses a, and the crates of uv b.",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let verdict = |goal: &str| {
        let line = text.lines().find(|line| line.starts_with(goal)).unwrap();
        line.split_ascii_whitespace().last().unwrap().to_owned()
    };
    // 1/80 is below 0.05 and above 0.01.
    assert_eq!(
        verdict("5 warm packages: open, decide, choose, to uv-client"),
        "yes"
    );
    assert_eq!(
        verdict("the largest page: hit to chosen file, to uv-client"),
        "no"
    );
    assert_eq!(
        verdict("bytes on the disk, the same packages, to uv-client"),
        "no"
    );
    assert_eq!(verdict("allocations for each warm package"), "no");
    // `parsed` claims 160 ms, uv-client 80 and brisk 1.
    let published = "warm, times faster";
    let line = text
        .lines()
        .find(|line| line.starts_with(published))
        .unwrap();
    let cells: Vec<_> = line.split_ascii_whitespace().rev().take(2).collect();
    assert_eq!(cells, ["160.00", "2.00"]);
    // The same tables for a page.
    let tables = place.tables("out/index.json");
    for expected in [
        "| What brisk is to reach | goal | reached (95 %) |  |\n| --- | ---: | ---: | ---: |\n",
        "| Stale, 5 packages: the same, and the index says that each page holds | median (from-to) | /uv-client",
        "\n| brisk | **1.00 (1.00-1.00) ms** | 0.0125",
    ] {
        assert!(tables.contains(expected), "{expected}: {tables}");
    }
    assert_eq!(place.left(), ["index.json", "report.html"]);
    let page = fs::read_to_string(place.path("out/report.html")).unwrap();
    assert!(page.contains("<h2 id=\"index\">Package indexes</h2>"));
}

#[test]
fn wrong_runs_end_the_experiment() {
    let place = prepared();
    for (more, stub, error) in [
        (
            &["--figures", "warm"][..],
            "asks",
            " (Fresh, 1 packages): the index sent 0 pages and said of 1 that they hold, expected are 0 and 0",
        ),
        (
            &[],
            "wrong",
            "brisk: found none, expected one-2.0-py3-none-any.whl",
        ),
        (
            &["--only", "none"],
            "",
            "--only: found none, allowed are brisk, parsed, uv-client",
        ),
    ] {
        let more = [&BY_STUB, more].concat();
        let output = measured(&place, "pages", &more, stub);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(error), "{error}: {said}");
        let left = place.left().into_iter();
        let left: Vec<_> = left.filter(|name| name != "index.json").collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
#[cfg(feature = "index-ways")]
fn the_ways_choose_the_same_files() {
    use std::process::{Command, Stdio};

    let place = prepared();
    // It freezes what the stub serves.
    let mut index = Command::new(place.path("ways"))
        .args(["serve", "pages"])
        .current_dir(place.path(""))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut port = String::new();
    let said = index.stdout.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(said), &mut port).unwrap();
    fs::write(place.path("requirements.txt"), "# two\none>=1\nTwo<2\n").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_index-ways"))
        .args([
            "pages",
            "--requirements",
            "requirements.txt",
            "--largest",
            "large",
            "--out",
            "frozen",
        ])
        .arg("--index-url")
        .arg(format!("http://127.0.0.1:{}/0/simple/", port.trim()))
        .current_dir(place.path(""))
        .output()
        .unwrap();
    drop(index.stdin.take());
    index.wait().unwrap();
    assert!(output.status.success(), "{output:?}");
    let list = place.json("frozen/packages.json");
    let mut chosen: Vec<_> = list["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|page| page["file"].as_str().unwrap())
        .collect();
    chosen.sort();
    assert_eq!(
        chosen,
        ["one-2.0-py3-none-any.whl", "two-1.0-py3-none-any.whl"]
    );
    assert_eq!(list["left_out"], json!([]));

    let output = measured(&place, "frozen", &[], "");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let raw = place.json("out/index.json");
    let named = rows(&raw).into_iter().map(|(_, _, way)| way);
    let expected = [
        "brisk",
        "parsed",
        "policy-only",
        "rkyv-file",
        "sqlite",
        "uv-client",
    ];
    assert_eq!(
        named.collect::<BTreeSet<_>>(),
        expected.map(str::to_owned).into()
    );
    assert_eq!(raw["missing"], json!([]));
    for counted in raw["counted"].as_array().unwrap() {
        assert!(
            counted["allocations"].is_number() && counted["written"].is_number(),
            "{counted}"
        );
    }
}
