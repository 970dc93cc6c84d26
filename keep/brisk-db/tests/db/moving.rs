//! `dump` and `load`.

use std::fs;
use std::io::Write;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::SystemTime;

use brisk_objects::{Options, Record};

use crate::checking::{change, table};
use crate::documented::assert_documented;
use crate::ledger::{Invoice, Ledger, Place, invoice, open};

/// All records of a database, as its program sees them.
fn all(ledger: &Ledger, name: &str) -> (Vec<Invoice>, Vec<Place>) {
    let db = open(&ledger.path(name));
    let snapshot = db.snapshot().unwrap();
    snapshot.check::<Invoice>().unwrap();
    snapshot.check::<Place>().unwrap();
    let invoices = snapshot.query::<Invoice>().collect().unwrap();
    (invoices, snapshot.query::<Place>().collect().unwrap())
}

#[track_caller]
fn load(ledger: &Ledger, args: &[&str], lines: &str) -> String {
    let args = [&["load"], args].concat();
    let outcome = ledger.run_with(&args, lines.as_bytes());
    assert_eq!(
        (outcome.code, outcome.stdout.as_str()),
        (0, ""),
        "{outcome:?}"
    );
    outcome.stderr
}

#[track_caller]
fn refused(ledger: &Ledger, args: &[&str], lines: &str) -> String {
    let args = [&["load"], args].concat();
    let outcome = ledger.run_with(&args, lines.as_bytes());
    assert_eq!(
        (outcome.code, outcome.stdout.as_str()),
        (2, ""),
        "{outcome:?}"
    );
    outcome.stderr
}

