//! Bytes that are not what was written.

use std::fs;
use std::os::unix::fs::FileExt;

use brisk_objects::{Error, Options, Record};

use crate::ledger::{Invoice, invoice, open, open_with, options};

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

/// A record with a value that is on pages of its own.
#[derive(Record, Debug)]
struct Letter {
    #[key]
    id: u32,
    #[index]
    from: String,
    text: String,
}

const LETTERS: u32 = 400;

fn letters() -> Options {
    Options::new().collection::<Letter>().limit(64 << 20)
}

/// The bytes of a database with branches, long values and unused pages.
fn whole(path: &std::path::Path) -> Vec<u8> {
    let db = open_with(letters(), path).unwrap();
    for first in (0..LETTERS).step_by(50) {
        let letter = |id: u32| Letter {
            id,
            from: format!("{:060}", id.wrapping_mul(0x9e37_79b9)),
            text: "t".repeat(if id.is_multiple_of(50) { 9_000 } else { 40 }),
        };
        db.write(|tx| (first..first + 50).try_for_each(|id| tx.insert(&letter(id)).map(|_id| ())))
            .unwrap();
    }
    db.write(|tx| (0..30).try_for_each(|id| tx.delete::<Letter>(id).map(|_| ())))
        .unwrap();
    drop(db);
    fs::read(path).unwrap()
}

/// Reads all that there is, and writes. Returns the first error.
fn use_all(options: Options, path: &std::path::Path) -> Result<(), Error> {
    let db = open_with(options, path)?;
    let snapshot = db.snapshot()?;
    snapshot.check::<Letter>()?;
    for letter in snapshot.query::<Letter>().by(Letter::FROM).iter()? {
        letter?;
    }
    drop(snapshot);
    db.write(|tx| {
        tx.upsert(&Letter {
            id: LETTERS,
            from: "new".to_owned(),
            text: String::new(),
        })
    })
}

#[test]
fn a_file_whose_end_is_missing_is_refused_wherever_it_ends() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = home.path().join("letters.db");
    let whole = whole(&path);
    let mut cut = 0;
    for len in (1..whole.len()).step_by(1_000) {
        fs::write(&path, &whole[..len]).unwrap();
        let e = match use_all(letters(), &path) {
            // What is missing was unused.
            Ok(()) => continue,
            Err(e) => e,
        };
        assert!(e.to_string().contains(&path.display().to_string()), "{e}");
        match &e {
            Error::Foreign { .. } => assert!(len < 8_192, "{len}: {e}"),
            Error::Cut { .. } => cut += 1,
            _ => panic!("{len}: {e}"),
        }
    }
    assert!(cut > 10, "{cut}");
    // The last page that is in use.
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let e = open_with(letters(), &path).unwrap_err();
    let Error::Cut { page, needed, .. } = &e else {
        panic!("{e}");
    };
    assert!(
        page.contains(" of letter") || page.contains(" of tables"),
        "{page}"
    );
    assert_eq!(
        e.to_string(),
        format!(
            "{} was cut: it has {} bytes, but {page} ends at byte {needed}; restore the file from a copy",
            path.display(),
            whole.len() / 2
        )
    );
}

#[test]
fn a_checked_file_with_a_wrong_bit_ends_no_process() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = home.path().join("letters.db");
    let whole = whole(&path);
    let (mut refused, mut used) = (0, 0);
    for number in 0..1_500u64 {
        // Bits in any order, which is the same each time, and half of them where pages say what they have.
        let place = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let mut at = place as usize % whole.len();
        if number.is_multiple_of(2) {
            at = at / 4096 * 4096 + at % 64;
        }
        let mut changed = whole.clone();
        changed[at] ^= 1 << (number / 2 % 8);
        fs::write(&path, &changed).unwrap();
        match use_all(letters().checked(true), &path) {
            Ok(()) => used += 1,
            Err(e @ (Error::Pages { .. } | Error::Foreign { .. } | Error::Cut { .. })) => {
                let told = e.to_string();
                assert!(told.contains(&path.display().to_string()), "{told}");
                refused += 1;
            }
            // A check of a record, or the words of a layout.
            Err(
                Error::Damaged { .. }
                | Error::Layout { .. }
                | Error::Index { .. }
                | Error::Exists { .. }
                | Error::NotUnique { .. },
            ) => refused += 1,
            Err(e) => panic!("{at}: {e}"),
        }
    }
    assert!(refused > 100 && used > 100, "{refused} {used}");
}

