//! Any changes to the pages of a database of brisk-objects: all are looked at without harm. If they are called right, LMDB reads
//! them, and what it hands out is a record, a fault or an error.
#![no_main]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use brisk_objects::{Error, Options, Record, UntypedDatabase};
use libfuzzer_sys::fuzz_target;

#[derive(Record)]
struct Note {
    #[key]
    id: u32,
    #[index]
    name: String,
    text: Option<String>,
}

/// A database with branches, long records and unused pages, and where its changed copies are.
struct Whole {
    bytes: Vec<u8>,
    copy: PathBuf,
}

static WHOLE: LazyLock<Whole> = LazyLock::new(|| {
    let home = tempfile::tempdir_in("/dev/shm").unwrap().keep();
    let path = home.join("whole.db");
    // SAFETY: nothing else writes to the file.
    let db = unsafe {
        Options::new()
            .collection::<Note>()
            .limit(1 << 24)
            .open(&path)
    }
    .unwrap();
    let note = |id: u32| Note {
        id,
        name: format!("{id:050}"),
        text: id.is_multiple_of(40).then(|| "t".repeat(6_000)),
    };
    db.write(|tx| (0..200).try_for_each(|id| tx.insert(&note(id)).map(|_id| ())))
        .unwrap();
    db.write(|tx| (80..120).try_for_each(|id| tx.delete::<Note>(id).map(|_was| ())))
        .unwrap();
    drop(db);
    Whole {
        bytes: fs::read(&path).unwrap(),
        copy: home.join("copy.db"),
    }
});

fn read(path: &Path) -> Result<(), Error> {
    // SAFETY: nothing else writes to the file.
    if !unsafe { UntypedDatabase::check_pages(path) }?.is_empty() {
        return Ok(());
    }
    // SAFETY: as above.
    let database = unsafe { UntypedDatabase::open(path) }?;
    for collection in database.collections() {
        collection.check(|_fault| Ok::<_, Error>(()))?;
        for record in collection.query().rev().iter()? {
            record.ok();
        }
    }
    Ok(())
}

fuzz_target!(|changes: Vec<(u32, u8)>| {
    let mut bytes = WHOLE.bytes.clone();
    for (at, byte) in changes {
        let at = at as usize % bytes.len();
        bytes[at] = byte;
    }
    fs::write(&WHOLE.copy, &bytes).unwrap();
    read(&WHOLE.copy).ok();
});
