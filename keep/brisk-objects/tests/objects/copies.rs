//! Copies of a file, and how much smaller they are.

use std::fs;
use std::path::Path;

use brisk_objects::{Database, Error, Options, Record, TableSize, UntypedDatabase};

use crate::ledger::open_with;

#[derive(Record, Debug, Clone, PartialEq)]
struct Entry {
    #[key]
    id: u64,
    #[index]
    account: u32,
    #[index]
    at: i64,
    text: String,
}

#[derive(Record, Debug, Clone, PartialEq)]
struct Other {
    #[key]
    id: u64,
    text: String,
}

const ENTRIES: u64 = 20_000;

fn entry(id: u64) -> Entry {
    // In no order, as far as an index can tell.
    let mut mixed = id.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^= mixed >> 32;
    Entry {
        id,
        account: (mixed >> 40) as u32,
        at: (mixed >> 3).cast_signed(),
        text: format!("{mixed:060}"),
    }
}

fn open(path: &Path) -> Database {
    open_with(Options::new().collection::<Entry>(), path).unwrap()
}

/// The pages of the records and of both indexes, and of how many bytes they are.
fn sizes(path: &Path) -> (Vec<TableSize>, u64) {
    // SAFETY: nobody writes to the file meanwhile.
    let database = unsafe { UntypedDatabase::open(path) }.unwrap();
    let entries = database.collection("entry").unwrap();
    let mut sizes = vec![entries.records_size().unwrap()];
    sizes.extend(entries.index_sizes().unwrap());
    (sizes, fs::metadata(path).unwrap().len())
}

#[test]
fn a_copy_has_full_pages_and_no_unused_ones() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let (path, copy) = (home.path().join("a.db"), home.path().join("copy.db"));
    // A collection that the program does not know when it copies.
    let other = |id| Other {
        id,
        text: "o".repeat(5_000),
    };
    open_with(Options::new().collection::<Other>(), &path)
        .unwrap()
        .write(|tx| (0..9).try_for_each(|id| tx.insert(&other(id)).map(|_key| ())))
        .unwrap();
    let db = open(&path);
    for first in (0..ENTRIES).step_by(1000) {
        db.write(|tx| {
            (first..first + 1000).try_for_each(|id| tx.insert(&entry(id)).map(|_key| ()))
        })
        .unwrap();
    }
    db.copy_to(&copy).unwrap();
    let e = db.copy_to(&copy).unwrap_err();
    let there = format!("{} is there already; name another file", copy.display());
    assert_eq!(e.to_string(), there);
    drop(db);
    let ((before, long), (after, short)) = (sizes(&path), sizes(&copy));
    let page = rustix::param::page_size() as u64;
    // A page has 16 bytes of its own, and an entry 10 beside its key and its value: of a record, 8 and 96 bytes, and of an
    // index, its field and the key of 8 bytes.
    for (size, bytes) in after.iter().zip([114, 22, 26]) {
        assert_eq!(size.leaf_pages, ENTRIES.div_ceil((page - 16) / bytes));
    }
    for (before, after) in before.iter().zip(&after).skip(1) {
        assert!(10 * after.leaf_pages < 8 * before.leaf_pages, "{before:?}");
    }
    // The rest: two first pages, those of the other collection, and one for each small table.
    let pages: u64 = after.iter().map(TableSize::pages).sum();
    assert!(short <= (pages + 30) * page, "{short} for {pages} pages");
    assert!(10 * short < 6 * long, "{short} of {long}");

    let db = open(&copy);
    assert_eq!(db.snapshot().unwrap().check::<Entry>().unwrap(), ENTRIES);
    assert_eq!(db.get::<Entry>(77u64).unwrap().unwrap(), entry(77));
    db.write(|tx| tx.insert(&entry(ENTRIES)).map(|_key| ()))
        .unwrap();
    drop(db);
    let db = open_with(Options::new().collection::<Other>(), &copy).unwrap();
    assert_eq!(db.get::<Other>(8u64).unwrap().unwrap(), other(8));
    drop(db);
    // Nothing else is left.
    let names = fs::read_dir(home.path()).unwrap();
    let mut names: Vec<_> = names.map(|name| name.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["a.db", "a.db-lock", "copy.db", "copy.db-lock"]);
    // SAFETY: nobody writes to the file meanwhile.
    let faults = unsafe { UntypedDatabase::check_pages(&copy) };
    assert!(matches!(faults, Ok::<_, Error>(faults) if faults.is_empty()));
}
