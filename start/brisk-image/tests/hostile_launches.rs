//! Profiles and hot packs that break the rules: each gets the message that it must get.
//!
//! `testdata/bad-profiles` and `testdata/bad-packs` hold the files, and `EXPECT` the first fault of each, or "ok" where no
//! rule is broken. They are made by the lower half of this file: see [`regenerate`].

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use brisk_image::Limits;
use brisk_image::hot_pack::HotPack;
use brisk_image::profile::{PAGE, Profile};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata")
        .join(name)
}

fn limits() -> Limits {
    Limits::new().memory(1 << 20)
}

/// The first fault of a profile.
fn of_profile(text: Vec<u8>) -> String {
    let profile = match Profile::from_text(&text, &limits()) {
        Ok(profile) => profile,
        Err(e) => return e.to_string(),
    };
    let again = Profile::from_text(&profile.to_text(), &limits());
    assert_eq!(again.expect("its own text"), profile);
    "ok".to_owned()
}

/// The first fault of a hot pack or of its frames.
fn of_pack(bytes: Vec<u8>) -> String {
    let pack = match HotPack::from_source(bytes, &limits()) {
        Ok(pack) => pack,
        Err(e) => return e.to_string(),
    };
    let mut reader = pack.frame_reader();
    for frame in 0..pack.frame_count() {
        let pieces = match reader.read(frame) {
            Ok(pieces) => pieces,
            Err(e) => return e.to_string(),
        };
        for (range, bytes) in pieces {
            let file = pack.file(range.file as usize).expect("a file of the pack");
            assert_eq!(bytes.len() as u64, range.bytes_of(file.len()));
            assert!(range.end() <= file.len().div_ceil(PAGE));
        }
    }
    "ok".to_owned()
}

/// Compares what the files in a directory get with its `EXPECT`.
fn check(directory: &str, fault: fn(Vec<u8>) -> String, least: usize) {
    let expect = fs::read_to_string(data(directory).join("EXPECT")).expect("EXPECT is there");
    let mut expect: BTreeMap<_, _> = expect
        .lines()
        .map(|line| line.split_once('\t').expect("a name, a tab and a message"))
        .collect();
    assert!(expect.len() >= least, "{} files", expect.len());
    let mut wrong = Vec::new();
    for entry in fs::read_dir(data(directory)).expect("the directory can be listed") {
        let path = entry.expect("an entry can be read").path();
        let name = path.file_name().expect("a name").to_string_lossy();
        if name == "EXPECT" {
            continue;
        }
        let got = fault(fs::read(&path).expect("the file can be read"));
        match expect.remove(&*name) {
            Some(expected) if expected == got => {}
            expected => wrong.push(format!("{name}: got {got:?}, expected {expected:?}")),
        }
    }
    let missing = expect
        .keys()
        .map(|name| format!("{name}: there is no such file"));
    wrong.extend(missing);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_profile_gets_its_message_and_no_other() {
    check("bad-profiles", of_profile, 30);
}

#[test]
fn every_pack_gets_its_message_and_no_other() {
    check("bad-packs", of_pack, 30);
}

/// Writes the files, and what each gets. Read the difference before it is committed.
#[test]
#[ignore = "writes testdata/bad-profiles and testdata/bad-packs"]
fn regenerate() {
    for (directory, files, fault) in [
        ("bad-profiles", profiles(), of_profile as fn(_) -> _),
        ("bad-packs", packs(), of_pack as fn(_) -> _),
    ] {
        fs::create_dir_all(data(directory)).expect("a directory can be made");
        let mut lines = Vec::new();
        for (name, bytes) in files {
            fs::write(data(directory).join(&name), &bytes).expect("the file can be written");
            lines.push(format!("{name}\t{}", fault(bytes)));
        }
        lines.sort_unstable();
        let expect = lines.join("\n") + "\n";
        fs::write(data(directory).join("EXPECT"), expect).expect("EXPECT can be written");
    }
}

type Files = Vec<(String, Vec<u8>)>;

const PROFILE: &str = r#"{
"brisk_profile": 1,
"brisk": "0.1.0",
"command": ["app"],
"runs": 1,
"roots": [
["/opt/app", "image"]
],
"files": [
[0, "lib/a.so", 20000, null]
],
"directories": [
[0, "lib"]
],
"steps": [
["found", 0, "a.so", 5, 1],
["pages", 0, 0, 5, 10, 1]
]
}
"#;

