//! Types that change between two programs.

use std::path::Path;

use brisk_objects::{Error, Options, Record, UntypedDatabase};

use crate::ledger::open_with;

mod first {
    #[derive(brisk_objects::Record, Debug, PartialEq)]
    pub struct Book {
        #[key]
        pub id: u32,
        #[index]
        pub title: String,
        pub pages: u32,
    }
}

mod indexed {
    #[derive(brisk_objects::Record, Debug, PartialEq)]
    pub struct Book {
        #[key]
        pub id: u32,
        #[unique]
        pub title: String,
        #[index]
        pub pages: u32,
    }
}

mod longer {
    #[derive(brisk_objects::Record, Debug, PartialEq)]
    pub struct Book {
        #[key]
        pub id: u32,
        pub title: String,
        pub pages: Option<u32>,
    }
}

mod numbered {
    #[derive(brisk_objects::Record, Debug, PartialEq)]
    pub struct Note {
        #[key]
        pub id: u64,
        pub text: String,
    }
}

mod automatic {
    #[derive(brisk_objects::Record, Debug, PartialEq)]
    pub struct Note {
        #[key(auto)]
        pub id: u64,
        pub text: String,
    }
}

fn with<R: Record>(path: &Path) -> Result<brisk_objects::Database, Error> {
    open_with(Options::new().collection::<R>(), path)
}

fn fill(path: &Path, titles: &[&str]) {
    let db = with::<first::Book>(path).unwrap();
    db.write(|tx| {
        for (id, title) in (1..).zip(titles) {
            let title = (*title).to_owned();
            let pages = 1000 - id;
            tx.insert(&first::Book { id, title, pages })?;
        }
        Ok::<_, Error>(())
    })
    .unwrap();
}

#[test]
fn another_layout_is_refused_with_both() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = home.path().join("books.db");
    fill(&path, &["a"]);
    let e = with::<longer::Book>(&path).unwrap_err();
    assert_eq!(
        e.to_string(),
        "the records of book have the layout {id: u32, title: text, pages: u32} key id, but this program's have \
         {id: u32, title: text, pages: option<u32>} key id; give a migration, or open the file with the program that \
         wrote it"
    );
    // Nothing has changed.
    let db = with::<first::Book>(&path).unwrap();
    assert_eq!(db.get::<first::Book>(1).unwrap().unwrap().pages, 999);
}

/// The layout stays, but a file says in words whether its keys are automatic, and who dumps it writes that down.
#[test]
fn keys_become_automatic_and_stop_being_so() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = home.path().join("notes.db");
    let words = || {
        // SAFETY: nothing but LMDB writes to the file while somebody reads it.
        let database = unsafe { UntypedDatabase::open(&path) }.unwrap();
        let schema = *database.collection("note").unwrap().schema();
        (schema.layout_text(), schema.is_auto)
    };
    let text = || "a".to_owned();
    let first = numbered::Note {
        id: 7,
        text: text(),
    };
    with::<numbered::Note>(&path)
        .unwrap()
        .write(|tx| tx.insert(&first))
        .unwrap();
    assert_eq!(words(), ("{id: u64, text: text} key id".to_owned(), false));
    let next = automatic::Note {
        id: 0,
        text: text(),
    };
    let db = with::<automatic::Note>(&path).unwrap();
    assert_eq!(db.write(|tx| tx.insert(&next)).unwrap(), 8);
    drop(db);
    assert_eq!(
        words(),
        ("{id: u64, text: text} key id auto".to_owned(), true)
    );
    with::<numbered::Note>(&path).unwrap();
    assert!(!words().1);
}

#[test]
fn indexes_come_and_go_with_the_types() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = home.path().join("books.db");
    fill(&path, &["b", "a", "c"]);
    for _ in 0..2 {
        let db = with::<indexed::Book>(&path).unwrap();
        let snapshot = db.snapshot().unwrap();
        assert_eq!(snapshot.check::<indexed::Book>().unwrap(), 3);
        let by_pages = snapshot.query().by(indexed::Book::PAGES);
        let ids: Vec<(u32, u32)> = by_pages.keys().unwrap().map(Result::unwrap).collect();
        assert_eq!(ids, [(997, 3), (998, 2), (999, 1)]);
        let by_title = snapshot.query().by(indexed::Book::TITLE).is("a");
        assert_eq!(by_title.first().unwrap().unwrap().id, 2);
        drop((by_pages, by_title));
        drop(snapshot);
        drop(db);
        // It does not know the index of pages, so it must not leave it to go stale.
        let db = with::<first::Book>(&path).unwrap();
        db.write(|tx| {
            tx.delete::<first::Book>(3)?;
            tx.insert(&first::Book {
                id: 3,
                title: "c".to_owned(),
                pages: 997,
            })
        })
        .unwrap();
    }
}

