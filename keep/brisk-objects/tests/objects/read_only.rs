//! Files that are read where nothing may be written.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use brisk_objects::{Database, Error, Options, Record};

use crate::another_process::another_process;
use crate::ledger::{Invoice, audit, book, open, options};

fn open_read_only(options: Options, path: &Path) -> Result<Database, Error> {
    // SAFETY: nobody writes to the file meanwhile.
    unsafe { options.open_read_only(path) }
}

fn filled(home: &Path) -> PathBuf {
    let path = home.join("ledger.db");
    let db = open(&path);
    for number in 0..100 {
        book(&db, number % 7, number.to_string(), 1).unwrap();
    }
    path
}

fn names(home: &Path) -> Vec<String> {
    let entries = fs::read_dir(home).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_file_is_read_and_nothing_is_written_beside_it() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = filled(home.path());
    fs::remove_file(home.path().join("ledger.db-lock")).unwrap();
    let before = fs::read(&path).unwrap();
    let db = open_read_only(options(), &path).unwrap();
    assert_eq!(audit(&db), 100);
    assert_eq!(db.get::<Invoice>(7).unwrap().unwrap().number, "6");
    let copy = home.path().join("copy.db");
    db.copy_to(&copy).unwrap();
    let e = db.begin().unwrap_err();
    assert_eq!(
        e.to_string(),
        format!(
            "{} was opened to be read only; open it to be written",
            path.display()
        )
    );
    drop(db);
    assert_eq!(names(home.path()), ["copy.db", "ledger.db"]);
    assert!(fs::read(&path).unwrap() == before);
    assert_eq!(audit(&open(&copy)), 100);
}

/// A mount that can only be read, until it is dropped.
struct ReadOnlyMount<'p>(&'p Path);

impl Drop for ReadOnlyMount<'_> {
    fn drop(&mut self) {
        let done = Command::new("umount").arg("--lazy").arg(self.0).status();
        assert!(done.unwrap().success());
    }
}

#[test]
fn a_file_on_a_mount_that_can_only_be_read_is_read() {
    let home = tempfile::tempdir().unwrap();
    let path = filled(home.path());
    let mount = |arguments: &[&str]| {
        let status = Command::new("mount")
            .args(arguments)
            .arg(home.path())
            .status();
        assert!(status.unwrap().success());
    };
    mount(&["--bind", home.path().to_str().unwrap()]);
    let mounted = ReadOnlyMount(home.path());
    mount(&["-o", "remount,bind,ro"]);
    let db = open_read_only(options(), &path).unwrap();
    assert_eq!(audit(&db), 100);
    drop(db);
    drop(mounted);
}

#[test]
fn a_file_of_another_user_is_read() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = filled(home.path());
    // Its directory can be gone through, and not be listed.
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o711)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    fs::set_permissions(
        home.path().join("ledger.db-lock"),
        fs::Permissions::from_mode(0o600),
    )
    .unwrap();
    let output = another_process(&[], "reads only", &path).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("invoices 100\nmay not write\n"), "{said}");
}

#[derive(Record, Debug)]
#[record(name = "invoices")]
struct ByCents {
    #[key(auto)]
    id: u64,
    account: u32,
    number: String,
    #[index]
    cents: i64,
}

#[derive(Record, Debug)]
struct Other {
    #[key]
    id: u32,
}

#[derive(Record, Debug)]
#[record(name = "invoices")]
struct Longer {
    #[key]
    id: u64,
    account: u32,
}

#[test]
fn a_file_that_would_have_to_be_changed_is_refused() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = filled(home.path());
    for (options, said) in [
        (
            Options::new().collection::<ByCents>(),
            format!(
                "{} cannot be opened to be read only: it lacks the indexes of invoices, or has others; open it once to be \
                 written, with the same collections",
                path.display()
            ),
        ),
        (
            Options::new().collection::<Other>(),
            format!(
                "{} cannot be opened to be read only: it lacks the collection other; open it once to be written, with the \
                 same collections",
                path.display()
            ),
        ),
        (
            Options::new().collection::<Longer>(),
            "the records of invoices have the layout {id: u64, account: u32, number: text, cents: i64} key id auto, but \
             this program's have {id: u64, account: u32} key id; give a migration, or open the file with the program that \
             wrote it"
                .to_owned(),
        ),
    ] {
        assert_eq!(open_read_only(options, &path).unwrap_err().to_string(), said);
    }
    let none = home.path().join("none.db");
    let e = open_read_only(options(), &none).unwrap_err();
    assert_eq!(
        e.to_string(),
        format!(
            "cannot open {}: No such file or directory (os error 2)",
            none.display()
        )
    );
}

#[test]
fn a_file_that_somebody_has_written_to_is_no_longer_read() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = filled(home.path());
    let db = open_read_only(options(), &path).unwrap();
    let output = another_process(&[], "some", &path).output().unwrap();
    assert!(output.status.success());
    assert_eq!(
        db.snapshot().unwrap_err().to_string(),
        format!(
            "somebody has written to {} while it was open to be read only; open it so that it can be written, too",
            path.display()
        )
    );
}
