//! Packets that no run sends: each peer hears what it must hear.
//!
//! `testdata/bad-packets` holds the cases, and `EXPECT` what peers hear in each. They are made by the lower half of this
//! file: see [`regenerate`]. The fuzz target `session` reads the same form.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::rehearsal::{Stage, exercise};

fn cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/bad-packets")
}

fn stage(directory: &Path) -> Stage {
    let bad = Path::new(env!("CARGO_MANIFEST_DIR")).join("../brisk-image/testdata/bad");
    Stage::new(directory, &bad.join("section-valid.img"))
}

/// In a process of its own, because descriptors of the process are counted.
#[test]
fn every_case_is_heard_as_it_must_be() {
    let program = std::env::current_exe().expect("a path");
    let name = "session::guardian::hostile::alone";
    let output = Command::new(program)
        .args(["--exact", name, "--ignored", "--test-threads=1"])
        .output()
        .expect("this program runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("1 passed"), "{said}");
}

#[test]
#[ignore = "runs alone in a process"]
fn alone() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let stage = stage(directory.path());
    let expect = fs::read_to_string(cases().join("EXPECT")).expect("EXPECT is there");
    let mut expect: BTreeMap<_, _> = expect
        .lines()
        .map(|line| line.split_once('\t').expect("a name, a tab and answers"))
        .collect();
    let mut wrong = Vec::new();
    for entry in fs::read_dir(cases()).expect("the directory can be listed") {
        let path = entry.expect("an entry can be read").path();
        let name = path.file_name().expect("a name").to_string_lossy();
        if name == "EXPECT" {
            continue;
        }
        let case = fs::read(&path).expect("the case can be read");
        let got = exercise(&case, &stage);
        match expect.remove(&*name) {
            Some(expected) if expected == got => {}
            expected => wrong.push(format!("{name}: got {got:?}, expected {expected:?}")),
        }
    }
    let missing = expect
        .keys()
        .map(|name| format!("{name}: there is no such case"));
    wrong.extend(missing);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Writes the cases, and what each gets. Read the difference before it is committed.
#[test]
#[ignore = "writes testdata/bad-packets"]
fn regenerate() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let stage = stage(directory.path());
    let mut lines = Vec::new();
    for (name, case) in made() {
        fs::write(cases().join(name), &case).expect("the case can be written");
        lines.push(format!("{name}\t{}", exercise(&case, &stage)));
    }
    lines.sort_unstable();
    fs::write(cases().join("EXPECT"), lines.join("\n") + "\n").expect("EXPECT can be written");
}

/// The process that made the session.
const MAKER: u8 = 0;
/// A run, and another one.
const RUN: u8 = 1;
const OTHER: u8 = 2;
const SERVER: u8 = 4;
/// The sender disconnects.
const LAST: u8 = 0x80;

/// How the session is set up.
const UNBUILT: u8 = 0;
const SHARED: u8 = 1;
const BUILT: u8 = 2;
const SHARED_OWNED: u8 = 5;

/// Descriptors: sixteen times the kind, and the number.
const NONE: u8 = 0;
const SOCKETS: u8 = 0x10;
const MEMORY: u8 = 0x21;
const ROOTS: u8 = 0x30;
const NAMESPACES: u8 = 0x40;
const HERE: u8 = 0x54;

