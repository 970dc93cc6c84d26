//! Look-ups in long values, which check only what they touch.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use brisk_cache::{
    Cache, CacheOptions, FlatTable, FlatTableBuilder, Stored, StoredHit, Text, ValueParts,
    fingerprint,
};
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Row {
    name: Text,
    number: U64,
    odd: [u8; 7],
}

struct Rows;

impl Stored for Rows {
    const FINGERPRINT: u64 =
        fingerprint("rows: name Text, number U64, odd 7 bytes; sorted by name");
    type View<'a> = FlatTable<'a, Row>;

    fn view(bytes: &[u8]) -> Option<Self::View<'_>> {
        Self::view_parts(bytes.into()).ok()?
    }

    fn view_parts(value: ValueParts<'_>) -> io::Result<Option<Self::View<'_>>> {
        FlatTable::view(value)
    }
}

const ROWS: u64 = 30_000;
const CHUNK: usize = 4 << 10;
/// Where a value that has a file of its own begins.
const VALUE_AT: u64 = 64 << 10;

fn name(number: u64) -> String {
    format!("row {number:08}, and more of its name")
}

fn table() -> Vec<u8> {
    let mut builder = FlatTableBuilder::new();
    for number in 0..ROWS {
        let name = builder.text(&name(number)).unwrap();
        let row = Row {
            name,
            number: number.into(),
            odd: [7; 7],
        };
        builder.row(row).unwrap();
    }
    builder.finish_sorted(|row| row.name).unwrap()
}

fn home() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn mapped(path: &Path) -> Cache {
    // SAFETY: only brisk writes to the directory, and these tests, while no cache has it open.
    unsafe { Cache::open_mapped(path, CacheOptions::new()) }.unwrap()
}

fn get(cache: &Cache) -> StoredHit<Rows> {
    cache.get_stored(b"key").unwrap().unwrap()
}

/// The number of the row with the name of row `number`.
fn look_up(hit: &StoredHit<Rows>, number: u64) -> io::Result<Option<u64>> {
    let found = hit.view()?.find(&name(number), |row| row.name)?;
    Ok(found.map(|row| row.number.get()))
}

/// A directory with the table, and the file that has it.
fn stored(table: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let home = home();
    let cache = mapped(home.path());
    cache.insert_stored::<Rows>(b"key", table, 0).unwrap();
    let mut paths = std::fs::read_dir(home.path()).unwrap();
    let file = paths.find_map(|entry| {
        let path = entry.unwrap().path();
        path.extension()
            .is_some_and(|e| e == "value")
            .then_some(path)
    });
    (home, file.unwrap())
}

#[test]
fn a_table_has_the_rows_that_it_was_built_of() {
    let bytes = table();
    assert!(bytes.len() > 1 << 20);
    let (home, _) = stored(&bytes);
    for cache in [
        mapped(home.path()),
        Cache::open(home.path(), CacheOptions::new()).unwrap(),
    ] {
        let hit = get(&cache);
        let table = hit.view().unwrap();
        assert_eq!((table.len() as u64, table.is_empty()), (ROWS, false));
        for number in (0..ROWS).step_by(7) {
            let name = name(number);
            let row = table.find(&name, |row| row.name).unwrap().unwrap();
            assert_eq!((row.number.get(), row.odd), (number, [7; 7]));
            let at = table.row(number as usize).unwrap().unwrap();
            assert_eq!(at.as_bytes(), row.as_bytes());
            assert_eq!(table.text(row.name).unwrap(), Some(&name[..]));
        }
        let some = table.rows(600..2_000).unwrap().unwrap();
        assert!(some.iter().map(|row| row.number.get()).eq(600..2_000));
        for absent in ["", "row 1", "z"] {
            assert!(table.find(absent, |row| row.name).unwrap().is_none());
        }
        let end = table.len();
        assert!(table.row(end).unwrap().is_none());
        assert!(table.rows(end - 1..end + 1).unwrap().is_none());
    }
}

#[test]
fn a_damaged_chunk_is_an_error_of_the_look_ups_that_touch_it_and_of_no_other() {
    let bytes = table();
    let (home, path) = stored(&bytes);
    let file = OpenOptions::new().write(true).open(path).unwrap();
    let wanted = [0, 1, ROWS / 3, ROWS - 1];
    let mut touched = [0; 4];
    let chunks = bytes.len().div_ceil(CHUNK);
    for chunk in 0..chunks {
        let at = (chunk * CHUNK + 11).min(bytes.len() - 1);
        let file_at = VALUE_AT + at as u64;
        file.write_all_at(&[!bytes[at]], file_at).unwrap();
        let cache = mapped(home.path());
        let hit = get(&cache);
        for (number, touched) in wanted.into_iter().zip(&mut touched) {
            match look_up(&hit, number) {
                Ok(found) => assert_eq!(found, Some(number), "chunk {chunk}"),
                Err(e) => {
                    assert_eq!(e.kind(), io::ErrorKind::InvalidData);
                    *touched += 1;
                }
            }
        }
        // Nor is it taken for right when it was found wrong once.
        assert!(hit.hit().bytes().is_err());
        assert!(hit.hit().bytes().is_err());
        assert!(cache.get_stored::<Rows>(b"key").unwrap().is_none());
        drop((hit, cache));
        file.write_all_at(&[bytes[at]], file_at).unwrap();
    }
    // The header and the highest fences, a group or two of lower ones, and as many rows with their texts.
    for touched in touched {
        assert!((3..=8).contains(&touched), "{touched} of {chunks}");
    }
}

#[test]
fn no_cut_and_no_wrong_byte_is_more_than_a_miss() {
    let mut builder = FlatTableBuilder::new();
    for number in 0..3u64 {
        let name = builder.text(&name(number)).unwrap();
        let (number, odd) = (number.into(), [0; 7]);
        builder.row(Row { name, number, odd }).unwrap();
    }
    let bytes = builder.finish_sorted(|row| row.name).unwrap();
    let look = |bytes: &[u8]| {
        let Some(view) = Rows::view(bytes) else {
            return;
        };
        // A panic would end the test.
        view.find(&name(1), |row| row.name).unwrap();
        for at in 0..view.len().min(10) {
            let row = view.row(at).unwrap().unwrap();
            let text = view.text(row.name).unwrap().unwrap_or_default();
            assert!(text.len() <= bytes.len());
        }
    };
    for len in 0..bytes.len() {
        assert!(len >= 8 + 8 + 3 * size_of::<Row>() || Rows::view(&bytes[..len]).is_none());
        look(&bytes[..len]);
    }
    for at in 0..bytes.len() {
        for wrong in [0, 1, 0x7F, 0x80, 0xFF] {
            let mut bytes = bytes.clone();
            bytes[at] = wrong;
            look(&bytes);
        }
    }
    assert!(Rows::view(&[0; 8]).unwrap().is_empty());
}
