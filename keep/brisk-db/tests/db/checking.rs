//! `check`, on files that are damaged on purpose.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use brisk_objects::Stored;
use heed::types::Bytes;
use heed::{EnvFlags, EnvOpenOptions};
use twox_hash::XxHash3_64;

use crate::documented::assert_documented;
use crate::ledger::{Invoice, Ledger};

type Table = heed::Database<Bytes, Bytes>;

/// Changes tables of a database past brisk-objects.
pub fn change(path: &Path, work: impl FnOnce(&heed::Env, &mut heed::RwTxn<'_>)) {
    let mut options = EnvOpenOptions::new();
    options.max_dbs(20).map_size(64 << 20);
    // SAFETY: this flag is only about names.
    unsafe { options.flags(EnvFlags::NO_SUB_DIR) };
    // SAFETY: nobody else has the file open.
    let env = unsafe { options.open(path) }.unwrap();
    let mut txn = env.write_txn().unwrap();
    work(&env, &mut txn);
    txn.commit().unwrap();
    env.prepare_for_closing().wait();
}

pub fn table(env: &heed::Env, txn: &mut heed::RwTxn<'_>, name: &str) -> Table {
    env.open_database(txn, Some(name)).unwrap().unwrap()
}

const RIGHT: &str =
    "pages: right\ninvoices: 5 records, 3 indexes: right\nplaces: 3 records, 0 indexes: right\n";

#[track_caller]
fn faults(ledger: &Ledger) -> Vec<String> {
    let before = fs::read(ledger.path("ledger.db")).unwrap();
    let outcome = ledger.run(&["check", "ledger.db"]);
    assert_eq!(
        (outcome.code, outcome.stderr.as_str()),
        (1, ""),
        "{outcome:?}"
    );
    assert!(
        fs::read(ledger.path("ledger.db")).unwrap() == before,
        "it changes nothing"
    );
    let json = ledger.run(&["check", "ledger.db", "--json"]);
    assert_eq!(json.code, 1);
    assert_documented("db check", &json.stdout);
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    let lines: Vec<String> = outcome.stdout.lines().map(str::to_owned).collect();
    let end = lines
        .iter()
        .position(|line| line.starts_with("pages"))
        .unwrap();
    assert_eq!(json["faults"].as_array().unwrap().len(), end);
    lines[..end].to_vec()
}

#[test]
fn a_whole_database_is_right() {
    let ledger = Ledger::new();
    assert_eq!(ledger.stdout(&["check", "ledger.db"]), RIGHT);
    let json = ledger.stdout(&["check", "ledger.db", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&json["sound"], &json["pages_right"]),
        (&true.into(), &true.into())
    );
    assert_eq!(json["collections"][0]["records"], 5);
    assert_eq!(json["faults"], serde_json::json!([]));
}

#[test]
fn a_record_with_a_wrong_bit_is_named() {
    let ledger = Ledger::new();
    let path = ledger.path("ledger.db");
    change(&path, |env, txn| {
        let records = table(env, txn, "invoices");
        let key = 2u64.to_be_bytes();
        let mut bytes = records.get(txn, &key).unwrap().unwrap().to_vec();
        bytes[30] ^= 4;
        records.put(txn, &key, &bytes).unwrap();
    });
    assert_eq!(
        faults(&ledger),
        ["invoices, key 2: its bytes are not what was stored"]
    );
    let said = ledger.failure(&["get", "ledger.db", "invoices", "2"]);
    assert_eq!(
        said,
        "brisk: the record of invoices with the key 2 is damaged; restore the file from a copy\n"
    );
    assert_eq!(
        ledger.stdout(&["query", "ledger.db", "invoices", "--from", "3", "--count"]),
        "3\n"
    );
}

/// Whoever can write to a file can also write the check of what is forged.
#[test]
fn a_forged_record_is_named_with_its_field() {
    let ledger = Ledger::new();
    let seal = |key: &[u8], bytes: &mut [u8]| {
        let seed = XxHash3_64::oneshot_with_seed(Invoice::FINGERPRINT, key);
        let (check, value) = bytes.split_first_chunk_mut::<8>().unwrap();
        *check = XxHash3_64::oneshot_with_seed(seed, value).to_le_bytes();
    };
    change(&ledger.path("ledger.db"), |env, txn| {
        let records = table(env, txn, "invoices");
        let get = |txn: &mut heed::RwTxn<'_>, id: u64| {
            let bytes = records.get(txn, &id.to_be_bytes()).unwrap();
            bytes.unwrap().to_vec()
        };
        // The customer begins at byte 8 of the value: its length, and then where it begins.
        for (id, at) in [(1u64, 8 + 8 + 7), (2, 8 + 8 + 3)] {
            let mut bytes = get(txn, id);
            bytes[at] = 0x7f;
            seal(&id.to_be_bytes(), &mut bytes);
            records.put(txn, &id.to_be_bytes(), &bytes).unwrap();
        }
        let mut moved = get(txn, 3);
        seal(&9u64.to_be_bytes(), &mut moved);
        records.put(txn, &9u64.to_be_bytes(), &moved).unwrap();
        let mut short = get(txn, 4)[..16].to_vec();
        seal(&4u64.to_be_bytes(), &mut short);
        records.put(txn, &4u64.to_be_bytes(), &short).unwrap();
        records.put(txn, &10u64.to_be_bytes(), b"short").unwrap();
        records.put(txn, b"odd", &short).unwrap();
    });
    assert_eq!(
        faults(&ledger),
        [
            "invoices, key 1: its check is right, but of its field customer: it lies outside of the record",
            "invoices, key 2: its check is right, but of its field customer: it lies outside of the record",
            "invoices, key 4: its check is right, but of its field customer: the record ends before it",
            "invoices, key 9: its own key is 3",
            "invoices, key 10: its bytes are not what was stored",
            "invoices, key [6f, 64, 64]: its bytes are not what was stored",
        ]
    );
}