#[test]
fn a_new_unique_index_is_refused_where_records_are_equal() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = home.path().join("books.db");
    fill(&path, &["b", "a", "b"]);
    let e = with::<indexed::Book>(&path).unwrap_err();
    assert_eq!(
        e.to_string(),
        "another record of book has \"b\" in the unique index title"
    );
    let db = with::<first::Book>(&path).unwrap();
    assert_eq!(db.snapshot().unwrap().check::<first::Book>().unwrap(), 3);
}

#[test]
fn a_process_opens_a_file_once_and_names_its_collections() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = home.path().join("books.db");
    let db = with::<first::Book>(&path).unwrap();
    let e = with::<first::Book>(&path).unwrap_err();
    assert_eq!(
        e.to_string(),
        format!(
            "this process has {} open already; clone its handle",
            path.display()
        )
    );
    let e = db.get::<crate::ledger::Account>(1).unwrap_err();
    assert_eq!(
        e.to_string(),
        "the database was opened without account; name it in the options"
    );
    // A type of the same name with another layout, or with other indexes, is another one.
    assert!(matches!(
        db.get::<indexed::Book>(1),
        Err(Error::Unknown { .. })
    ));
    assert!(matches!(
        db.get::<longer::Book>(1),
        Err(Error::Unknown { .. })
    ));
    drop(db);
    let stranger = home.path().join("stranger.db");
    std::fs::write(&stranger, [7; 8192]).unwrap();
    let e = with::<first::Book>(&stranger).unwrap_err();
    assert!(matches!(e, Error::Foreign { .. }), "{e}");
}

mod oldest {
    #[derive(brisk_objects::Record, Debug, PartialEq)]
    pub struct Book {
        #[key]
        pub title: String,
    }
}

/// By way of the first layout.
fn migrating() -> Options {
    Options::new()
        .collection::<longer::Book>()
        .migration::<first::Book, longer::Book, _>(|old| match old.pages() {
            0 => Err("it has no pages"),
            pages => Ok(longer::Book {
                id: old.id(),
                title: old.title().to_owned(),
                pages: Some(pages),
            }),
        })
        .migration::<oldest::Book, first::Book, _>(|old| {
            let title = old.title().to_owned();
            // Another key, in another order.
            let id = title.parse()?;
            Ok::<_, std::num::ParseIntError>(first::Book {
                id,
                title,
                pages: 7,
            })
        })
}

#[test]
fn records_are_migrated_step_by_step_and_once() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = home.path().join("books.db");
    let titles: Vec<String> = (1..=300).map(|number: u32| number.to_string()).collect();
    let db = with::<oldest::Book>(&path).unwrap();
    db.write(|tx| {
        titles.iter().try_for_each(|title| {
            let title = title.clone();
            tx.insert(&oldest::Book { title }).map(|_key| ())
        })
    })
    .unwrap();
    drop(db);
    // SAFETY: nothing else writes to the file.
    let would = unsafe { migrating().dry_run(&path) }.unwrap();
    let told: Vec<(&str, u64)> = would.iter().map(|step| (&*step.to, step.records)).collect();
    assert_eq!(
        told,
        [
            ("{id: u32, title: text, pages: u32} key id", 300),
            ("{id: u32, title: text, pages: option<u32>} key id", 300)
        ]
    );
    // Nothing has changed.
    assert_eq!(
        with::<oldest::Book>(&path)
            .unwrap()
            .snapshot()
            .unwrap()
            .check::<oldest::Book>()
            .unwrap(),
        300
    );
    for _ in 0..2 {
        let db = open_with(migrating(), &path).unwrap();
        let snapshot = db.snapshot().unwrap();
        assert_eq!(snapshot.check::<longer::Book>().unwrap(), 300);
        for id in 1..=300 {
            let book = snapshot.get::<longer::Book>(id).unwrap().unwrap();
            assert_eq!((book.title(), book.pages()), (&*id.to_string(), Some(7)));
        }
    }
    // The program that wrote it has no way back.
    assert!(matches!(
        with::<oldest::Book>(&path),
        Err(Error::Layout { .. })
    ));
    // SAFETY: nothing else writes to the file.
    assert_eq!(unsafe { migrating().dry_run(&path) }.unwrap(), []);
}

#[test]
fn a_migration_that_refuses_a_record_changes_nothing() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = home.path().join("books.db");
    let db = with::<first::Book>(&path).unwrap();
    db.write(|tx| {
        for (id, pages) in [(1, 100), (2, 0), (3, 200)] {
            let title = id.to_string();
            tx.insert(&first::Book { id, title, pages })?;
        }
        Ok::<_, Error>(())
    })
    .unwrap();
    drop(db);
    let e = open_with(migrating(), &path).unwrap_err();
    assert_eq!(
        e.to_string(),
        "the record of book with the key 2 cannot be migrated: it has no pages; nothing has changed"
    );
    let db = with::<first::Book>(&path).unwrap();
    assert_eq!(db.snapshot().unwrap().check::<first::Book>().unwrap(), 3);
}

