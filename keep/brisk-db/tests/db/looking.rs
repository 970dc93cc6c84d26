//! `info`, `ls`, `get` and `query`.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::documented::assert_documented;
use crate::ledger::{Ledger, open};

#[test]
fn info_says_what_a_database_has() {
    let ledger = Ledger::new();
    let shown = ledger.stdout(&["info", "ledger.db"]);
    assert_eq!(shown, INFO);
    // A program that has it open is a reader.
    let db = open(&ledger.path("ledger.db"));
    let snapshot = db.snapshot().unwrap();
    let shown = ledger.stdout(&["info", "ledger.db"]);
    let expected = format!(
        "  readers        1 of 1024 places\n                 process {} reads the state of transaction 2\n",
        std::process::id()
    );
    assert!(shown.contains(&expected), "{shown}");
    let shown = ledger.stdout(&["info", "ledger.db", "--json"]);
    assert_documented("db info", &shown);
    drop(snapshot);
    let info: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(info["readers"][0]["pid"], std::process::id());
    assert_eq!(info["readers"][0]["alive"], true);
    assert_eq!(info["readers"][0]["transaction"], 2);
    assert_eq!(info["collections"][0]["records"], 5);
    assert_eq!(
        info["collections"][0]["indexes"][1]["name"],
        "customer_cents"
    );
    assert_eq!(
        info["collections"][1]["key"],
        serde_json::json!(["region", "number"])
    );
    assert_eq!(info["unreadable"], serde_json::json!([]));
}

/// Does nothing, unless `info_tells_killed_readers` starts it as another process.
#[test]
fn as_a_reader() {
    let Some(path) = std::env::var_os("BRISK_DB_TEST_READS") else {
        return;
    };
    let db = open(Path::new(&path));
    let snapshot = db.snapshot().unwrap();
    println!("it reads");
    std::thread::sleep(Duration::from_secs(3600));
    drop(snapshot);
}

#[test]
fn info_tells_killed_readers() {
    let ledger = Ledger::new();
    let mut reader = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "looking::as_a_reader", "--nocapture"])
        .env("BRISK_DB_TEST_READS", ledger.path("ledger.db"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(reader.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("it reads")));
    reader.kill().unwrap();
    reader.wait().unwrap();
    let shown = ledger.stdout(&["info", "ledger.db"]);
    let expected = "  readers        1 of 1024 places, 1 of killed processes, which the next program takes back\n";
    assert!(shown.contains(expected), "{shown}");
    // If nobody has the file open, opening it takes the place back.
    assert!(
        ledger
            .stdout(&["info", "ledger.db"])
            .contains("  readers        0 of 1024 places\n")
    );
}

const INFO: &str = "\
ledger.db: a database of brisk-objects, format 1
  file           49152 bytes, of at most 67108864
  pages          12 of 4096 bytes, 6 of them with entries
  transactions   2
  readers        0 of 1024 places

invoices: 5 records on 1 page, 1 level
  layout         9c38d0e39c930743
  key            id, automatic, next 6
  fields         id: u64
                 customer: text
                 number: option<text>
                 cents: i64
                 at: time
                 lines: list<{text: text, count: u16, discount: option<f32>}>
  index          index customer(customer): 5 entries on 1 page, 1 level
  index          index customer_cents(customer, cents): 5 entries on 1 page, 1 level
  index          unique number(number): 5 entries on 1 page, 1 level

places: 3 records on 1 page, 1 level
  layout         63943daed9b3349d
  key            region, number
  fields         region: text
                 number: i32
                 uuid: bytes<16>
                 hash: bytes<4>
                 raw: list<u8>
                 huge: u128
                 rate: f64
                 first: {text: text, count: u16, discount: option<f32>}
                 open: bool
";

#[test]
fn ls_lists_collections_and_keys() {
    let ledger = Ledger::new();
    assert_eq!(
        ledger.stdout(&["ls", "ledger.db"]),
        "invoices                     5\nplaces                       3\n"
    );
    let shown = ledger.stdout(&["ls", "ledger.db", "--json"]);
    assert_documented("db ls", &shown);
    assert_eq!(
        shown,
        "{\"collection\":\"invoices\",\"records\":5}\n{\"collection\":\"places\",\"records\":3}\n"
    );
    assert_eq!(
        ledger.stdout(&["ls", "ledger.db", "invoices"]),
        "1\n2\n3\n4\n5\n"
    );
    assert_eq!(
        ledger.stdout(&["ls", "ledger.db", "invoices", "--json", "--limit", "2"]),
        "[1]\n[2]\n"
    );
    assert_eq!(
        ledger.stdout(&["ls", "ledger.db", "places"]),
        "[\"north\",-3]\n[\"north\",4]\n[\"so\",1]\n"
    );
    assert_eq!(
        ledger.failure(&["ls", "ledger.db", "bills"]),
        "brisk: there is no collection bills; there are invoices, places\n"
    );
}

