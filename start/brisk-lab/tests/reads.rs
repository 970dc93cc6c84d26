//! `brisk lab reads`: all ways read the same bytes, the counts are right, and nothing is left behind.
//!
//! No test depends on a time.

mod measuring;

#[path = "../../brisk/tests/staging/mod.rs"]
mod staging;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::chown;
use std::time::Duration;

use measuring::measuring;
use serde_json::Value;
use staging::Stage;
use staging::documented::assert_documented;
use staging::memory::while_nobody_empties_memory;

/// How long a test may take, on a slow and busy machine.
const LIMIT: Duration = Duration::from_secs(300);

/// What is counted as warm must be in memory.
#[test]
fn every_reader_is_measured_and_counted() {
    for user in [0, 1000] {
        measuring(File::lock_shared, LIMIT, move || {
            while_nobody_empties_memory(|| measures_and_counts(user));
        });
    }
}

fn measures_and_counts(user: u32) {
    let stage = Stage::on_disk(user);
    chown(stage.path(""), Some(user), Some(user)).unwrap();
    let arguments = [
        "lab", "reads", "--out", "out", "--seed", "1", "--reads", "200", "--large", "1M", "--runs",
        "1", "--depth", "4",
    ];
    let output = stage.brisk(&arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    for expected in [
        "\nwarm, in order\n",
        "\ncold, at random\n",
        "\npages at random, 5 of 100 not in memory\n",
        "\ncold pages at random, 4 reads at once\n",
        "\nWhere does the time of the slow pattern go?\n",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let raw = fs::read_to_string(stage.path("out/reads.json")).unwrap();
    assert_documented("reads.json", &raw);
    let raw: Value = serde_json::from_str(&raw).unwrap();
    let list = |name: &str| raw[name].as_array().unwrap();
    let missing = raw["missing"].to_string();
    // 15 ways warm and 13 cold, each in order and at random; three mixed; two with several at once.
    let threads = list("rows")
        .iter()
        .map(|row| row["threads"].as_u64().unwrap());
    let kinds = if threads.max() == Some(1) { 1 } else { 2 };
    assert_eq!(list("rows").len(), (15 + 13) * 2 * kinds + 5);
    let lost = raw["lost"].as_u64().unwrap();
    assert_eq!(list("runs").len() as u64 + lost, list("rows").len() as u64);
    let counted: BTreeMap<&str, &Value> = list("counted")
        .iter()
        .map(|row| (row["reader"].as_str().unwrap(), row))
        .collect();
    assert_eq!(counted.len(), 15);
    for (reader, allocations, calls) in [
        ("mapping-read-at", 0.0, 0.0),
        ("async-memcpy", 0.0, 0.0),
        ("async-mapping", 0.0, 0.0),
        ("async-file", 0.0, 1.0),
        ("pread-buffer", 1.0, 1.0),
        ("seek-read", 0.0, 2.0),
    ] {
        assert_eq!(counted[reader]["allocations"], allocations, "{reader}");
        match counted[reader]["system_calls"].as_f64() {
            // Threads and clocks may add a call.
            Some(found) => assert!((found - calls).abs() < 0.1, "{reader}: {found}"),
            None => assert!(missing.contains("strace"), "{missing}"),
        }
    }
    for (row, run) in list("runs").iter().map(|run| {
        let row = usize::try_from(run["row"].as_u64().unwrap()).unwrap();
        (&list("rows")[row], run)
    }) {
        let waited = run["waited"].as_u64().unwrap();
        match row["reader"].as_str().unwrap() {
            "in-thread" | "pattern" if row["threads"] == 1 && row["what"] != "mixed" => {
                assert_eq!(waited, 200, "{row}");
            }
            // Nothing of the file is in memory at first.
            "async-file" if row["state"] == "cold" => assert!(waited > 0, "{row}"),
            _ => {}
        }
    }
    let entries = fs::read_dir(stage.path("out")).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["reads.json", "report.html"]);
    let page = fs::read_to_string(stage.path("out/report.html")).unwrap();
    assert!(page.contains("<h2 id=\"reads\">Small reads of a file</h2>"));
}
