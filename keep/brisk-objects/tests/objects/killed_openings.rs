//! Processes that are killed while they migrate records or build an index.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use brisk_objects::{Database, Error, Options, Record};

use crate::another_process::another_process;
use crate::ledger::open_with;

const BOOKS: u32 = 3_000;

mod before {
    #[derive(brisk_objects::Record, Debug, Clone, PartialEq)]
    pub struct Book {
        #[key]
        pub id: u32,
        pub title: String,
    }
}

/// The same with an index.
mod indexed {
    #[derive(brisk_objects::Record, Debug, Clone, PartialEq)]
    pub struct Book {
        #[key]
        pub id: u32,
        #[unique]
        pub title: String,
    }
}

/// Another layout, with an index.
mod after {
    #[derive(brisk_objects::Record, Debug, Clone, PartialEq)]
    pub struct Book {
        #[key]
        pub id: u32,
        #[index]
        pub title: String,
        pub pages: Option<u32>,
    }
}

fn title(id: u32) -> String {
    format!("{:0100}", id.wrapping_mul(0x9e37_79b9))
}

fn open<R: Record>(path: &Path) -> Result<Database, Error> {
    open_with(Options::new().collection::<R>().limit(64 << 20), path)
}

/// Opens a file with the later layout. The process ends when it comes to the book of this number.
fn open_migrating(path: &Path, end_at: u32) -> Result<Database, Error> {
    let options = Options::new()
        .collection::<after::Book>()
        .limit(64 << 20)
        .migration::<before::Book, after::Book, Error>(move |old| {
            if old.id() == end_at {
                end();
            }
            Ok(after::Book {
                id: old.id(),
                title: old.title().to_owned(),
                pages: None,
            })
        });
    open_with(options, path)
}

/// Ends this process, and nothing of it is tidied up.
fn end() -> ! {
    // SAFETY: it takes a number.
    unsafe { libc::raise(libc::SIGKILL) };
    unreachable!()
}

/// What the other process does: `what` is `index` or `migrate`, where the process ends: at this byte of the file, and at this
/// book.
pub fn work(what: &str, path: &Path) {
    let words: Vec<&str> = what.split(' ').collect();
    let [what, bytes, book] = words[..] else {
        panic!("{words:?}");
    };
    let limit = libc::rlimit {
        rlim_cur: bytes.parse().unwrap(),
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: it reads the limit, which lives as long.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) }, 0);
    let done = match what {
        "index" => open::<indexed::Book>(path),
        _ => open_migrating(path, book.parse().unwrap()),
    };
    match done {
        Ok(_) => println!("done"),
        // The limit was within one write, which wrote less then. What comes behind it ends the process.
        Err(_) => end(),
    }
}

fn fill(path: &Path) {
    let db = open::<before::Book>(path).unwrap();
    let book = |id| before::Book {
        id,
        title: title(id),
    };
    db.write(|tx| (0..BOOKS).try_for_each(|id| tx.insert(&book(id)).map(|_id| ())))
        .unwrap();
}

/// All is as before, for a program of before.
fn check_before(path: &Path) {
    let db = open::<before::Book>(path).unwrap();
    let snapshot = db.snapshot().unwrap();
    assert_eq!(snapshot.check::<before::Book>().unwrap(), u64::from(BOOKS));
    let last = snapshot.get::<before::Book>(BOOKS - 1).unwrap().unwrap();
    assert_eq!(last.title(), title(BOOKS - 1));
}

/// Has other processes do this, which are killed at all places of the file that they write to.
fn kill_everywhere(what: &str, done: impl Fn(&Path)) {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let (path, copy) = (home.path().join("books.db"), home.path().join("copy.db"));
    fill(&path);
    fs::copy(&path, &copy).unwrap();
    done(&copy);
    let len = |path: &Path| fs::metadata(path).unwrap().len();
    let (first, end) = (len(&path), len(&copy));
    let run = |bytes: u64, book: u32| {
        let what = format!("{what} {bytes} {book}");
        another_process(&[], &what, &path).output().unwrap()
    };
    let places = (first..end).step_by(((end - first) / 20) as usize);
    assert!(places.clone().count() >= 20);
    for bytes in places {
        let killed = run(bytes, u32::MAX);
        assert!(killed.status.signal().is_some(), "{bytes}: {killed:?}");
        check_before(&path);
    }
    if what == "migrate" {
        for book in [0, BOOKS / 2, BOOKS - 1] {
            let killed = run(u64::MAX, book);
            assert_eq!(killed.status.signal(), Some(libc::SIGKILL), "{killed:?}");
            check_before(&path);
        }
    }
    let whole = run(u64::MAX, u32::MAX);
    assert!(whole.status.success(), "{whole:?}");
    done(&path);
}

#[test]
fn a_migration_that_is_killed_has_changed_nothing() {
    kill_everywhere("migrate", |path| {
        let db = open_migrating(path, u32::MAX).unwrap();
        let snapshot = db.snapshot().unwrap();
        assert_eq!(snapshot.check::<after::Book>().unwrap(), u64::from(BOOKS));
        let by_title = snapshot.query::<after::Book>().by(after::Book::TITLE);
        let found = by_title.is(title(7)).first().unwrap().unwrap();
        assert_eq!((found.id, found.pages), (7, None));
    });
}

#[test]
fn an_index_whose_building_is_killed_is_built_by_the_next_program() {
    kill_everywhere("index", |path| {
        let db = open::<indexed::Book>(path).unwrap();
        let snapshot = db.snapshot().unwrap();
        assert_eq!(snapshot.check::<indexed::Book>().unwrap(), u64::from(BOOKS));
        let by_title = snapshot.query::<indexed::Book>().by(indexed::Book::TITLE);
        assert_eq!(by_title.is(title(7)).first().unwrap().unwrap().id, 7);
    });
}