#[test]
fn entries_that_are_missing_or_too_many_are_named() {
    let ledger = Ledger::new();
    let path = ledger.path("ledger.db");
    change(&path, |env, txn| {
        let customer = table(env, txn, "invoices/customer");
        let entry = |name: &str, id: u64| [name.as_bytes(), &[0, 0], &id.to_be_bytes()].concat();
        assert!(customer.delete(txn, &entry("bob", 1)).unwrap());
        customer.put(txn, &entry("dan", 2), &[]).unwrap();
        customer.put(txn, &entry("eve", 77), &[]).unwrap();
        customer.put(txn, b"zz", &[]).unwrap();
        let number = table(env, txn, "invoices/number");
        let double = [&[1], b"2026-1".as_slice(), &[0, 0], &2u64.to_be_bytes()].concat();
        number.put(txn, &double, b"x").unwrap();
        let invoices = table(env, txn, "invoices");
        let record = invoices
            .get(txn, &4u64.to_be_bytes())
            .unwrap()
            .unwrap()
            .to_vec();
        invoices.put(txn, &9u64.to_be_bytes(), &record).unwrap();
    });
    assert_eq!(
        faults(&ledger),
        [
            "invoices, index customer, key 1: there is no entry for this record",
            "invoices, key 9: its bytes are not what was stored",
            "invoices, index customer, key 2: its entry has other values than the record",
            "invoices, index customer, key 77: its entry leads to no record",
            "invoices, index customer, key [7a, 7a]: its bytes are no value of the index",
            "invoices, index number, key 2: its entry has a value of 1 bytes, allowed is none",
            "invoices, index number, key 2: its entry has other values than the record",
            "invoices, index number, key 2: another record has the same values, but the index is unique",
        ]
    );
}

#[test]
fn words_that_are_not_those_of_their_number_are_named() {
    let ledger = Ledger::new();
    let path = ledger.path("ledger.db");
    change(&path, |env, txn| {
        let about = table(env, txn, "brisk-objects");
        let layout = about.get(txn, b"layout places").unwrap().unwrap().to_vec();
        let text = String::from_utf8(layout[8..].to_vec()).unwrap();
        let other = [
            &layout[..8],
            text.replace("number: i32", "number: u32").as_bytes(),
        ]
        .concat();
        about.put(txn, b"layout places", &other).unwrap();
        about
            .put(
                txn,
                b"layout odd",
                &[&[0; 8], b"{id: u65} key id".as_slice()].concat(),
            )
            .unwrap();
        about.put(txn, b"layout o\xff", b"").unwrap();
        about.put(txn, b"layout n\0l", &layout).unwrap();
    });
    let faults = faults(&ledger);
    assert_eq!(faults.len(), 4, "{faults:?}");
    assert!(
        faults[0].starts_with("n\\u{0}l: its layout cannot be read: "),
        "{faults:?}"
    );
    assert_eq!(
        faults[1],
        "odd: its layout cannot be read: {id: u65} key id"
    );
    assert_eq!(
        faults[2],
        "o\u{fffd}: its layout cannot be read: its name is not UTF-8"
    );
    assert!(
        faults[3].starts_with("places: its layout cannot be read: its number is "),
        "{faults:?}"
    );
    assert_eq!(
        ledger.failure(&["ls", "ledger.db", "odd"]),
        "brisk: the layout of odd cannot be read: {id: u65} key id; use the version of brisk-objects that wrote it, or restore \
         the file from a copy\n"
    );
    // The others are read all the same, but a dump of all is no dump of some.
    let dumped = ledger.failure(&["dump", "ledger.db"]);
    assert!(
        dumped.starts_with(
            "brisk: name the collections that you want to dump without it: the layout of "
        ),
        "{dumped}"
    );
    assert_eq!(ledger.run(&["dump", "ledger.db", "invoices"]).code, 0);
    let listed = ledger.run(&["ls", "ledger.db"]);
    assert_eq!(
        (listed.code, listed.stdout.as_str()),
        (0, "invoices                     5\n")
    );
    assert!(
        listed
            .stderr
            .contains("brisk: warning: the collection odd cannot be read: {id: u65} key id\n"),
        "{listed:?}"
    );
    assert!(
        ledger
            .stdout(&["info", "ledger.db"])
            .contains("\nodd: cannot be read: {id: u65} key id\n")
    );
    assert_eq!(
        ledger.stdout(&["query", "ledger.db", "invoices", "--count"]),
        "5\n"
    );
}

