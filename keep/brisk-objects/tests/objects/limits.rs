//! What a file, a key and a disk have room for.

use std::path::Path;
use std::process::Command;

use brisk_objects::{Error, Options, Record};

use crate::ledger::{audit, book, invoice, open_with, options};

#[test]
fn a_full_file_refuses_a_transaction_and_goes_on() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = home.path().join("ledger.db");
    let db = open_with(options().limit(1 << 20), &path).unwrap();
    let e = fill(&db);
    assert_eq!(
        e.to_string(),
        "the database has reached its limit of 1048576 bytes; open it with a higher one"
    );
    let booked = audit(&db);
    drop(db);
    let db = open_with(options().limit(4 << 20), &path).unwrap();
    book(&db, 3, "more".to_owned(), 1).unwrap();
    assert_eq!(audit(&db), booked + 1);
}

/// Books until that fails.
fn fill(db: &brisk_objects::Database) -> Error {
    for number in 0.. {
        let text = format!("{number:0200}");
        if let Err(e) = book(db, number % 5, text, 1) {
            return e;
        }
    }
    unreachable!()
}

/// Mounts a small filesystem until it is dropped.
struct Small<'p>(&'p Path);

impl<'p> Small<'p> {
    fn mount(place: &'p Path) -> Self {
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
            .arg(place);
        assert!(mount.status().unwrap().success());
        Self(place)
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        let done = Command::new("umount").arg("--lazy").arg(self.0).status();
        assert!(done.unwrap().success());
    }
}

#[test]
fn a_full_disk_refuses_a_transaction_and_loses_nothing() {
    let home = tempfile::tempdir().unwrap();
    let small = Small::mount(home.path());
    let path = home.path().join("ledger.db");
    let db = open_with(options(), &path).unwrap();
    let e = fill(&db);
    let Error::Io(e) = &e else {
        panic!("{e}");
    };
    assert_eq!(e.kind(), std::io::ErrorKind::StorageFull);
    let booked = audit(&db);
    assert!(booked > 100);
    drop(db);
    let db = open_with(options(), &path).unwrap();
    assert_eq!(audit(&db), booked);
    drop(db);
    drop(small);
}

#[derive(Record, Debug, Clone, PartialEq)]
struct Named {
    #[key]
    name: String,
    #[index]
    group: String,
}

#[test]
fn long_keys_are_refused_and_the_transaction_goes_on() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = home.path().join("named.db");
    let db = open_with(Options::new().collection::<Named>(), &path).unwrap();
    let named = |name: usize, group: usize| Named {
        name: "n".repeat(name),
        group: "g".repeat(group),
    };
    db.write(|tx| {
        let e = tx.insert(&named(600, 1)).unwrap_err();
        assert_eq!(
            e.to_string(),
            "a key of named has 608 bytes, allowed are 1 to 511; use a digest of its text (brisk_objects::key_digest)"
        );
        let e = tx.insert(&named(300, 300)).unwrap_err();
        assert_eq!(
            e.to_string(),
            "an entry of an index of named has 604 bytes, allowed are 1 to 511; use a digest of its text \
             (brisk_objects::key_digest)"
        );
        // What the docs of `key_digest` say: 504 bytes for a key, and 511 for an entry of an index.
        assert!(tx.insert(&named(503, 1)).is_err());
        for name in [501, 502] {
            tx.insert(&named(name, 1))?;
            tx.delete::<Named>(named(name, 1).name)?;
        }
        assert!(tx.insert(&named(100, 408)).is_err());
        tx.insert(&named(100, 407))?;
        tx.delete::<Named>(named(100, 1).name)?;
        tx.insert(&named(500, 1)).map(|_key| ())
    })
    .unwrap();
    let snapshot = db.snapshot().unwrap();
    assert_eq!(snapshot.check::<Named>().unwrap(), 1);
    // Longer ones than there can be are asked for all the same.
    let query = || snapshot.query::<Named>();
    let (long, key) = ("n".repeat(2000), "n".repeat(500));
    assert!(snapshot.get::<Named>(long.as_str()).unwrap().is_none());
    for (range, expected) in [
        (query().range(long.as_str()..), 0),
        (query().range(..long.as_str()), 1),
        (query().range(..=long.as_str()), 1),
        (query().range(key.as_str()..long.as_str()), 1),
        (query().is(long.as_str()), 0),
        (query().starts_with(&long), 0),
        (query().starts_with(&key), 1),
        (query().starts_with(""), 1),
    ] {
        assert_eq!(range.count().unwrap(), expected, "{range:?}");
        assert_eq!(range.rev().count().unwrap(), expected);
    }
}