#[test]
fn a_program_opens_what_was_loaded() {
    let ledger = Ledger::new();
    let dump = ledger.stdout(&["dump", "ledger.db"]);
    assert_documented("Headers of db dump", dump.lines().next().unwrap());
    let said = load(&ledger, &["copy.db"], &dump);
    assert_eq!(said, "brisk: loaded 8 records of 2 collections\n");
    // The whole of it: a second dump, what the program reads by keys and by indexes, and the check.
    assert_eq!(ledger.stdout(&["dump", "copy.db"]), dump);
    assert_eq!(all(&ledger, "copy.db"), all(&ledger, "ledger.db"));
    let db = open(&ledger.path("copy.db"));
    let query = db
        .query::<Invoice>()
        .unwrap()
        .by(Invoice::CUSTOMER)
        .is("ann");
    assert_eq!(query.count().unwrap(), 2);
    let twice = db.write(|tx| tx.insert(&invoice("x", Some("2026-1"), 1)));
    assert_eq!(
        twice.unwrap_err().to_string(),
        "another record of invoices has Some(\"2026-1\") in the unique index number"
    );
    // Keys that were chosen once are not chosen again.
    let id = db.write(|tx| {
        tx.delete::<Invoice>(5)?;
        tx.insert(&invoice("x", None, 1))
    });
    assert_eq!(id.unwrap(), 6);
    drop(db);
    let checked = ledger.stdout(&["check", "copy.db"]);
    assert_eq!(
        checked,
        "pages: right\ninvoices: 5 records, 3 indexes: right\nplaces: 3 records, 0 indexes: right\n"
    );
    let mut names: Vec<_> = fs::read_dir(ledger.home.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(
        names,
        ["copy.db", "copy.db-lock", "ledger.db", "ledger.db-lock"]
    );
}

#[test]
fn a_dump_is_lines_of_json() {
    let ledger = Ledger::new();
    let dump = ledger.stdout(&["dump", "ledger.db", "invoices"]);
    let lines: Vec<_> = dump.lines().collect();
    assert_eq!(
        lines[0],
        "{\"brisk-objects\":1,\"collection\":\"invoices\",\"layout\":\"{id: u64, customer: text, number: option<text>, cents: i64, \
         at: time, lines: list<{text: text, count: u16, discount: option<f32>}>} key id auto\",\"indexes\":[\"index \
         customer(customer)\",\"index customer_cents(customer, cents)\",\"unique number(number)\"],\"next\":6,\"records\":5}"
    );
    assert_eq!(
        lines[3],
        "{\"id\":3,\"customer\":\"ann\",\"number\":null,\"cents\":-7,\"at\":\"2023-11-14T22:13:20.5Z\",\"lines\":[{\"text\":\"one\",\
         \"count\":3,\"discount\":0.1},{\"text\":\"\",\"count\":3,\"discount\":0.1}]}"
    );
    assert_eq!(lines.len(), 6);
}

#[test]
fn records_are_added_all_or_none() {
    let ledger = Ledger::new();
    let before = all(&ledger, "ledger.db");
    let header = "{\"brisk-objects\":1,\"collection\":\"invoices\",\"layout\":\"{id: u64, customer: text, number: option<text>, \
                  cents: i64, at: time, lines: list<{text: text, count: u16, discount: option<f32>}>} key id auto\",\
                  \"indexes\":[]}\n";
    let record = |id: u64, number: &str| {
        format!(
            "{{\"id\":{id},\"customer\":\"new\",\"number\":{number},\"cents\":1,\"at\":\"@0\",\"lines\":[]}}\n"
        )
    };
    let with = |lines: &str| format!("{header}{}{lines}", record(50, "null"));
    for (lines, message) in [
        (
            with(&record(1, "null")),
            "line 3; nothing was loaded: invoices has a record with the key 1 already; --replace replaces it",
        ),
        (
            with(&record(51, "\"2026-1\"")),
            "line 3; nothing was loaded: another record of invoices has \"2026-1\" in the unique index number",
        ),
        (
            with("{\"id\":-1}"),
            "line 3; nothing was loaded: id: found -1, allowed is a whole number from 0 to 18446744073709551615",
        ),
        (
            with(&record(51, "null").replace("[]", "[{\"text\":\"x\",\"count\":70000}]")),
            "line 3; nothing was loaded: lines[0].count: found 70000, allowed is a whole number from 0 to 65535",
        ),
        (
            with(&record(51, "null").replace("\"new\"", &format!("\"{}\"", "n".repeat(600)))),
            "line 3; nothing was loaded: an entry of an index of invoices has 610 bytes, allowed are 1 to 511; use a digest of its text (brisk_objects::key_digest)",
        ),
        (
            with("{\"brisk-objects\":2}"),
            "line 3; nothing was loaded: the version of the header is 2, allowed is 1",
        ),
        (
            with(&header.replace("cents: i64", "cents: i32")),
            "line 3; nothing was loaded: the records of invoices have the layout {id: u64, customer: text, number: option<text>, \
             cents: i64, at: time, lines: list<{text: text, count: u16, discount: option<f32>}>} key id auto, but the lines have \
             {id: u64, customer: text, number: option<text>, cents: i32, at: time, lines: list<{text: text, count: u16, discount: \
             option<f32>}>} key id auto; load them into a new file",
        ),
        (
            with(&header.replace("\"invoices\"", "\"a/b\"")),
            "line 3; nothing was loaded: collection: found \"a/b\", allowed is a name of 1 to 400 bytes, without / and NUL, and none \
             of brisk-objects and brisk-objects migration",
        ),
        (
            with(
                &header
                    .replace("\"invoices\"", "\"new\"")
                    .replace("u64", "u65"),
            ),
            "line 3; nothing was loaded: layout: found \"{id: u65, customer: text, number: option<text>, cents: i64, at: time, \
             lines: list<{text: text, count: u16, discount: option<f32>}>} key id auto\", allowed is a layout and its key, such \
             as {id: u64, text: text} key id",
        ),
        (
            with(
                &header
                    .replace("\"invoices\"", "\"new\"")
                    .replace("[]", "[\"index at(at)\",\"index nope(nope)\"]"),
            ),
            "line 3; nothing was loaded: indexes[1]: found \"index nope(nope)\", allowed is index NAME(FIELDS) or unique \
             NAME(FIELDS), with 1 to 8 fields of the layout that can be keys, such as index text(text)",
        ),
        (
            with(
                &header
                    .replace("\"invoices\"", "\"new\"")
                    .replace("[]", "[\"index at(at)\",\"unique at(id)\"]"),
            ),
            "line 3; nothing was loaded: indexes[1]: found \"unique at(id)\", allowed is one index of each name",
        ),
        (
            header.replace("\"indexes\":[]", "\"indexes\":[],\"records\":2") + &record(50, "null"),
            "line 1 promises 2 records, but 1 came; nothing was loaded. If you have changed the lines on purpose, remove \
             \"records\" from line 1",
        ),
        (
            record(50, "null"),
            "line 1; nothing was loaded: it is a record, but the first line must be a header such as \
             {\"brisk-objects\":1,\"collection\":\"notes\",\"layout\":\"{id: u64, text: text} key id\",\"indexes\":[]}",
        ),
        (
            "\n".to_owned(),
            "stdin has no line; nothing was loaded. The lines of brisk db dump begin with a header such as \
             {\"brisk-objects\":1,\"collection\":\"notes\",\"layout\":\"{id: u64, text: text} key id\",\"indexes\":[]}",
        ),
    ] {
        assert_eq!(
            refused(&ledger, &["ledger.db"], &lines),
            format!("brisk: {message}\n")
        );
        // A new file has no record and no index that could be in the way.
        if !["already", "index"]
            .iter()
            .any(|word| message.contains(word))
            || message.contains("\"indexes\"")
        {
            assert_eq!(
                refused(&ledger, &["new.db"], &lines),
                format!("brisk: {message}\n")
            );
        }
        assert!(!ledger.path("new.db").exists());
        assert_eq!(all(&ledger, "ledger.db"), before);
    }
    let said = refused(&ledger, &["ledger.db"], &with("{\"id\":"));
    assert!(
        said.starts_with("brisk: line 3; nothing was loaded: it is no JSON: "),
        "{said}"
    );
    let said = load(&ledger, &["ledger.db"], &with(""));
    assert_eq!(said, "brisk: loaded 1 record of 1 collection\n");
    assert_eq!(all(&ledger, "ledger.db").0.len(), 6);
    let names = fs::read_dir(ledger.home.path()).unwrap().count();
    assert_eq!(names, 2, "nothing half done is left");
}

#[test]
fn records_are_replaced_with_their_entries() {
    let ledger = Ledger::new();
    let dump = ledger.stdout(&["dump", "ledger.db", "invoices"]);
    let changed = dump
        .replace("\"bob\"", "\"bert\"")
        .replace("2026-1", "2026-9");
    let said = load(&ledger, &["ledger.db", "--replace"], &changed);
    assert_eq!(
        said,
        "brisk: loaded 5 records of 1 collection, 5 of them in place of others\n"
    );
    let (invoices, _) = all(&ledger, "ledger.db");
    assert_eq!(
        (invoices[0].customer.as_str(), invoices[0].number.as_deref()),
        ("bert", Some("2026-9"))
    );
}

#[test]
fn damaged_records_are_left_out_on_request() {
    let ledger = Ledger::new();
    change(&ledger.path("ledger.db"), |env, txn| {
        let records = table(env, txn, "invoices");
        let key = 2u64.to_be_bytes();
        let mut bytes = records.get(txn, &key).unwrap().unwrap().to_vec();
        bytes[30] ^= 4;
        records.put(txn, &key, &bytes).unwrap();
    });
    let outcome = ledger.run(&["dump", "ledger.db"]);
    assert_eq!(outcome.code, 2);
    assert_eq!(
        outcome.stderr,
        "brisk: --skip-damaged leaves such records out: the record of invoices with the key 2 is damaged; restore the file from a \
         copy\n"
    );
    // What came is not loaded as if it were all.
    let said = refused(&ledger, &["new.db"], &outcome.stdout);
    assert!(
        said.contains("line 1 promises 5 records, but 1 came; nothing was loaded."),
        "{said}"
    );
    let outcome = ledger.run(&["dump", "ledger.db", "--skip-damaged"]);
    assert_eq!(outcome.code, 1);
    assert_eq!(
        outcome.stderr,
        "brisk: warning: the record of invoices with the key 2 is damaged\nbrisk: warning: 1 record left out, because of damage\n"
    );
    load(&ledger, &["new.db"], &outcome.stdout);
    let (invoices, places) = all(&ledger, "new.db");
    assert_eq!(
        invoices.iter().map(|one| one.id).collect::<Vec<_>>(),
        [1, 3, 4, 5]
    );
    assert_eq!(places.len(), 3);
}

/// A good record in place of a damaged one, and entries that were missing.
#[test]
fn a_database_is_mended_in_place() {
    let ledger = Ledger::new();
    let before = all(&ledger, "ledger.db");
    let dump = ledger.stdout(&["dump", "ledger.db"]);
    change(&ledger.path("ledger.db"), |env, txn| {
        let records = table(env, txn, "invoices");
        let key = 1u64.to_be_bytes();
        let mut bytes = records.get(txn, &key).unwrap().unwrap().to_vec();
        bytes[30] ^= 4;
        records.put(txn, &key, &bytes).unwrap();
        let customer = table(env, txn, "invoices/customer");
        let bert = [b"bert".as_slice(), &[0, 0], &key].concat();
        customer.put(txn, &bert, &[]).unwrap();
        let anna = [b"anna".as_slice(), &[0, 0], &4u64.to_be_bytes()].concat();
        assert!(customer.delete(txn, &anna).unwrap());
    });
    assert_eq!(ledger.run(&["check", "ledger.db"]).code, 1);
    load(&ledger, &["ledger.db", "--replace"], &dump);
    assert_eq!(ledger.run(&["check", "ledger.db"]).code, 0);
    assert_eq!(all(&ledger, "ledger.db"), before);
}

#[test]
fn other_files_are_not_written_to() {
    let ledger = Ledger::new();
    let dump = ledger.stdout(&["dump", "ledger.db"]);
    fs::write(ledger.path("text"), "hello\n").unwrap();
    change(&ledger.path("other"), |env, txn| {
        env.create_database::<heed::types::Str, heed::types::Str>(txn, Some("users"))
            .unwrap();
    });
    let home = ledger.home.path().canonicalize().unwrap();
    for (name, message) in [
        ("text", "it ends within its first pages"),
        ("other", "it has tables of another program"),
    ] {
        let before = fs::read(ledger.path(name)).unwrap();
        let said = refused(&ledger, &[name], &dump);
        assert_eq!(
            said,
            format!(
                "brisk: {}/{name} is no database of brisk-objects: {message}\n",
                home.display()
            )
        );
        assert!(fs::read(ledger.path(name)).unwrap() == before);
    }
    // As a program does with a limit of its own.
    let many: String = (0..3000)
        .map(|id| format!("{{\"id\":{id},\"text\":\"{}\"}}\n", "x".repeat(100)))
        .collect();
    let header = "{\"brisk-objects\":1,\"collection\":\"notes\",\"layout\":\"{id: u64, text: text} key id\",\"indexes\":[]}\n";
    let said = refused(
        &ledger,
        &["small.db", "--limit", "128K"],
        &format!("{header}{many}"),
    );
    assert!(
        said.ends_with("; nothing was loaded: the database has reached its limit of 131072 bytes; name a higher one with --limit\n"),
        "{said}"
    );
    assert!(!ledger.path("small.db").exists());
    // A part of 64 KiB is a whole one. The last page that it has room for is needed by a line, or at the end.
    let lines = |records: u32| {
        let record = |id| format!("{{\"id\":{id},\"text\":\"{}\"}}\n", "x".repeat(1000));
        let records: String = (0..records).map(record).collect();
        format!("{header}{records}")
    };
    let small = ["small.db", "--limit", "10K"];
    let full = "nothing was loaded: the database has reached its limit of 65536 bytes; name a higher one with --limit\n";
    let said = refused(&ledger, &small, &lines(60));
    assert_eq!(said, format!("brisk: line 23; {full}"));
    load(&ledger, &small, &lines(14));
    let replace = [small.as_slice(), &["--replace"]].concat();
    let said = refused(&ledger, &replace, &lines(1));
    assert_eq!(said, format!("brisk: {full}"));
    let said = refused(&ledger, &["small.db", "--limit", "0"], &dump);
    assert!(
        said.starts_with(
            "error: invalid value '0' for '--limit <SIZE>': allowed is a size above 0, such as 500M\n"
        ),
        "{said}"
    );
    let said = refused(&ledger, &["nosuch/x.db"], &dump);
    let home = ledger.home.path().display();
    let expected = format!(
        "brisk: cannot open {home}/nosuch/x.db: the directory {home}/nosuch: No such file or directory (os error 2)\n"
    );
    assert_eq!(said, expected);
}

/// A load into a new file that has read nothing yet.
fn waiting_load(ledger: &Ledger, args: &[&str]) -> (Child, ChildStdin) {
    let files = fs::read_dir(ledger.home.path()).unwrap().count();
    let mut command = Command::new(env!("CARGO_BIN_EXE_brisk-db"));
    command.args(["load", "new.db"]).args(args);
    command.current_dir(ledger.home.path());
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // It has begun when its file is there, and that of its lock.
    while fs::read_dir(ledger.home.path()).unwrap().count() < files + 2 {
        std::thread::yield_now();
    }
    let stdin = child.stdin.take().unwrap();
    (child, stdin)
}

fn end(load: (Child, ChildStdin), lines: &str) -> (Option<i32>, String) {
    let (child, mut stdin) = load;
    stdin.write_all(lines.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), said)
}

