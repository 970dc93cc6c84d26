//! Files that are no database, and ones whose end is missing.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::checking::change;
use crate::ledger::Ledger;
use crate::programs::copy_program;

const VERBS: [&[&str]; 6] = [
    &["info", "FILE"],
    &["ls", "FILE"],
    &["get", "FILE", "invoices", "1"],
    &["query", "FILE", "invoices"],
    &["check", "FILE"],
    &["dump", "FILE"],
];

#[track_caller]
fn all_refuse(ledger: &Ledger, name: &str, message: &str) {
    let home = ledger.home.path().canonicalize().unwrap();
    let message = message.replace("HOME", home.to_str().unwrap());
    for verb in VERBS {
        let args: Vec<&str> = verb
            .iter()
            .map(|word| if *word == "FILE" { name } else { word })
            .collect();
        assert_eq!(
            ledger.failure(&args),
            format!("brisk: {message}\n"),
            "{args:?}"
        );
    }
}

#[test]
fn what_is_no_database_is_named() {
    let ledger = Ledger::new();
    let write = |name: &str, bytes: &[u8]| fs::write(ledger.path(name), bytes).unwrap();
    write("text", b"hello\n");
    write("empty", b"");
    write("zeros", &[0; 9000]);
    let whole = fs::read(ledger.path("ledger.db")).unwrap();
    let with = |at: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[at] = byte;
        bytes
    };
    write("version", &with(20, 9));
    write("page-size", &with(40, 1));
    write("second", &with(4096 + 16, 0));
    fs::create_dir(ledger.path("directory")).unwrap();
    let names = fs::read_dir(ledger.home.path()).unwrap().count();
    let all_refuse = |name, message| all_refuse(&ledger, name, message);
    all_refuse(
        "missing",
        "cannot open missing: No such file or directory (os error 2)",
    );
    all_refuse(
        "directory",
        "HOME/directory is no database of brisk-objects: it is a directory; name a file in it",
    );
    all_refuse(
        "text",
        "HOME/text is no database of brisk-objects: it ends within its first pages",
    );
    all_refuse(
        "empty",
        "HOME/empty is no database of brisk-objects: it is empty",
    );
    all_refuse(
        "zeros",
        "HOME/zeros is no database of brisk-objects: it does not begin as a file of LMDB does",
    );
    all_refuse(
        "version",
        "HOME/version is no database of brisk-objects: the version of its LMDB is 9, allowed is 1",
    );
    all_refuse(
        "page-size",
        "HOME/page-size is no database of brisk-objects: its pages have 4097 bytes, allowed is a power of two from 4096 to 32768",
    );
    all_refuse(
        "second",
        "HOME/second is no database of brisk-objects: it does not begin as a file of LMDB does",
    );
    all_refuse(
        "/dev/null",
        "/dev/null is no database of brisk-objects: it is no file",
    );
    // None has got a file with readers beside it.
    assert_eq!(fs::read_dir(ledger.home.path()).unwrap().count(), names);
}

#[test]
fn databases_of_other_programs_are_named() {
    let ledger = Ledger::empty();
    change(&ledger.path("bare"), |_env, _txn| {});
    change(&ledger.path("other"), |env, txn| {
        env.create_database::<heed::types::Str, heed::types::Str>(txn, Some("users"))
            .unwrap();
    });
    all_refuse(
        &ledger,
        "other",
        "HOME/other is no database of brisk-objects: it has tables of another program",
    );
    let ledger = Ledger::new();
    change(&ledger.path("ledger.db"), |env, txn| {
        let about = crate::checking::table(env, txn, "brisk-objects");
        about.put(txn, b"version", b"2\x1b").unwrap();
    });
    all_refuse(
        &ledger,
        "ledger.db",
        "HOME/ledger.db is no database of brisk-objects: its version is 2\\u{1b}",
    );
}

