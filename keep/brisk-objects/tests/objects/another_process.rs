//! Several processes, some of which are killed.

use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use brisk_objects::Error;

use crate::ledger::{audit, book, open, open_with, options};

const WHAT: &str = "BRISK_OBJECTS_TEST";

/// This program, as another process that does what the first argument says. Behind `before`, if there is any.
pub fn another_process(before: &[&str], what: &str, place: &Path) -> Command {
    let own = std::env::current_exe().unwrap();
    let own = own.to_str().unwrap();
    let test = "another_process::as_another_process";
    let line: Vec<&str> = before
        .iter()
        .copied()
        .chain([own, "--exact", test, "--nocapture"])
        .collect();
    let mut command = Command::new(line[0]);
    command
        .args(&line[1..])
        .env(WHAT, format!("{what}:{}", place.display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// No test by itself: it is what the other processes run.
#[test]
fn as_another_process() {
    let Ok(asked) = std::env::var(WHAT) else {
        return;
    };
    let (what, place) = asked.split_once(':').unwrap();
    let place = Path::new(place);
    match what {
        "book" => {
            let db = open(place);
            let own = std::process::id();
            for number in 0.. {
                book(
                    &db,
                    number % 7,
                    format!("{own}-{number}"),
                    100 + i64::from(number),
                )
                .unwrap();
                println!("booked {number}");
            }
        }
        "some" => {
            let db = open(place);
            let own = std::process::id();
            for number in 0..200 {
                book(&db, number % 7, format!("{own}-{number}"), 1).unwrap();
            }
        }
        "open" => match open_with(options(), place) {
            Ok(db) => {
                // As long as the other one does.
                db.snapshot()
                    .map(|snapshot| {
                        println!("reads");
                        std::io::stdin()
                            .lock()
                            .read_line(&mut String::new())
                            .unwrap();
                        drop(snapshot);
                    })
                    .unwrap_or_else(|e| println!("refused: {e}"));
            }
            Err(e) => println!("refused: {e}"),
        },
        "without indexes" => {
            #[derive(brisk_objects::Record)]
            #[record(name = "invoices")]
            struct Invoice {
                #[key(auto)]
                id: u64,
                account: u32,
                number: String,
                cents: i64,
            }
            let options = brisk_objects::Options::new().collection::<Invoice>();
            let db = open_with(options, place).unwrap();
            println!(
                "invoices {}",
                db.snapshot().unwrap().count::<Invoice>().unwrap()
            );
        }
        "count" => {
            let db = open(place);
            println!(
                "invoices {}",
                db.snapshot()
                    .unwrap()
                    .count::<crate::ledger::Invoice>()
                    .unwrap()
            );
        }
        "reads only" => {
            // Another user than the one the file belongs to.
            let nobody = rustix::fs::Uid::from_raw(65_534);
            rustix::thread::set_thread_uid(nobody).unwrap();
            // SAFETY: nobody writes to the file meanwhile.
            match unsafe { options().open_read_only(place) } {
                Ok(db) => println!("invoices {}", audit(&db)),
                Err(e) => println!("refused: {e}"),
            }
            match open_with(options(), place) {
                Ok(_) => println!("may write"),
                Err(_) => println!("may not write"),
            }
        }
        "lazily" => {
            let options = options().durability(brisk_objects::Durability::Lazy);
            let db = open_with(options, place).unwrap();
            for number in 0..200 {
                book(&db, number % 7, number.to_string(), 1).unwrap();
            }
            println!("booked 200");
            std::io::stdin()
                .lock()
                .read_line(&mut String::new())
                .unwrap();
        }
        "readers" => {
            let db = open(place);
            let held: Vec<_> = (0..100).map(|_| db.snapshot().unwrap()).collect();
            println!("reads {}", held.len());
            std::io::stdin()
                .lock()
                .read_line(&mut String::new())
                .unwrap();
        }
        other => crate::killed_openings::work(other, place),
    }
}

/// How many invoices another process sees.
pub fn count_invoices(path: &Path) -> u64 {
    counted(path, "count")
}

/// Another program opens the file, whose invoices have no index.
pub fn open_without_indexes(path: &Path) {
    assert_eq!(counted(path, "without indexes"), 1);
}

/// Another process writes 200 transactions.
pub fn book_some(path: &Path) {
    let done = another_process(&[], "some", path).output().unwrap();
    assert!(done.status.success(), "{done:?}");
}

fn counted(path: &Path, what: &str) -> u64 {
    let output = another_process(&[], what, path).output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    let count = told.lines().find_map(|line| line.strip_prefix("invoices "));
    count.unwrap_or_else(|| panic!("{told}")).parse().unwrap()
}

#[test]
fn writers_that_are_killed_again_and_again_leave_whole_transactions() {
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = home.path().join("ledger.db");
    let mut before = 0;
    for round in 0..20 {
        let mut writers: Vec<_> = (0..2)
            .map(|_| another_process(&[], "book", &path).spawn().unwrap())
            .collect();
        let mut told = 0;
        for writer in &mut writers {
            let lines = BufReader::new(writer.stdout.take().unwrap()).lines();
            let booked = lines
                .map(Result::unwrap)
                .filter(|line| line.starts_with("booked"));
            told += booked.take(round % 6).count() as u64;
            writer.kill().unwrap();
        }
        for writer in &mut writers {
            assert_eq!(writer.wait().unwrap().signal(), Some(9));
        }
        let after = audit(&open(&path));
        assert!(after >= before + told, "{before} {told} {after}");
        before = after;
    }
    assert!(before > 50);
}

#[test]
fn processes_write_in_turns() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = home.path().join("ledger.db");
    let db = open(&path);
    let start = || another_process(&[], "some", &path).spawn().unwrap();
    let writers: Vec<_> = (0..3).map(|_| start()).collect();
    for number in 0..200u32 {
        book(&db, number % 7, format!("own-{number}"), 1).unwrap();
    }
    for writer in writers {
        let output = writer.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    assert_eq!(audit(&db), 800);
}

#[test]
fn places_of_killed_readers_are_taken_back() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = home.path().join("ledger.db");
    let db = open_with(options().readers(120), &path).unwrap();
    let mut reader = another_process(&[], "readers", &path);
    let mut reader = reader.stdin(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(reader.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("reads 100")));
    let most: Vec<_> = (0..20).map(|_| db.snapshot().unwrap()).collect();
    let Err(e) = db.snapshot() else {
        panic!("there is no place");
    };
    assert!(matches!(e, Error::TooManyReaders { most: 120 }), "{e}");
    reader.kill().unwrap();
    reader.wait().unwrap();
    drop(db.snapshot().unwrap());
    drop(most);
}

/// A database of one account, of which a process that was killed has seen the state before all changes.
fn with_killed_readers(path: &Path, limit: u64) -> brisk_objects::Database {
    let db = open_with(options().readers(200).limit(limit), path).unwrap();
    book(&db, 1, "first".to_owned(), 1).unwrap();
    let mut reader = another_process(&[], "readers", path);
    let mut reader = reader.stdin(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(reader.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("reads 100")));
    reader.kill().unwrap();
    reader.wait().unwrap();
    db
}

fn change(db: &brisk_objects::Database, cents: i64) -> Result<(), Error> {
    let account = crate::ledger::Account {
        id: 1,
        cents,
        invoices: 1,
    };
    db.write(|tx| tx.update(&account))
}

#[test]
fn a_writer_takes_back_what_killed_readers_hold() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = home.path().join("ledger.db");
    let db = with_killed_readers(&path, 8 << 20);
    // Each change takes three pages or more, so these would take more than the limit.
    for cents in 0..1000 {
        change(&db, cents).unwrap();
    }
}

#[test]
fn a_full_file_takes_back_what_killed_readers_hold() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = home.path().join("ledger.db");
    let db = with_killed_readers(&path, 256 << 10);
    let full = (0..60).find_map(|cents| change(&db, cents).err());
    assert!(matches!(full, Some(Error::Full { .. })), "{full:?}");
    for cents in 0..60 {
        change(&db, cents).unwrap();
    }
}