#[test]
fn opening_waits_for_no_writer_and_a_nested_transaction_is_refused() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = home.path().join("ledger.db");
    let db = crate::ledger::open(&path);
    let mut writes = db.begin().unwrap();
    writes
        .insert(&crate::ledger::invoice(1, "first", 1))
        .unwrap();
    let e = db.begin().unwrap_err();
    assert_eq!(
        e.to_string(),
        "this thread has a transaction already, for which another one would wait for ever; use that, or end it"
    );
    // Another process opens the file, and sees none of it.
    assert_eq!(crate::another_process::count_invoices(&path), 0);
    writes.commit().unwrap();
    assert_eq!(crate::another_process::count_invoices(&path), 1);
    // Each way in which a transaction ends lets the next one begin.
    drop(db.begin().unwrap());
    db.write(|tx| tx.delete::<crate::ledger::Invoice>(1))
        .unwrap();
    assert!(db.write(|_| Err::<(), _>(Error::Failed)).is_err());
    drop(db.begin().unwrap());
}

#[test]
fn a_program_whose_file_another_one_has_changed_is_refused() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = home.path().join("ledger.db");
    let db = crate::ledger::open(&path);
    crate::ledger::book(&db, 1, "first".to_owned(), 1).unwrap();
    let before = db.snapshot().unwrap();
    crate::another_process::open_without_indexes(&path);
    // What it sees has not changed.
    assert_eq!(before.check::<crate::ledger::Invoice>().unwrap(), 1);
    for e in [
        db.owned_snapshot().err().unwrap(),
        db.begin().err().unwrap(),
    ] {
        let told = format!(
            "another program has changed layouts or indexes of {} meanwhile; open it anew",
            path.display()
        );
        assert_eq!(e.to_string(), told);
    }
    drop(before);
    drop(db);
    let db = crate::ledger::open(&path);
    crate::ledger::book(&db, 1, "second".to_owned(), 1).unwrap();
    assert_eq!(crate::ledger::audit(&db), 2);
}

#[test]
fn options_and_files_that_would_go_wrong_are_refused() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = home.path().join("books.db");
    let two = Options::new()
        .collection::<first::Book>()
        .collection::<indexed::Book>();
    let e = open_with(two, &path).unwrap_err();
    assert_eq!(
        e.to_string(),
        "two types are named for the collection book; name the present one, and give a migration from the older"
    );
    // SAFETY: nothing else writes to the file.
    let would = unsafe { migrating().dry_run(&path) };
    assert_eq!(would.unwrap(), []);
    assert!(!path.exists());
    // A dry run leaves an empty file as it is, and a file of another program is left alone.
    let (empty, stranger) = (
        home.path().join("empty.db"),
        home.path().join("stranger.db"),
    );
    let tables = |path: &Path| {
        let mut options = heed::EnvOpenOptions::new();
        options.max_dbs(1).map_size(1 << 20);
        // SAFETY: nothing else has the file open. The flag is about names.
        unsafe { options.flags(heed::EnvFlags::NO_SUB_DIR) };
        // SAFETY: nothing else writes to the file.
        let env = unsafe { options.open(path) }.unwrap();
        let mut txn = env.write_txn().unwrap();
        let root: heed::Database<heed::types::Bytes, heed::types::Bytes> =
            env.create_database(&mut txn, None).unwrap();
        if path == stranger {
            root.put(&mut txn, b"key", b"value").unwrap();
        }
        let count = root.len(&txn).unwrap();
        txn.commit().unwrap();
        count
    };
    assert_eq!((tables(&empty), tables(&stranger)), (0, 1));
    // SAFETY: nothing else writes to the file.
    assert_eq!(unsafe { migrating().dry_run(&empty) }.unwrap(), []);
    let e = with::<first::Book>(&stranger).unwrap_err();
    assert_eq!(
        e.to_string(),
        format!(
            "{} is no database of brisk-objects: it has tables of another program",
            stranger.display()
        )
    );
    assert_eq!((tables(&empty), tables(&stranger)), (0, 1));
    let link = home.path().join("link.db");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let e = with::<first::Book>(&link).unwrap_err();
    assert_eq!(
        e.to_string(),
        format!("{} is a link to a file that does not exist", link.display())
    );
    fill(&path, &["a"]);
    // By a link it is the same file, with the same lock.
    let db = with::<first::Book>(&path).unwrap();
    assert!(matches!(
        with::<first::Book>(&link),
        Err(Error::OpenAlready { .. })
    ));
    drop(db);
    // Migrations that lead in a circle, and nowhere.
    let circle = Options::new()
        .collection::<longer::Book>()
        .migration::<first::Book, oldest::Book, _>(|old| {
            Ok::<_, Error>(oldest::Book {
                title: old.title().to_owned(),
            })
        })
        .migration::<oldest::Book, first::Book, _>(|old| {
            Ok::<_, Error>(first::Book {
                id: 1,
                title: old.title().to_owned(),
                pages: 1,
            })
        });
    assert!(matches!(
        open_with(circle, &path),
        Err(Error::Layout { .. })
    ));
}