#[test]
fn get_prints_one_record() {
    let ledger = Ledger::new();
    assert_eq!(
        ledger.stdout(&["get", "ledger.db", "invoices", "2"]),
        RECORD
    );
    let north = ledger.stdout(&["get", "ledger.db", "places", "north", "-3"]);
    assert_eq!(north, PLACE);
    assert_eq!(
        ledger.stdout(&["get", "ledger.db", "places", "[\"north\", -3]"]),
        north
    );
    let outcome = ledger.run(&["get", "ledger.db", "places", "north", "5"]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (1, ""));
    assert_eq!(
        outcome.stderr,
        "brisk: places has no record with the key [\"north\",5]\n"
    );
    for (args, message) in [
        (
            &["invoices", "x"][..],
            "KEY: id: found \"x\", allowed is a whole number from 0 to 18446744073709551615",
        ),
        (
            &["invoices", "1", "2"],
            "KEY: found 2 parts, allowed is id: u64",
        ),
        (
            &["places", "north"],
            "KEY: found 1 part, but the key of places is region: text, number: i32",
        ),
        (
            &["places", "[\"north\", 1, 2]"],
            "KEY: found 3 parts, allowed is region: text, number: i32",
        ),
        (
            &["places", "north", "4000000000"],
            "KEY: number: found \"4000000000\", allowed is a whole number from -2147483648 to 2147483647",
        ),
    ] {
        let args = [&["get", "ledger.db"], args].concat();
        assert_eq!(ledger.failure(&args), format!("brisk: {message}\n"));
    }
    let said = ledger.failure(&["get", "ledger.db", "places", "[north]"]);
    assert!(
        said.starts_with("brisk: KEY: [north] is no JSON array: "),
        "{said}"
    );
}

const RECORD: &str = r#"{
  "id": 2,
  "customer": "ann",
  "number": "2026-2",
  "cents": 1200,
  "at": "2023-11-14T22:13:20.5Z",
  "lines": [
    {
      "text": "one",
      "count": 3,
      "discount": 0.1
    },
    {
      "text": "",
      "count": 3,
      "discount": 0.1
    }
  ]
}
"#;

const PLACE: &str = r#"{
  "region": "north",
  "number": -3,
  "uuid": "07070707-0707-0707-0707-070707070707",
  "hash": "000102ff",
  "raw": "00ff",
  "huge": "340282366920938463463374607431768211455",
  "rate": "-inf",
  "first": {
    "text": "first",
    "count": 3,
    "discount": 0.1
  },
  "open": false
}
"#;

/// The numbers of the invoices that a query prints.
#[track_caller]
fn ids(ledger: &Ledger, args: &[&str]) -> Vec<u64> {
    let args = [&["query", "ledger.db", "invoices"], args].concat();
    let lines = ledger.stdout(&args);
    let id = |line: &str| {
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        record["id"].as_u64().unwrap()
    };
    lines.lines().map(id).collect()
}

#[test]
fn query_goes_through_keys_and_indexes() {
    let ledger = Ledger::new();
    let ledger = &ledger;
    for (args, expected) in [
        (&[][..], &[1, 2, 3, 4, 5][..]),
        (&["--reverse", "--limit", "2"], &[5, 4]),
        (&["--from", "2", "--to", "4"], &[2, 3, 4]),
        (&["--prefix", "3"], &[3]),
        (&["--after", "3"], &[4, 5]),
        (&["--after", "3", "--reverse"], &[2, 1]),
        (&["--by", "customer"], &[2, 3, 4, 1, 5]),
        (&["--by", "customer", "--prefix", "ann"], &[2, 3, 4]),
        (
            &["--by", "customer", "--from", "ann", "--to", "ann"],
            &[2, 3],
        ),
        (
            &["--by", "customer", "--to", "bob", "--reverse"],
            &[1, 4, 3, 2],
        ),
        (&["--by", "customer", "--after", "2"], &[3, 4, 1, 5]),
        (&["--by", "customer", "--after", "2", "--reverse"], &[]),
        (&["--by", "customer_cents"], &[3, 2, 4, 1, 5]),
        (
            &[
                "--by",
                "customer_cents",
                "--from",
                "[\"ann\", 0]",
                "--to",
                "anna",
            ],
            &[2, 4],
        ),
        (
            &["--by", "customer_cents", "--prefix", "[\"ann\", 1200]"],
            &[2],
        ),
        (&["--by", "number", "--to", "null"], &[3, 4]),
        (&["--by", "number", "--prefix", "2026"], &[1, 2]),
        (&["--by", "number", "--prefix", "\"null\""], &[5]),
        (&["--where", "cents>0"], &[1, 2, 4]),
        (&["--where", "cents<=0", "--where", "customer=ann"], &[3]),
        (&["--where", "customer!=ann", "--limit", "2"], &[1, 4]),
        (&["--where", "number=null"], &[3, 4]),
        (&["--where", "number>=2026-2"], &[2, 5]),
        (
            &["--where", "at>2023-11-14T22:13:20Z", "--where", "id<2"],
            &[1],
        ),
    ] {
        assert_eq!(ids(ledger, args), expected, "{args:?}");
    }
    let counts = [
        (&["invoices", "--count"][..], "5\n"),
        (&["invoices", "--count", "--where", "cents>0"], "3\n"),
        (&["places", "--count", "--where", "first.text=first"], "3\n"),
        (
            &["places", "--count", "--where", "first.discount=0.1"],
            "3\n",
        ),
        (
            &[
                "places",
                "--count",
                "--where",
                "uuid!=07070707-0707-0707-0707-070707070707",
            ],
            "0\n",
        ),
        (&["places", "--count", "--where", "open=true"], "1\n"),
    ];
    for (args, expected) in counts {
        let args = [&["query", "ledger.db"], args].concat();
        assert_eq!(ledger.stdout(&args), expected, "{args:?}");
    }
}