/// Lines come slowly, and a program makes the file meanwhile.
#[test]
fn a_file_that_came_meanwhile_is_added_to() {
    let ledger = Ledger::new();
    let dump = ledger.stdout(&["dump", "ledger.db"]);
    for (args, code, message) in [
        (
            [].as_slice(),
            2,
            "brisk: another program has made new.db meanwhile; nothing was loaded: invoices has a record with the key 1 \
             already; --replace replaces it\n",
        ),
        (
            &["--replace"],
            0,
            "brisk: loaded 8 records of 2 collections, 1 of them in place of others, into new.db, which another program has \
             made meanwhile\n",
        ),
    ] {
        let load = waiting_load(&ledger, args);
        let db = open(&ledger.path("new.db"));
        let own = invoice("own", Some("own"), 7);
        db.write(|tx| tx.insert(&own)).unwrap();
        drop(db);
        let before = all(&ledger, "new.db");
        assert_eq!(end(load, &dump), (Some(code), message.to_owned()));
        match code {
            0 => assert_eq!(all(&ledger, "new.db"), all(&ledger, "ledger.db")),
            _ => assert_eq!(all(&ledger, "new.db"), before),
        }
        let names = fs::read_dir(ledger.home.path()).unwrap().count();
        assert_eq!(names, 4, "nothing half done is left");
        fs::remove_file(ledger.path("new.db")).unwrap();
        fs::remove_file(ledger.path("new.db-lock")).unwrap();
    }
    // What is no database stays as it is.
    let load = waiting_load(&ledger, &[]);
    fs::write(ledger.path("new.db"), "text").unwrap();
    let (code, said) = end(load, &dump);
    assert_eq!(code, Some(2));
    assert!(
        said.ends_with("/new.db is no database of brisk-objects: it ends within its first pages\n"),
        "{said}"
    );
    assert_eq!(fs::read(ledger.path("new.db")).unwrap(), b"text");
}

