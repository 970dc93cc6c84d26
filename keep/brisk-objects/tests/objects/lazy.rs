//! Commits that wait for no disk.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use brisk_objects::{Database, Durability};

use crate::another_process::another_process;
use crate::ledger::{audit, book, open, open_with, options};

fn open_lazily(path: &Path) -> Database {
    open_with(options().durability(Durability::Lazy), path).unwrap()
}

fn fill(db: &Database, from: u32) {
    for number in from..from + 100 {
        book(db, number % 7, number.to_string(), 1).unwrap();
    }
}

#[test]
fn a_file_is_marked_until_all_is_on_the_disk() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("ledger.db");
    let mark = home.path().join("ledger.db-lazy");
    let db = open_lazily(&path);
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    assert_eq!(fs::read_to_string(&mark).unwrap(), boot);
    fill(&db, 0);
    db.sync().unwrap();
    // More may come.
    assert!(mark.exists());
    let clone = db.clone();
    drop(db);
    assert!(mark.exists());
    drop(clone);
    assert!(!mark.exists());
    assert_eq!(audit(&open(&path)), 100);
}

#[test]
fn commits_do_not_wait_for_the_disk() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("ledger.db");
    let syncs = |lazily: bool| {
        let what = if lazily { "lazily" } else { "some" };
        let trace = home.path().join("trace");
        let trace = [
            "strace",
            "-f",
            "-c",
            "-U",
            "name,calls",
            "-o",
            trace.to_str().unwrap(),
        ];
        let before = [
            &trace[..],
            &["-e", "trace=fsync,fdatasync,sync_file_range,msync"],
        ]
        .concat();
        let mut command = another_process(&before, what, &path);
        assert!(
            command
                .stdin(Stdio::null())
                .output()
                .unwrap()
                .status
                .success()
        );
        let told = fs::read_to_string(home.path().join("trace")).unwrap();
        let total = told
            .lines()
            .find(|line| line.contains("total"))
            .unwrap_or("total 0");
        total
            .split_whitespace()
            .last()
            .unwrap()
            .parse::<u32>()
            .unwrap()
    };
    // The mark, its directory, and the file when it is closed.
    assert_eq!(syncs(true), 3);
    assert!(syncs(false) >= 200);
}

#[test]
fn a_file_of_a_killed_process_is_whole_and_goes_on() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("ledger.db");
    let mark = home.path().join("ledger.db-lazy");
    let mut command = another_process(&[], "lazily", &path);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(child.stdout.take().unwrap());
    assert!(said.lines().any(|line| line.unwrap() == "booked 200"));
    // While others commit so, the mark stays.
    drop(open_lazily(&path));
    drop(open(&path));
    assert!(mark.exists());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(mark.exists());
    let db = open(&path);
    assert_eq!(audit(&db), 200);
    // All of it is on the disk now.
    assert!(!mark.exists());
}

#[test]
fn a_file_that_was_open_so_when_the_machine_stopped_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("ledger.db");
    let mark = home.path().join("ledger.db-lazy");
    fill(&open(&path), 0);
    fs::write(&mark, "another boot\n").unwrap();
    let said = format!(
        "the machine stopped while commits to {} waited for no disk, so pages of it may be missing; make it anew or restore it \
         from a copy, or, to take it as it is, check it (brisk db check) and remove {}",
        path.display(),
        mark.display()
    );
    for durability in [Durability::Full, Durability::Lazy] {
        let e = open_with(options().durability(durability), &path).unwrap_err();
        assert_eq!(e.to_string(), said);
    }
    // SAFETY: nobody writes to the file meanwhile.
    let e = unsafe { options().open_read_only(&path) }.unwrap_err();
    assert_eq!(e.to_string(), said);
    fs::remove_file(&mark).unwrap();
    assert_eq!(audit(&open(&path)), 100);
    // Its maker was killed before it had contents, and so before the first commit.
    fs::write(&mark, "").unwrap();
    assert_eq!(audit(&open(&path)), 100);
    assert!(!mark.exists());
}