/// As with `head`.
#[test]
fn a_reader_may_stop_before_the_end() {
    let ledger = Ledger::new();
    let note = |id: u32| format!("{{\"id\":{id},\"text\":\"{}\"}}\n", "x".repeat(100));
    let header = "{\"brisk-objects\":1,\"collection\":\"notes\",\"layout\":\"{id: u64, text: text} key id\",\"indexes\":[]}\n";
    let lines = header.to_owned() + &(0..3_000).map(note).collect::<String>();
    let loaded = ledger.run_with(&["load", "ledger.db"], lines.as_bytes());
    assert_eq!(loaded.code, 0, "{loaded:?}");
    for args in [
        &["query", "ledger.db", "notes"][..],
        &["dump", "ledger.db", "notes"],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_brisk-db"));
        command.args(args).current_dir(ledger.home.path());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(
            (output.status.code(), output.stderr),
            (Some(0), Vec::new()),
            "{args:?}"
        );
    }
}

#[test]
fn query_explains_itself() {
    let ledger = Ledger::new();
    let explain = |args: &[&str]| {
        let args = [&["query", "ledger.db", "invoices", "--explain"], args].concat();
        ledger.stdout(&args)
    };
    assert_eq!(explain(&[]), "invoices by id, all of it\n");
    assert_eq!(
        explain(&[
            "--by",
            "customer_cents",
            "--from",
            "[\"ann\", 0]",
            "--to",
            "bob",
            "--reverse",
            "--where",
            "id<2",
            "--limit",
            "3"
        ]),
        "index customer_cents(customer, cents) of invoices, from (\"ann\", 0), to \"bob\", backwards; look up each record; \
         only where id<2; take 3\n"
    );
    assert_eq!(
        explain(&[
            "--by", "customer", "--prefix", "a", "--after", "2", "--count"
        ]),
        "index customer(customer) of invoices, only \"a\"…, after 2; look up no record; count\n"
    );
    assert_eq!(
        explain(&["--by", "customer", "--where", "id<2", "--count"]),
        "index customer(customer) of invoices, all of it; look up each record; only where id<2; count\n"
    );
}

#[test]
fn query_refuses_what_it_does_not_know() {
    let ledger = Ledger::new();
    for (args, message) in [
        (
            &["--by", "x"][..],
            "invoices has no index x; it has customer, customer_cents, number",
        ),
        (
            &["--where", "x=1"],
            "--where x=1: invoices has no field x; it has id: u64, customer: text, number: option<text>, cents: i64, at: time, \
             lines: list<{text: text, count: u16, discount: option<f32>}>",
        ),
        (
            &["--where", "cents"],
            "--where cents: allowed is FIELD=VALUE, also with !=, <, <=, > or >=",
        ),
        (
            &["--where", "cents=much"],
            "--where cents=much: cents: found \"much\", allowed is a whole number from -9223372036854775808 to 9223372036854775807",
        ),
        (
            &["--where", "lines<[]"],
            "--where lines<[]: lines is of type list<{text: text, count: u16, discount: option<f32>}>, which has no order; \
             allowed are = and !=",
        ),
        (
            &["--by", "customer", "--after", "9"],
            "--after: invoices has no record with the key 9, which would say where the index goes on; name one that there is, or use --from",
        ),
    ] {
        let args = [&["query", "ledger.db", "invoices"], args].concat();
        assert_eq!(ledger.failure(&args), format!("brisk: {message}\n"));
    }
    let said = ledger.failure(&["query", "ledger.db", "places", "--by", "x"]);
    assert_eq!(said, "brisk: places has no index x: it has none\n");
}