#[test]
fn a_lock_file_that_root_makes_belongs_to_the_owner_of_the_file() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = home.path().join("ledger.db");
    let lock = home.path().join("ledger.db-lock");
    drop(open(&path));
    std::fs::remove_file(&lock).unwrap();
    chown(&path, Some(65_534), Some(65_533)).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o460)).unwrap();
    let db = open(&path);
    let made = std::fs::metadata(&lock).unwrap();
    // Whatever the mode, the owner can write to it.
    assert_eq!(
        (made.uid(), made.gid(), made.mode() & 0o7777),
        (65_534, 65_533, 0o660)
    );
    book(&db, 1, "first".to_owned(), 1).unwrap();
    assert_eq!(count_invoices(&path), 1);
    drop(db);
    // One that is there is left as it is.
    chown(&lock, Some(0), Some(0)).unwrap();
    drop(open(&path));
    assert_eq!(std::fs::metadata(&lock).unwrap().uid(), 0);
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 2);
}

/// As in two containers that share a file: both processes have the number 1.
#[test]
fn a_process_with_the_same_number_is_refused() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = home.path().join("ledger.db");
    let container = ["unshare", "--pid", "--fork", "--kill-child"];
    let mut first = another_process(&container, "open", &path);
    let mut first = first.stdin(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(first.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("reads")));
    let second = another_process(&container, "open", &path)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let told = String::from_utf8(second.stdout).unwrap();
    let expected = format!(
        "refused: another process with the same number has {} open, as in two containers that share it",
        path.display()
    );
    assert!(told.contains(&expected), "{told}");
    drop(first.stdin.take());
    assert!(first.wait().unwrap().success());
}

#[test]
fn a_file_that_another_process_lets_grow_has_to_be_opened_anew() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = home.path().join("ledger.db");
    let limit = 256 << 10;
    let db = open_with(options().limit(limit), &path).unwrap();
    book(&db, 1, "first".to_owned(), 1).unwrap();
    let len = || std::fs::metadata(&path).unwrap().len();
    let mut others = 0;
    while len() <= limit {
        book_some(&path);
        others += 200;
    }
    let refused = |e: Option<Error>| {
        let e = e.expect("it sees only a part");
        assert!(matches!(e, Error::HigherLimit { .. }), "{e}");
    };
    refused(db.snapshot().err());
    refused(book(&db, 1, "second".to_owned(), 1).err());
    drop(db);
    assert_eq!(audit(&open(&path)), others + 1);
}

#[test]
fn a_limit_that_reserves_too_many_addresses_is_named() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = home.path().join("ledger.db");
    // 8 GB, and the usual limit is 1 TiB.
    let few = ["sh", "-c", "ulimit -v 8000000; exec \"$0\" \"$@\""];
    let output = another_process(&few, "without indexes", &path).output();
    let told = String::from_utf8(output.unwrap().stderr).unwrap();
    let expected = "its limit reserves 1099511627776 bytes of addresses, perhaps more than this process may have (ulimit -v): \
                    name a lower limit";
    assert!(told.contains(expected), "{told}");
}
