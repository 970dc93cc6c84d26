//! A database as a program makes it, and the command that looks at it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use brisk_objects::{Database, Options, Record, Value};

#[derive(Value, Debug, Clone, PartialEq)]
pub struct Line {
    pub text: String,
    pub count: u16,
    pub discount: Option<f32>,
}

#[derive(Record, Debug, Clone, PartialEq)]
#[record(name = "invoices", index(customer, cents))]
pub struct Invoice {
    #[key(auto)]
    pub id: u64,
    #[index]
    pub customer: String,
    #[unique]
    pub number: Option<String>,
    pub cents: i64,
    pub at: SystemTime,
    pub lines: Vec<Line>,
}

#[derive(Record, Debug, Clone, PartialEq)]
#[record(name = "places")]
pub struct Place {
    #[key]
    pub region: String,
    #[key]
    pub number: i32,
    pub uuid: [u8; 16],
    pub hash: [u8; 4],
    pub raw: Vec<u8>,
    pub huge: u128,
    pub rate: f64,
    pub first: Line,
    pub open: bool,
}

pub fn options() -> Options {
    Options::new()
        .collection::<Invoice>()
        .collection::<Place>()
        .limit(64 << 20)
}

pub fn open(path: &Path) -> Database {
    // SAFETY: nothing but LMDB writes to the file while somebody reads it.
    unsafe { options().open(path) }.unwrap()
}

pub fn line(text: &str) -> Line {
    Line {
        text: text.to_owned(),
        count: 3,
        discount: Some(0.1),
    }
}

pub fn invoice(customer: &str, number: Option<&str>, cents: i64) -> Invoice {
    Invoice {
        id: 0,
        customer: customer.to_owned(),
        number: number.map(str::to_owned),
        cents,
        at: SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_500),
        lines: vec![line("one"), line("")],
    }
}

pub fn place(region: &str, number: i32) -> Place {
    Place {
        region: region.to_owned(),
        number,
        uuid: [7; 16],
        hash: [0, 1, 2, 0xff],
        raw: vec![0, 255],
        huge: u128::MAX,
        rate: f64::NEG_INFINITY,
        first: line("first"),
        open: number % 2 == 0,
    }
}

/// A directory with a database of five invoices and three places.
pub struct Ledger {
    pub home: tempfile::TempDir,
}

/// What a command did.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ledger {
    pub fn empty() -> Self {
        let home = tempfile::tempdir_in("/dev/shm").unwrap();
        Self { home }
    }

    pub fn new() -> Self {
        let this = Self::empty();
        let db = open(&this.path("ledger.db"));
        db.write(|tx| {
            tx.insert(&invoice("bob", Some("2026-1"), 500))?;
            tx.insert(&invoice("ann", Some("2026-2"), 1200))?;
            tx.insert(&invoice("ann", None, -7))?;
            tx.insert(&invoice("anna", None, 30))?;
            tx.insert(&invoice("cy\"d", Some("null"), 0))?;
            for (region, number) in [("north", -3), ("north", 4), ("so", 1)] {
                tx.insert(&place(region, number))?;
            }
            Ok::<_, brisk_objects::Error>(())
        })
        .unwrap();
        this
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    pub fn run(&self, args: &[&str]) -> Outcome {
        self.run_with(args, b"")
    }

    /// With these bytes on stdin.
    pub fn run_with(&self, args: &[&str], input: &[u8]) -> Outcome {
        use std::io::Write;
        let mut command = Command::new(env!("CARGO_BIN_EXE_brisk-db"));
        command.args(args).current_dir(self.home.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        // A command that fails may not read all of it.
        let writing = std::thread::spawn(move || stdin.write_all(&input).ok());
        let output = child.wait_with_output().unwrap();
        writing.join().unwrap();
        outcome(output)
    }

    /// What a command prints that succeeds and says nothing.
    #[track_caller]
    pub fn stdout(&self, args: &[&str]) -> String {
        let outcome = self.run(args);
        assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{args:?}");
        outcome.stdout
    }

    /// What a command says that fails.
    #[track_caller]
    pub fn failure(&self, args: &[&str]) -> String {
        let outcome = self.run(args);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (2, ""), "{args:?}");
        outcome.stderr
    }
}

fn outcome(output: Output) -> Outcome {
    Outcome {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}
