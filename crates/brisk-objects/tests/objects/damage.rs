//! Bytes that are not what was written.

use std::fs;
use std::os::unix::fs::FileExt;

use brisk_objects::Error;

use crate::ledger::{Invoice, invoice, open};

/// Each bit of each record is turned over. The pages of LMDB are left alone.
#[test]
fn a_record_with_a_wrong_bit_is_an_error() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = home.path().join("ledger.db");
    let db = open(&path);
    for number in ["0-of-ann", "1-of-bob"] {
        db.write(|tx| tx.insert(&invoice(7, number, 500))).unwrap();
    }
    drop(db);
    let whole = fs::read(&path).unwrap();
    // The text is the end of the record, and is in the index, too.
    let text = b"0-of-ann";
    let ends: Vec<usize> = (0..whole.len())
        .filter(|&at| whole[at..].starts_with(text))
        .collect();
    let len = 8 + 8 + 4 + 8 + 8 + text.len();
    let record = |end: usize| end + text.len() - len;
    let starts: Vec<usize> = ends
        .into_iter()
        .filter(|&end| end >= len && whole[record(end) + 8..].starts_with(&1u64.to_le_bytes()))
        .map(record)
        .collect();
    assert!(!starts.is_empty());
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    for start in starts {
        assert_eq!(start % 8, 0);
        for bit in 0..len * 8 {
            let at = start + bit / 8;
            file.write_all_at(&[whole[at] ^ 1 << (bit % 8)], at as u64)
                .unwrap();
            let db = open(&path);
            let snapshot = db.snapshot().unwrap();
            // Older versions of the page have the record, too.
            match snapshot.get::<Invoice>(1) {
                Ok(found) => assert_eq!(found.unwrap().number(), "0-of-ann"),
                Err(e) => {
                    assert!(matches!(e, Error::Damaged { .. }));
                    assert_eq!(
                        e.to_string(),
                        "the record of invoices with the key 1 is damaged; restore the file from a copy"
                    );
                    assert!(snapshot.check::<Invoice>().is_err());
                    let mut all = snapshot.query::<Invoice>();
                    assert!(all.collect().is_err());
                    all = all.range(2..);
                    assert_eq!(all.count().unwrap(), 1);
                }
            }
            assert_eq!(
                snapshot.get::<Invoice>(2).unwrap().unwrap().number(),
                "1-of-bob"
            );
            drop(snapshot);
            drop(db);
            file.write_all_at(&[whole[at]], at as u64).unwrap();
        }
    }
}