/// A user who may read the database, and not write to the file of its readers.
#[test]
fn a_database_of_another_user_is_refused_with_advice() {
    let ledger = Ledger::new();
    let mode = |name: &str, mode: u32| {
        fs::set_permissions(ledger.path(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    // Where the test was built, that user may have no right to look.
    copy_program(env!("CARGO_BIN_EXE_brisk-db"), ledger.path("brisk-db"));
    for (name, bits) in [
        ("", 0o755),
        ("brisk-db", 0o755),
        ("ledger.db", 0o644),
        ("ledger.db-lock", 0o644),
    ] {
        mode(name, bits);
    }
    let run = || {
        let mut command = Command::new(ledger.path("brisk-db"));
        command
            .args(["ls", "ledger.db"])
            .current_dir(ledger.home.path());
        let output = command.uid(65_534).gid(65_534).output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let home = ledger.home.path().canonicalize().unwrap();
    let expected = format!(
        "brisk: cannot write to {}/ledger.db-lock, where each reader notes itself: permission denied; ask its owner, or look at a \
         copy of the database\n",
        home.display()
    );
    assert_eq!(run(), (Some(2), expected));
    mode("ledger.db-lock", 0o666);
    assert_eq!(run(), (Some(0), String::new()));
}

/// A database of the user 65534 without a lock file, and the command of a process that is to look at it.
fn of_another_user(mode: u32) -> (Ledger, impl Fn(&[&str]) -> Command) {
    let ledger = Ledger::new();
    fs::remove_file(ledger.path("ledger.db-lock")).unwrap();
    copy_program(env!("CARGO_BIN_EXE_brisk-db"), ledger.path("brisk-db"));
    for (name, bits) in [("", 0o755), ("brisk-db", 0o755), ("ledger.db", mode)] {
        let path = ledger.path(name);
        chown(&path, Some(65_534), Some(65_533)).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(bits)).unwrap();
    }
    let home = ledger.home.path().to_owned();
    let command = move |before: &[&str]| {
        let program = home.join("brisk-db");
        let program = program.to_str().unwrap();
        let line: Vec<&str> = before.iter().copied().chain([program]).collect();
        let mut command = Command::new(line[0]);
        command.args(&line[1..]).current_dir(&home);
        command.stdin(Stdio::null());
        command
    };
    (ledger, command)
}

/// The files of the lock: all others would be left over.
fn locks(ledger: &Ledger) -> Vec<(String, u32, u32, u32)> {
    let files = fs::read_dir(ledger.home.path()).unwrap();
    let locks = files.map(Result::unwrap).filter_map(|file| {
        let (name, about) = (file.file_name(), file.metadata().unwrap());
        let name = name.into_string().unwrap();
        let is_lock = !["brisk-db", "ledger.db"].contains(&name.as_str());
        is_lock.then(|| (name, about.uid(), about.gid(), about.mode() & 0o7777))
    });
    locks.collect()
}

#[test]
fn root_does_not_lock_the_owner_out() {
    for mode in [0o600, 0o640] {
        for args in [
            ["ls", "ledger.db"].as_slice(),
            &["query", "ledger.db", "places"],
            &["check", "ledger.db"],
            &["load", "ledger.db"],
        ] {
            let (ledger, command) = of_another_user(mode);
            command(&[]).args(args).output().unwrap();
            let expected = ("ledger.db-lock".to_owned(), 65_534, 65_533, mode);
            assert_eq!(locks(&ledger), [expected], "{args:?}");
            for args in [["ls", "ledger.db"], ["load", "ledger.db"]] {
                let mut command = command(&[]);
                command.args(args).uid(65_534).gid(65_534);
                let said = String::from_utf8(command.output().unwrap().stderr).unwrap();
                assert!(
                    said.is_empty() || said.contains("stdin has no line"),
                    "{said}"
                );
            }
        }
    }
}

/// A container may have taken the right away.
#[test]
fn root_that_may_not_give_the_lock_to_the_owner_says_so() {
    let (ledger, command) = of_another_user(0o644);
    let before = ["setpriv", "--bounding-set", "-chown"];
    let output = command(&before).args(["ls", "ledger.db"]).output().unwrap();
    let home = ledger.home.path().canonicalize().unwrap();
    let expected = format!(
        "brisk: cannot give the new {home}/ledger.db-lock the owner 65534:65533 and the mode 644, as {home}/ledger.db has them: \
         Operation not permitted (os error 1); open the database once as its owner\n",
        home = home.display()
    );
    assert_eq!(String::from_utf8(output.stderr).unwrap(), expected);
    assert_eq!((output.status.code(), locks(&ledger)), (Some(2), vec![]));
}

#[test]
fn a_file_whose_end_is_missing_is_named() {
    let ledger = Ledger::new();
    let path = ledger.path("ledger.db");
    let whole = fs::read(&path).unwrap();
    let mut refused = 0;
    for len in (8192..whole.len()).step_by(1000) {
        fs::write(&path, &whole[..len]).unwrap();
        for verb in VERBS {
            let args: Vec<&str> = verb
                .iter()
                .map(|word| if *word == "FILE" { "ledger.db" } else { word })
                .collect();
            let outcome = ledger.run(&args);
            let expected = format!("was cut: it has {len} bytes, but page ");
            assert_eq!(outcome.code, 2, "{len}: {outcome:?}");
            assert!(outcome.stderr.contains(&expected), "{outcome:?}");
            assert!(outcome.stderr.contains(" ends at byte "), "{outcome:?}");
            assert!(
                outcome.stderr.ends_with("; restore the file from a copy\n"),
                "{outcome:?}"
            );
        }
        refused += 1;
    }
    assert!(refused > 10);
}