#[rustfmt::skip] // A line for each case.
fn profiles() -> Files {
    let nested = "[".repeat(10_000);
    let long = format!("\"{}\"", "x".repeat(5000));
    let steps = "[\"pages\", 0, 0, 5, 10, 1],\n".repeat(3000);
    let list = [
        ("valid", "", ""),
        ("version-0", "\"brisk_profile\": 1", "\"brisk_profile\": 0"),
        ("version-highest", "\"brisk_profile\": 1", "\"brisk_profile\": 18446744073709551615"),
        ("version-higher", "\"brisk_profile\": 1", "\"brisk_profile\": 18446744073709551616"),
        ("version-text", "\"brisk_profile\": 1", "\"brisk_profile\": \"1\""),
        ("version-twice", "\"brisk\": ", "\"brisk_profile\": 2,\n\"brisk\": "),
        ("field-unknown", "\"runs\": 1", "\"runs\": 1, \"later\": 1"),
        ("field-of-controls", "\"runs\": 1", "\"runs\": 1, \"\\u001b[2J\\n\": 1"),
        ("field-twice", "\"runs\": 1", "\"runs\": 1, \"runs\": 1"),
        ("runs-0", "\"runs\": 1", "\"runs\": 0"),
        ("runs-2-32", "\"runs\": 1", "\"runs\": 4294967296"),
        ("runs-negative", "\"runs\": 1", "\"runs\": -1"),
        ("runs-fraction", "\"runs\": 1", "\"runs\": 1.5"),
        ("runs-huge", "\"runs\": 1", "\"runs\": 1e400"),
        ("root-relative", "/opt/app", "opt/app"),
        ("root-dot-dot", "/opt/app", "/opt/../etc"),
        ("root-nul", "/opt/app", "/opt\\u0000/app"),
        ("root-kind-unknown", "\"image\"", "\"mount\""),
        ("file-absolute", "lib/a.so", "/etc/passwd"),
        ("file-dot-dot", "lib/a.so", "../../etc/passwd"),
        ("file-empty-part", "lib/a.so", "lib//a.so"),
        ("file-of-no-root", "[0, \"lib/a.so\"", "[1, \"lib/a.so\""),
        ("file-of-root-2-32", "[0, \"lib/a.so\"", "[4294967296, \"lib/a.so\""),
        ("file-length-highest", "20000", "18446744073709551615"),
        ("file-length-0", "20000", "0"),
        ("file-digest-short", "20000, null", "20000, \"ab\""),
        ("file-digest-of-letters", "20000, null", "20000, \"zz49b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262af\""),
        ("file-name-hex-odd", "\"lib/a.so\"", "{\"hex\": \"6\"}"),
        ("file-name-hex-nul", "\"lib/a.so\"", "{\"hex\": \"6100\"}"),
        ("file-name-other-object", "\"lib/a.so\"", "{\"base64\": \"YQ==\"}"),
        ("file-name-long", "\"lib/a.so\"", &long),
        ("directory-of-no-root", "[0, \"lib\"]", "[7, \"lib\"]"),
        ("look-up-in-no-directory", "[\"found\", 0,", "[\"found\", 1,"),
        ("look-up-of-slash", "\"a.so\", 5", "\"../a.so\", 5"),
        ("look-up-of-nothing", "\"a.so\", 5", "\"\", 5"),
        ("pages-of-no-file", "[\"pages\", 0, 0, 5", "[\"pages\", 1, 0, 5"),
        ("pages-0", "[\"pages\", 0, 0, 5", "[\"pages\", 0, 0, 0"),
        ("pages-past-the-end", "[\"pages\", 0, 0, 5", "[\"pages\", 0, 0, 6"),
        ("pages-past-2-64", "[\"pages\", 0, 0, 5", "[\"pages\", 0, 18446744073709551615, 5"),
        ("pages-2-64", "[\"pages\", 0, 0, 5", "[\"pages\", 0, 1, 18446744073709551615"),
        ("step-runs-2", "10, 1]", "10, 2]"),
        ("step-time-backwards", "5, 10, 1]", "5, 1, 1]"),
        ("step-time-highest", "5, 10, 1]", "5, 18446744073709551615, 1]"),
        ("step-unknown", "[\"pages\", 0", "[\"page\", 0"),
        ("step-short", "5, 10, 1]", "5, 10]"),
        ("steps-that-need-more-than-is-allowed", "[\"found\"", &format!("{steps}[\"found\"")),
        ("nested", "[\"app\"]", &nested),
        ("command-nul", "[\"app\"]", "[\"a\\u0000b\"]"),
        ("surrogate-alone", "[\"app\"]", "[\"\\ud800\"]"),
    ];
    let mut files: Files = list
        .into_iter()
        .map(|(name, from, to)| {
            let text = PROFILE.replacen(from, to, 1);
            assert!(from.is_empty() || text != PROFILE, "{name}");
            (format!("{name}.profile"), text.into_bytes())
        })
        .collect();
    for (name, bytes) in [
        ("empty", &b""[..]),
        ("not-utf-8", b"\xff\xfe{}"),
        ("only-a-number", b"1"),
        ("of-zeros", &[0; 4096]),
        ("cut", &PROFILE.as_bytes()[..200]),
    ] {
        files.push((format!("{name}.profile"), bytes.to_vec()));
    }
    files.push(("two.profile".to_owned(), PROFILE.repeat(2).into_bytes()));
    files
}