/// The number of the page of a record, in the newest state.
fn page_with(whole: &[u8], text: &[u8]) -> usize {
    let ends = (0..whole.len()).rev();
    let mut found = ends.filter(|&at| whole[at..].starts_with(text));
    found.next().unwrap() / 4096
}

#[test]
fn damaged_pages_are_named_and_lmdb_does_not_see_them() {
    let ledger = Ledger::new();
    let path = ledger.path("ledger.db");
    let whole = fs::read(&path).unwrap();
    let page = page_with(&whole, b"north");
    let at = page * 4096;
    for (offset, bytes, message) in [
        (
            0,
            &[0xee][..],
            "it says that it is page 238 with flags 0x2, allowed is 0x2",
        ),
        (
            10,
            &[1],
            "it says that it is page P with flags 0x1, allowed is 0x2",
        ),
        (12, &[0xff, 0xff], "its free space is from 65535 to"),
        (16, &[0xff, 0x0f], "its entry 0 lies outside of it"),
        (16, &[0, 0], "its entry 0 lies outside of it"),
    ] {
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(bytes, (at + offset) as u64).unwrap();
        let outcome = ledger.run(&["check", "ledger.db"]);
        let message = message.replace("page P", &format!("page {page}"));
        let expected = format!("page {page} of places, at byte {at}: {message}");
        assert_eq!(outcome.code, 1, "{outcome:?}");
        assert!(
            outcome.stdout.starts_with(&expected),
            "{expected}: {outcome:?}"
        );
        assert!(
            outcome.stdout.ends_with(
                "pages are damaged, so no record was looked at: restore the file from a copy\n"
            ),
            "{outcome:?}"
        );
        file.write_all_at(&whole, 0).unwrap();
    }
    assert_eq!(ledger.stdout(&["check", "ledger.db"]), RIGHT);
}

/// Every 61st byte is changed, by itself. `check` never ends by a signal, and what it calls right can be read.
#[test]
fn no_byte_of_a_page_ends_a_check() {
    let ledger = Ledger::new();
    let path = ledger.path("ledger.db");
    let whole = fs::read(&path).unwrap();
    let mut found = 0;
    // A prime number, so that all places of pages come.
    for at in (0..whole.len()).step_by(61) {
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&[whole[at] ^ 0x55], at as u64).unwrap();
        let outcome = ledger.run(&["check", "ledger.db"]);
        assert!((0..=2).contains(&outcome.code), "{at}: {outcome:?}");
        found += usize::from(outcome.code > 0);
        if outcome.code == 0 {
            let count = ledger.run(&["query", "ledger.db", "invoices", "--count"]);
            assert_eq!(count.stdout, "5\n", "{at}: {count:?}");
        }
        file.write_all_at(&[whole[at]], at as u64).unwrap();
    }
    assert!(found > 10, "{found}");
}

/// A writer uses pages again that nobody reads any more. None of those that a check looks at is among them.
#[test]
fn programs_may_write_while_all_is_checked() {
    let ledger = Ledger::new();
    let db = crate::ledger::open(&ledger.path("ledger.db"));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 0u32;
            while !is_over.load(Ordering::Relaxed) {
                number += 1;
                db.write(|tx| {
                    let text = "x".repeat(number as usize % 5_000);
                    let id = tx.insert(&crate::ledger::invoice(&format!("c{number}"), None, 1))?;
                    tx.update(&Invoice {
                        id,
                        lines: vec![crate::ledger::line(&text)],
                        ..crate::ledger::invoice("again", None, 2)
                    })?;
                    if number > 50 {
                        tx.delete::<Invoice>(id - 50)?;
                    }
                    Ok::<_, brisk_objects::Error>(())
                })
                .unwrap();
            }
        });
        for _ in 0..20 {
            let outcome = ledger.run(&["check", "ledger.db"]);
            if outcome.code != 0 {
                is_over.store(true, Ordering::Relaxed);
            }
            assert_eq!(outcome.code, 0, "{outcome:?}");
        }
        is_over.store(true, Ordering::Relaxed);
    });
}