/// As with SQLite's `integer primary key`: a key that is given is that of the record.
#[test]
fn a_key_that_is_given_is_kept_though_keys_are_automatic() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = home.path().join("ledger.db");
    let db = open_with(options(), &path).unwrap();
    let with_id = |id: u64, number: &str| crate::ledger::Invoice {
        id,
        ..invoice(1, number, 1)
    };
    db.write(|tx| {
        assert_eq!(tx.insert(&with_id(7, "a"))?, 7);
        assert_eq!(tx.insert(&with_id(0, "b"))?, 8);
        assert_eq!(tx.insert(&with_id(3, "c"))?, 3);
        assert_eq!(tx.insert(&with_id(0, "d"))?, 9);
        let e = tx.insert(&with_id(7, "e")).unwrap_err();
        assert_eq!(
            e.to_string(),
            "invoices has a record with the key 7 already; update it, or upsert"
        );
        Ok::<_, Error>(())
    })
    .unwrap();
    let snapshot = db.snapshot().unwrap();
    let all = snapshot.query::<crate::ledger::Invoice>();
    let all: Vec<_> = all
        .iter()
        .unwrap()
        .map(|one| one.map(|one| (one.id(), one.number().to_owned())).unwrap())
        .collect();
    let expected = [(3, "c"), (7, "a"), (8, "b"), (9, "d")];
    assert_eq!(all, expected.map(|(id, number)| (id, number.to_owned())));
}

#[test]
fn automatic_keys_are_not_used_again() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = home.path().join("ledger.db");
    let mut db = open_with(options(), &path).unwrap();
    let mut ids = Vec::new();
    for number in 0..6 {
        let id = db.write(|tx| {
            let id = tx.insert(&invoice(1, number.to_string(), 1))?;
            tx.delete::<crate::ledger::Invoice>(id)?;
            Ok::<_, Error>(id)
        });
        ids.push(id.unwrap());
        // What was given up has used none.
        let mut tx = db.begin().unwrap();
        tx.insert(&invoice(1, "given up", 1)).unwrap();
        drop(tx);
        if number == 3 {
            drop(db);
            db = open_with(options(), &path).unwrap();
        }
    }
    assert_eq!(ids, [1, 2, 3, 4, 5, 6]);
    // One that was stored under a key of its own is not overwritten.
    let own = crate::ledger::Invoice {
        id: 100,
        ..invoice(1, "own", 1)
    };
    let id = db.write(|tx| {
        tx.upsert(&own)?;
        tx.insert(&invoice(1, "next", 1))
    });
    assert_eq!(id.unwrap(), 101);
    // In one transaction, too, and though it is deleted.
    let ids = db.write(|tx| {
        let first = tx.insert(&invoice(1, "a", 1))?;
        let own = |id, number: &str| crate::ledger::Invoice {
            id,
            ..invoice(1, number, 1)
        };
        tx.upsert(&own(first + 1, "b"))?;
        tx.upsert(&own(200, "c"))?;
        tx.delete::<crate::ledger::Invoice>(200)?;
        Ok::<_, Error>((first, tx.insert(&invoice(1, "d", 1))?))
    });
    assert_eq!(ids.unwrap(), (102, 201));
    let last = crate::ledger::Invoice {
        id: u64::MAX,
        ..invoice(1, "last", 1)
    };
    let e = db.write(|tx| {
        tx.upsert(&last)?;
        tx.insert(&invoice(1, "behind", 1))
    });
    assert_eq!(
        e.unwrap_err().to_string(),
        "invoices has a record with the largest key, so there is no next one; choose the keys yourself"
    );
}

#[test]
fn a_copy_has_all_records_and_no_unused_pages() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let (path, copy) = (home.path().join("ledger.db"), home.path().join("copy.db"));
    let db = open_with(options(), &path).unwrap();
    for number in 0..3_000u32 {
        book(&db, number % 7, number.to_string(), 1).unwrap();
    }
    // A file of somebody else that has a name as of an unfinished copy.
    let part = home
        .path()
        .join(format!("copy.db.{}-0.part", std::process::id()));
    std::fs::write(&part, "mine").unwrap();
    db.copy_to(&copy).unwrap();
    assert_eq!(std::fs::read_to_string(&part).unwrap(), "mine");
    std::fs::remove_file(&part).unwrap();
    let len = |path: &Path| std::fs::metadata(path).unwrap().len();
    assert!(len(&copy) < len(&path));
    // What is written later is not in it, and no file is replaced.
    book(&db, 1, "later".to_owned(), 1).unwrap();
    let e = db.copy_to(&copy).unwrap_err();
    assert!(
        matches!(&e, Error::Io(e) if e.kind() == std::io::ErrorKind::AlreadyExists),
        "{e}"
    );
    assert_eq!(audit(&open_with(options(), &copy).unwrap()), 3_000);
    let entries = std::fs::read_dir(home.path()).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(
        names,
        ["copy.db", "copy.db-lock", "ledger.db", "ledger.db-lock"]
    );
}

#[test]
fn a_snapshot_of_its_own_outlives_the_handle_and_goes_to_other_threads() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = home.path().join("ledger.db");
    let db = open_with(options(), &path).unwrap();
    book(&db, 1, "first".to_owned(), 100).unwrap();
    let snapshot = db.owned_snapshot().unwrap();
    book(&db, 1, "second".to_owned(), 1).unwrap();
    drop(db);
    let cents = std::thread::spawn(move || {
        let account = snapshot.get::<crate::ledger::Account>(1).unwrap().unwrap();
        account.cents()
    });
    assert_eq!(cents.join().unwrap(), 100);
    // With it, the file was closed.
    assert_eq!(audit(&open_with(options(), &path).unwrap()), 2);
}
