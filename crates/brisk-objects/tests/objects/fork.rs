//! Children of a fork.

use brisk_objects::Error;

use crate::ledger::{Account, audit, book, open};

/// Whether `child` is true in a forked child.
fn in_child(child: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child allocates, which the C library allows it, and ends by `_exit`.
    match unsafe { libc::fork() } {
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