#[rustfmt::skip] // A line for each case.
fn made() -> Vec<(&'static str, Vec<u8>)> {
    type Packets<'a> = &'a [(u8, u8, &'a [u8])];
    let case = |setting: u8, packets: Packets<'_>| {
        let mut case = vec![setting];
        for (from, descriptors, bytes) in packets {
            case.extend([*from, *descriptors]);
            case.extend(u16::try_from(bytes.len()).expect("a short packet").to_le_bytes());
            case.extend_from_slice(bytes);
        }
        case
    };
    let long = vec![b'x'; 60_000];
    let fields = vec![0; 60_000];
    let counts = [&b"stat"[..], &b"\0count.requests=18446744073709551616".repeat(1000)].concat();
    let count = b"stat\0count.requests=18446744073709551615\0count.=1\0=\0count.requests=-1\0guardian=7";
    let operations = b"stat\0operation=read 1 2 3 4\0operation=read 1 2 3\0operation=\0place=/etc\0restarts=9";
    vec![
        ("join", case(BUILT, &[(RUN, HERE, b"join\x001000")])),
        ("join-mount", case(SHARED, &[(RUN, HERE, b"join\x001000")])),
        ("join-too-early", case(UNBUILT, &[(MAKER, HERE, b"join\x001000")])),
        ("join-before-it-is-built", case(UNBUILT, &[(RUN, HERE, b"join\x001"), (MAKER, NONE, b"ready")])),
        ("join-without-linger", case(BUILT, &[(RUN, HERE, b"join")])),
        ("join-linger-highest", case(BUILT, &[(RUN | LAST, HERE, b"join\x0018446744073709551615"), (OTHER, NONE, b"stat")])),
        ("join-linger-higher", case(BUILT, &[(RUN, HERE, b"join\x0018446744073709551616")])),
        ("join-linger-negative", case(BUILT, &[(RUN, HERE, b"join\0-1")])),
        ("join-linger-not-utf-8", case(BUILT, &[(RUN, HERE, b"join\0\xff")])),
        ("join-twice", case(BUILT, &[(RUN, HERE, b"join\x001"), (RUN, HERE, b"join\x001")])),
        ("join-with-descriptors", case(BUILT, &[(RUN, NAMESPACES | 3, b"join\x001")])),
        ("join-with-15-descriptors", case(BUILT, &[(RUN, SOCKETS | 15, b"join\x001"), (RUN, ROOTS | 15, b"stat")])),
        ("join-and-leave", case(BUILT, &[(RUN | LAST, HERE, b"join\x000"), (MAKER | LAST, NONE, b"stat")])),
        ("join-without-descriptors", case(BUILT, &[(RUN, NONE, b"join\x001")])),
        ("join-with-3-descriptors", case(BUILT, &[(RUN, 0x53, b"join\x001")])),
        ("join-with-5-descriptors", case(BUILT, &[(RUN, 0x55, b"join\x001")])),
        ("join-with-others", case(BUILT, &[(RUN, ROOTS | 4, b"join\x001")])),
        ("stat", case(BUILT, &[(RUN, NONE, b"stat")])),
        ("stat-with-descriptors", case(BUILT, &[(RUN, SOCKETS | 15, b"stat"), (RUN, MEMORY, b"stat")])),
        ("stat-again-and-again", case(BUILT, &[(RUN, NONE, b"stat\0more"), (RUN, NONE, b"stat"), (MAKER, NONE, b"stat")])),
        ("stat-counts", case(BUILT, &[(RUN, NONE, count)])),
        ("stat-counts-many", case(BUILT, &[(RUN, NONE, &counts)])),
        ("stat-operations", case(BUILT, &[(RUN, NONE, operations)])),
        ("stat-server-says-ended", case(BUILT, &[(RUN, 0x70, b"stat\0ended"), (RUN, 0x70, b"stat\0started\0-7")])),
        ("end", case(BUILT, &[(MAKER | LAST, NONE, b"ready"), (RUN, NONE, b"end\0now")])),
        ("end-while-one-starts", case(BUILT, &[(RUN, NONE, b"end\0now")])),
        ("end-lazy", case(BUILT, &[(RUN, NONE, b"end\0lazy"), (OTHER, HERE, b"join\x001")])),
        ("end-other-word", case(BUILT, &[(RUN, NONE, b"end\0LAZY")])),
        ("end-mount", case(SHARED, &[(MAKER | LAST, NONE, b"stat"), (RUN, NONE, b"end")])),
        ("end-mount-lazy", case(SHARED, &[(RUN, NONE, b"end\0lazy")])),
        ("ready-by-a-run", case(BUILT, &[(RUN, NONE, b"ready")])),
        ("ready-twice", case(UNBUILT, &[(MAKER, NONE, b"ready"), (MAKER, NONE, b"ready"), (RUN, HERE, b"join\x001")])),
        ("maker-fails", case(UNBUILT, &[(MAKER | LAST, NONE, b"")])),
        ("owner-leaves", case(SHARED_OWNED, &[(MAKER | LAST, NONE, b"stat"), (RUN, NONE, b"stat")])),
        ("empty", case(BUILT, &[(RUN, NONE, b""), (OTHER, NONE, b"stat")])),
        ("empty-with-descriptors", case(BUILT, &[(RUN, SOCKETS | 15, b"")])),
        ("unknown", case(BUILT, &[(RUN, NONE, b"JOIN")])),
        ("controls", case(BUILT, &[(RUN, NONE, b"\x1b[2J\n")])),
        ("long", case(BUILT, &[(RUN, NONE, &long)])),
        ("only-separators", case(BUILT, &[(RUN, NONE, &fields)])),
        ("verb-of-an-answer", case(BUILT, &[(RUN, NAMESPACES | 3, b"joined\0/etc")])),
        ("server-starts", case(BUILT, &[(SERVER, NONE, b"started\x001")])),
        ("server-starts-no-thread", case(BUILT, &[(SERVER, NONE, b"started\x00-1"), (SERVER, NONE, b"started\099999999999")])),
        ("server-has-recorded", case(BUILT, &[(SERVER, MEMORY, b"recorded"), (SERVER, MEMORY, b"recorded"), (RUN, NONE, b"stat")])),
        ("server-has-recorded-nothing", case(BUILT, &[(SERVER, NONE, b"recorded"), (RUN, NONE, b"stat")])),
        ("server-has-recorded-15-times", case(BUILT, &[(SERVER, 0x2f, b"recorded"), (RUN, NONE, b"stat")])),
        ("server-has-filled", case(BUILT, &[(SERVER, NONE, b"filled\x001\x002"), (SERVER, NONE, b"filled\0-1\x002"), (SERVER, MEMORY, b"filled"), (RUN, NONE, b"stat")])),
        ("server-has-compared", case(BUILT, &[(SERVER, NONE, b"compared\0another pair"), (SERVER, MEMORY, b"compared"), (RUN, NONE, b"stat")])),
        ("server-ends", case(BUILT, &[(SERVER, NONE, b"ended"), (RUN, NONE, b"stat")])),
        ("server-ends-a-mount", case(SHARED, &[(SERVER | LAST, NONE, b"ended"), (MAKER, NONE, b"stat")])),
        ("server-dies", case(BUILT, &[(SERVER | LAST, NONE, b""), (MAKER, NONE, b"stat")])),
        ("server-says-join", case(BUILT, &[(SERVER, NAMESPACES | 3, b"join\x001"), (MAKER, NONE, b"stat")])),
        ("server-counts-unasked", case(BUILT, &[(SERVER, NONE, b"counts\0count.a=1"), (SERVER | LAST, NONE, b"counts"), (MAKER, NONE, b"stat")])),
    ]
}