/// Several loads begin when there is no file.
#[test]
fn all_loads_into_one_new_file_arrive() {
    let ledger = Ledger::new();
    let header = "{\"brisk-objects\":1,\"collection\":\"notes\",\"layout\":\"{id: u64} key id auto\",\"indexes\":[],\"next\":9}\n";
    let loads: Vec<_> = (0..4).map(|_| waiting_load(&ledger, &[])).collect();
    for (number, load) in loads.into_iter().enumerate() {
        let lines = format!("{header}{{\"id\":{number}}}\n");
        let whither = match number {
            0 => "",
            _ => ", into new.db, which another program has made meanwhile",
        };
        let said = format!("brisk: loaded 1 record of 1 collection{whither}\n");
        assert_eq!(end(load, &lines), (Some(0), said));
    }
    let dump = ledger.stdout(&["dump", "new.db"]);
    let expected = "\"next\":9,\"records\":4}\n{\"id\":0}\n{\"id\":1}\n{\"id\":2}\n{\"id\":3}\n";
    assert!(dump.ends_with(expected), "{dump}");
}

/// The names of all files, those of unfinished ones without their numbers.
fn names(ledger: &Ledger) -> Vec<String> {
    let files = fs::read_dir(ledger.home.path()).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let without = names.map(|name| match name.split_once(".load") {
        Some((start, end)) => {
            let (start, number) = start.split_at(start.len() - 16);
            assert!(number.bytes().all(|byte| byte.is_ascii_hexdigit()));
            format!("{start}N.load{end}")
        }
        None => name,
    });
    let mut names: Vec<_> = without.collect();
    names.sort();
    names
}

