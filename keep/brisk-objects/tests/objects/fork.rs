//! Children of a fork.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use brisk_objects::{Error, Plain, Record, UntypedDatabase, UntypedWriter};

use crate::another_process::book_some;
use crate::ledger::{Account, audit, book, open};

/// A child that waits so many seconds has failed.
const PATIENCE: u32 = 20;

/// Forks. Returns the number of the child, and 0 in the child.
fn fork() -> libc::pid_t {
    // SAFETY: the child allocates, which the C library allows it, and ends by `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: it takes a number.
        unsafe { libc::alarm(PATIENCE) };
    }
    child
}

/// Whether `child` is true in a forked child.
fn in_child(child: impl FnOnce() -> bool) -> bool {
    match fork() {
        0 => {
            let right = child();
            // SAFETY: it takes a number and does not return.
            unsafe { libc::_exit(i32::from(!right)) }
        }
        child => {
            let mut status = 0;
            // SAFETY: it writes a number to where one is.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            status == 0
        }
    }
}

#[test]
fn a_child_is_refused_and_disturbs_nothing() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let db = open(&home.path().join("ledger.db"));
    book(&db, 1, "first".to_owned(), 100).unwrap();
    let snapshot = db.snapshot().unwrap();
    let transaction = db.begin().unwrap();
    let (of_child, snapshot_of_child) = (db.clone(), db.snapshot().unwrap());
    let mut held = Some((transaction, snapshot_of_child));
    assert!(in_child(|| {
        let is_refused = |e: &Error| matches!(e, Error::Forked);
        let reads = of_child.snapshot().err().is_some_and(|e| is_refused(&e));
        let writes = of_child.begin().err().is_some_and(|e| is_refused(&e));
        // Their places and locks are the parent's.
        drop(held.take());
        reads && writes
    }));
    // The parent's snapshot still holds its pages: what is written meanwhile takes none of them.
    drop(held);
    for number in 0..300 {
        book(&db, 2, number.to_string(), 1).unwrap();
    }
    assert_eq!(snapshot.check::<Account>().unwrap(), 1);
    assert_eq!(snapshot.get::<Account>(1).unwrap().unwrap().cents(), 100);
    assert_eq!(audit(&db), 301);
}

fn is_refused<T>(done: Result<T, Error>) -> bool {
    matches!(done, Err(Error::Forked))
}

#[test]
fn a_child_neither_reads_nor_ends_what_its_parent_looks_at_without_types() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = home.path().join("ledger.db");
    let db = open(&path);
    for number in 0..50u32 {
        book(&db, number % 7, number.to_string(), 1).unwrap();
    }
    drop(db);
    // SAFETY: nothing but LMDB writes to the file while somebody reads it.
    let mut database = Some(unsafe { UntypedDatabase::open(&path) }.unwrap());
    assert!(in_child(|| {
        let database = database.take().unwrap();
        let accounts = database.collection("account").unwrap();
        let is_right = is_refused(accounts.get(&[Plain::Unsigned(1)]))
            && is_refused(accounts.len())
            && is_refused(accounts.query().iter())
            && is_refused(accounts.check(|_fault| Ok::<_, Error>(())))
            && is_refused(database.about_size());
        drop(database);
        is_right
    }));
    // The parent still holds its pages: what another process writes takes none of them.
    for _ in 0..3 {
        book_some(&path);
    }
    let database = database.unwrap();
    let check = |name| {
        let found = database.collection(name).unwrap();
        found.check(|fault| panic!("{fault}")).map_err(|e: Error| e)
    };
    assert_eq!(check("invoices").unwrap(), 50);
    assert_eq!(check("account").unwrap(), 7);
}

/// Adds an account. A child that is forked meanwhile tries that, too.
fn write_and_fork(path: &Path) {
    let mut child = -1;
    let work = |writer: &mut UntypedWriter<'_>| {
        let layout = Account::SCHEMA.layout_text();
        let number = writer.collection("account", &layout, &[], None)?;
        child = fork();
        if child > 0 {
            let mut status = 0;
            // SAFETY: it writes a number to where one is.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0);
        }
        let account = [
            ("id", Plain::Unsigned(99)),
            ("cents", Plain::Signed(0)),
            ("invoices", Plain::Unsigned(0)),
        ];
        let put = writer.put(number, &Plain::Struct(account.into()), false);
        match child {
            // Were it not refused, the child would commit.
            0 => is_refused(put).then_some(()).ok_or(Error::Failed),
            _ => put.map(|was_there| assert!(!was_there)),
        }
    };
    // SAFETY: nothing but LMDB writes to the file.
    let done = unsafe { UntypedDatabase::write(path, 64 << 20, work) };
    if child == 0 {
        // SAFETY: it takes a number and does not return.
        unsafe { libc::_exit(i32::from(!is_refused(done))) };
    }
    done.unwrap();
}

#[test]
fn a_child_of_who_writes_without_types_writes_nothing() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let (old, new) = (home.path().join("old.db"), home.path().join("new.db"));
    book(&open(&old), 1, "first".to_owned(), 100).unwrap();
    for path in [old, new] {
        write_and_fork(&path);
        let db = open(&path);
        let snapshot = db.snapshot().unwrap();
        assert_eq!(snapshot.get::<Account>(99).unwrap().unwrap().invoices(), 0);
        book(&db, 1, "next".to_owned(), 1).unwrap();
    }
}

#[test]
fn a_child_waits_for_no_lock_that_another_thread_had() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let (own, other) = (home.path().join("own.db"), home.path().join("other.db"));
    let mut db = Some(open(&own));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                drop(open(&other));
            }
        });
        for _ in 0..200 {
            let is_right = in_child(|| {
                drop(db.take());
                true
            });
            is_over.fetch_or(!is_right, Ordering::Relaxed);
            assert!(is_right, "the child waits");
        }
        is_over.store(true, Ordering::Relaxed);
    });
}
