//! Any bytes are an archive of a type or none. All of one can be read, and it is the same after it was made a value and
//! archived again.
#![no_main]

use std::collections::BTreeMap;

use brisk_cache::{OwnedArchive, StoredArchive, fingerprint};
use libfuzzer_sys::fuzz_target;
use rkyv::{Archive, Deserialize, Serialize};

#[derive(Debug, PartialEq, Archive, Serialize, Deserialize)]
enum Kind {
    None,
    Number(u128),
    Text { text: String },
}

#[derive(Debug, PartialEq, Archive, Serialize, Deserialize)]
struct Page {
    title: String,
    links: Vec<String>,
    kinds: Option<Box<Kind>>,
    by_name: BTreeMap<String, Vec<u16>>,
    pair: (u8, i64, char, bool),
}

impl StoredArchive for Page {
    const FINGERPRINT: u64 = fingerprint("a page with something of each");
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(archive) = OwnedArchive::<Page>::from_bytes(bytes) else {
        return;
    };
    let texts = archive.links.iter().map(|link| link.len());
    assert!(texts.max().unwrap_or(0) <= bytes.len());
    let value = archive.to_value().expect("its parts were checked");
    assert_eq!(value.title, archive.title.as_str());
    let again = OwnedArchive::new(&value).expect("a value can be archived");
    assert_eq!(again.to_value().expect("it was just made"), value);
});