#[test]
fn what_a_killed_load_has_left_goes_with_the_next_one() {
    let ledger = Ledger::new();
    let dump = ledger.stdout(&["dump", "ledger.db", "places"]);
    let begin = |files: usize| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_brisk-db"));
        command
            .args(["load", "new.db"])
            .current_dir(ledger.home.path());
        let child = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn();
        while names(&ledger).len() < files {
            std::thread::yield_now();
        }
        child.unwrap()
    };
    let mut running = begin(4);
    let mut killed = begin(6);
    killed.kill().unwrap();
    killed.wait().unwrap();
    // Other names are left alone.
    for name in [
        "new.db.load",
        "new.db.0123.load",
        "other.0123456789abcdef.load",
    ] {
        fs::write(ledger.path(name), "").unwrap();
    }
    load(&ledger, &["new.db"], &dump);
    for name in [
        "new.db.load",
        "new.db.0123.load",
        "other.0123456789abcdef.load",
    ] {
        fs::remove_file(ledger.path(name)).unwrap();
    }
    assert_eq!(
        names(&ledger),
        [
            "ledger.db",
            "ledger.db-lock",
            "new.db",
            "new.db.N.load",
            "new.db.N.load-lock"
        ]
    );
    drop(running.stdin.take());
    assert_eq!(running.wait().unwrap().code(), Some(2));
    assert_eq!(names(&ledger), ["ledger.db", "ledger.db-lock", "new.db"]);
}