#[test]
fn an_error_of_a_page_names_it_each_time() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = home.path().join("letters.db");
    let mut bytes = whole(&path);
    // In each branch, no child is where it should be: behind the last page.
    let branches: Vec<usize> = (2..bytes.len() / 4096)
        .map(|page| page * 4096)
        .filter(|page| bytes[page + 10] == 1)
        .collect();
    assert!(!branches.is_empty());
    for branch in branches {
        let count =
            usize::from(u16::from_le_bytes([bytes[branch + 12], bytes[branch + 13]]) - 16) / 2;
        for slot in 0..count {
            let slot = branch + 16 + slot * 2;
            let node = branch + usize::from(u16::from_le_bytes([bytes[slot], bytes[slot + 1]]));
            bytes[node + 3] = 1;
        }
    }
    fs::write(&path, &bytes).unwrap();
    let db = open_with(letters(), &path).unwrap();
    let snapshot = db.snapshot().unwrap();
    let told = |e: Error| {
        assert!(matches!(e, Error::Pages { .. }), "{e}");
        let told = e.to_string();
        let begin = format!("{} is damaged: page ", path.display());
        assert!(told.starts_with(&begin), "{told}");
        assert!(told.contains(" of letter, at byte "), "{told}");
        assert!(told.ends_with("; restore the file from a copy"), "{told}");
    };
    // LMDB says of the second one only that there was another one.
    for id in [50, 51] {
        told(snapshot.get::<Letter>(id).unwrap_err());
    }
    told(db.write(|tx| tx.delete::<Letter>(60)).unwrap_err());
    drop(snapshot);
    drop(db);
    told(open_with(letters().checked(true), &path).unwrap_err());
}

/// A disk of so many bytes, which goes with this.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new(bytes: u32) -> Self {
        let home = tempfile::tempdir().unwrap();
        let size = format!("size={bytes}");
        let mount = ["-t", "tmpfs", "-o", &size, "tmpfs"];
        let done = std::process::Command::new("mount")
            .args(mount)
            .arg(home.path())
            .status();
        assert!(done.unwrap().success());
        Self(home)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        std::process::Command::new("umount")
            .arg("-l")
            .arg(self.0.path())
            .status()
            .ok();
    }
}

#[test]
fn a_full_disk_is_told_with_the_file() {
    // With these sizes, a write of several pages comes to the end of the disk in its middle.
    for bytes in [1 << 20, (1 << 20) + 4096, (1 << 20) + 8192] {
        let disk = SmallDisk::new(bytes);
        let path = disk.0.path().join("ledger.db");
        let db = open_with(options(), &path).unwrap();
        let mut number = 0;
        let e = loop {
            let booked = db.write(|tx| {
                (0..500).try_for_each(|_| {
                    number += 1;
                    tx.insert(&invoice(1, number.to_string(), 1)).map(|_id| ())
                })
            });
            if let Err(e) = booked {
                break e;
            }
        };
        assert_eq!(
            e.to_string(),
            format!(
                "cannot read or write {}: No space left on device (os error 28)",
                path.display()
            )
        );
        assert!(matches!(&e, Error::Io(e) if e.kind() == std::io::ErrorKind::StorageFull));
        let snapshot = db.snapshot().unwrap();
        snapshot.check::<Invoice>().unwrap();
        drop(snapshot);
        let copy = disk.0.path().join("copy.db");
        let e = db.copy_to(&copy).unwrap_err().to_string();
        assert!(e.contains("No space left on device"), "{e}");
    }
}
