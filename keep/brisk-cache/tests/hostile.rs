//! Caches and values with any bytes: named cases, and many drawn ones. `workshop/fuzz/` has targets that look for more.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

#[path = "support/hostile.rs"]
mod hostile;

/// Each case must come out as `EXPECT` beside it says.
fn check(kind: &str, run: fn(&[u8]) -> String) {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata/bad")
        .join(kind);
    let expected = fs::read_to_string(cases.join("EXPECT")).unwrap();
    let expected: BTreeMap<String, String> = expected
        .lines()
        .map(|line| {
            let (name, outcome) = line.split_once('\t').unwrap();
            (name.to_owned(), outcome.to_owned())
        })
        .collect();
    let found: BTreeMap<String, String> = fs::read_dir(&cases)
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_name() != "EXPECT")
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, run(&fs::read(entry.path()).unwrap()))
        })
        .collect();
    assert_eq!(found, expected);
    let mut random = 0x2545_F491_4F6C_DD1Du64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random.to_le_bytes()
    };
    for turn in 0..200 {
        let input: Vec<u8> = (0..1 + turn % 9).flat_map(|_| next()).collect();
        run(&input);
    }
}

#[test]
fn slots_with_any_bytes_find_nothing_wrong() {
    check("index", hostile::index);
}

#[test]
fn records_with_any_bytes_harm_nobody() {
    check("records", hostile::records);
}

#[test]
fn tables_with_any_bytes_are_looked_at() {
    check("tables", hostile::table);
}

#[test]
#[ignore = "makes what the cases change"]
fn regenerate_the_right_cache() {
    let right = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/right");
    fs::remove_dir_all(&right).ok();
    hostile::make_right(&right);
}