/// A program reads and writes while lines are loaded.
#[test]
fn a_program_may_have_the_file_open() {
    let ledger = Ledger::new();
    let db = open(&ledger.path("ledger.db"));
    let snapshot = db.snapshot().unwrap();
    let dump = ledger.stdout(&["dump", "ledger.db", "places"]);
    load(
        &ledger,
        &["ledger.db"],
        &dump.replace("north", "west").replace("\"so\"", "\"we\""),
    );
    assert_eq!(snapshot.count::<Place>().unwrap(), 3);
    assert_eq!(db.snapshot().unwrap().count::<Place>().unwrap(), 6);
    db.write(|tx| tx.insert(&invoice("dan", None, 1))).unwrap();
}

#[derive(Record, Debug, Clone, PartialEq)]
struct Odd {
    #[key]
    at: SystemTime,
    #[key]
    wide: i128,
    #[index]
    rate: f32,
    #[unique]
    raw: Vec<u8>,
    deep: Vec<Option<Vec<String>>>,
}

/// The bytes of a record that was loaded are those that its program writes.
#[test]
fn loaded_records_are_the_same_bytes() {
    let ledger = Ledger::empty();
    let path = ledger.path("odd.db");
    let options = || Options::new().collection::<Odd>().limit(8 << 20);
    // SAFETY: nothing but LMDB writes to the file while somebody reads it.
    let db = unsafe { options().open(&path) }.unwrap();
    let odd = |seconds: u64, wide: i128, rate: f32| Odd {
        at: SystemTime::UNIX_EPOCH - std::time::Duration::from_nanos(seconds * 1_500_000_001),
        wide,
        rate,
        raw: seconds.to_le_bytes().to_vec(),
        deep: vec![
            None,
            Some(vec![]),
            Some(vec!["a\0b".to_owned(), "ü\u{1b}".to_owned()]),
        ],
    };
    db.write(|tx| {
        for (seconds, wide, rate) in [
            (0, i128::MIN, f32::NAN),
            (1, -1, -f32::NAN),
            (u64::MAX >> 34, 0, f32::MIN_POSITIVE / 2.0),
            (3, i128::MAX, -0.0),
            (4, 1 << 100, 16_777_217.0),
        ] {
            tx.insert(&odd(seconds, wide, rate))?;
        }
        Ok::<_, brisk_objects::Error>(())
    })
    .unwrap();
    drop(db);
    let dump = ledger.stdout(&["dump", "odd.db"]);
    load(&ledger, &["copy.db"], &dump);
    let rows = |name: &str| {
        let mut rows = Vec::new();
        change(&ledger.path(name), |env, txn| {
            for name in ["odd", "odd/rate", "odd/raw", "brisk-objects"] {
                let table = table(env, txn, name);
                let all = table.iter(txn).unwrap().map(|row| row.unwrap());
                rows.extend(all.map(|(key, value)| (key.to_vec(), value.to_vec())));
            }
        });
        rows
    };
    assert_eq!(rows("copy.db"), rows("odd.db"));
}