/// A pack with a right checksum.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
    let stored = usize::try_from(word(16)).expect("it fits");
    bytes[48..64].fill(0);
    let end = bytes.len().min(64 + stored);
    let sum = blake3::hash(&bytes[..end]);
    bytes[48..64].copy_from_slice(&sum.as_bytes()[..16]);
    bytes
}

/// A pack whose table is stored as it is.
fn plain() -> Vec<u8> {
    let bytes = fs::read(data("compat/v0.1.hot")).expect("it is there");
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
    let [stored, len] = [word(16), word(20)].map(|n| usize::try_from(n).expect("it fits"));
    let (front, data) = bytes.split_at(64 + stored);
    let table = match stored == len {
        true => front[64..].to_vec(),
        false => zstd::bulk::decompress(&front[64..], len).expect("it decodes"),
    };
    let mut header = front[..64].to_vec();
    let len = u32::try_from(table.len()).expect("it fits").to_le_bytes();
    header[16..20].copy_from_slice(&len);
    header[20..24].copy_from_slice(&len);
    sealed([&header[..], &table, data].concat())
}

fn packs() -> Files {
    let plain = plain();
    let with = |at: usize, new: &[u8]| {
        let mut bytes = plain.clone();
        bytes[at..at + new.len()].copy_from_slice(new);
        sealed(bytes)
    };
    let table = u32::from_le_bytes(plain[16..20].try_into().expect("4 bytes"));
    let table = usize::try_from(table).expect("it fits");
    let mut unsealed = plain.clone();
    unsealed[60] ^= 1;
    let mut damaged = plain.clone();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    let mut files: Files = vec![
        ("valid.hot".to_owned(), plain.clone()),
        ("empty.hot".to_owned(), Vec::new()),
        ("cut-in-header.hot".to_owned(), plain[..63].to_vec()),
        (
            "cut-in-table.hot".to_owned(),
            plain[..64 + table / 2].to_vec(),
        ),
        ("cut-in-data.hot".to_owned(), plain[..last].to_vec()),
        ("longer.hot".to_owned(), [&plain[..], &[0; 10]].concat()),
        ("checksum-other.hot".to_owned(), unsealed),
        ("frame-damaged.hot".to_owned(), damaged),
        ("magic-other.hot".to_owned(), with(0, b"B")),
        ("version-0.hot".to_owned(), with(8, &[0])),
        ("version-2.hot".to_owned(), with(8, &[2])),
        ("codec-0.hot".to_owned(), with(12, &[0])),
        ("codec-255.hot".to_owned(), with(12, &[255])),
        ("table-length-highest.hot".to_owned(), with(20, &[255; 4])),
        ("data-length-highest.hot".to_owned(), with(24, &[255; 8])),
    ];
    // The numbers in the table, one at a time.
    for at in (0..table - 8).step_by(table / 24) {
        for (value, byte) in [("0", 0), ("highest", 255)] {
            let bytes = with(64 + at, &[byte; 8]);
            files.push((format!("table-byte-{at}-{value}.hot"), bytes));
        }
    }
    files
}
