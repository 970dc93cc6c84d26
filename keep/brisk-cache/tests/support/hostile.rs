//! What a program does with a cache in whose files anything can be. The tests and the fuzz targets share it.
//!
//! An input is a list of changes to the files of a right cache. They are made with right checks, so that they get past
//! those. Then two handles read, write, remove and evict. Nothing may panic, fail, or take longer than a right cache takes.

use std::fs;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::LazyLock;

use brisk_cache::{About, Cache, CacheOptions, FlatTable, FlatTableBuilder, Text};
use twox_hash::XxHash3_64;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const SLOTS_AT: usize = 65_536;
const SLOT: usize = 64;
/// A longer value has chunks.
const WHOLE: usize = 16_384;

fn options() -> CacheOptions {
    // So small that a few insertions evict. No use is noted, because that would depend on when the right cache was made.
    CacheOptions::new()
        .limit(1 << 20)
        .segment_len(65_536)
        .note_use_after(None)
}

fn value(key: usize) -> Vec<u8> {
    let len = [0, 1, 40, 500, 3_000, 9_000, 16_000, 40_000][key % 8];
    (0..len).map(|at| (at * 7 + key * 13) as u8).collect()
}

fn name(key: usize) -> Vec<u8> {
    format!("the key {key}").into_bytes()
}

/// How many keys the right cache has. The last one's value has a file of its own.
const KEYS: usize = 8;

/// The files of a right cache.
struct Files(Vec<(String, Vec<u8>)>);

/// A directory that was once made by [`make_right`]. Its random numbers stay the same.
static RIGHT: LazyLock<Files> = LazyLock::new(|| {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let directories = ["testdata/right", "../../keep/brisk-cache/testdata/right"];
    let directories = directories.map(|directory| manifest.join(directory));
    let directory = directories.iter().find(|directory| directory.exists());
    let files = fs::read_dir(directory.unwrap()).unwrap().map(|entry| {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        (name, fs::read(entry.path()).unwrap())
    });
    Files(files.collect())
});

/// Makes a right cache.
pub fn make_right(directory: &Path) {
    let cache = Cache::open(directory, options()).unwrap();
    for key in 0..KEYS {
        let about = About {
            fingerprint: key as u64,
            bucket: key as u16,
        };
        cache.insert(&name(key), &value(key), about).unwrap();
    }
}

impl Files {
    fn right() -> Self {
        Self(RIGHT.0.clone())
    }

    fn file(&mut self, is: impl Fn(&str) -> bool) -> &mut Vec<u8> {
        let found = self.0.iter_mut().find(|(name, _)| is(name));
        &mut found.unwrap().1
    }

    fn index(&mut self) -> &mut Vec<u8> {
        self.file(|name| name == "index")
    }

    /// The offsets of the slots that are in use.
    fn slots(&mut self) -> Vec<usize> {
        let index = self.index();
        let all = (SLOTS_AT..index.len()).step_by(SLOT);
        all.filter(|&at| index[at..at + SLOT] != [0; SLOT])
            .collect()
    }

    /// Gives a slot the check that it should have.
    fn seal_slot(&mut self, at: usize) {
        let index = self.index();
        let seed = u64::from_le_bytes(*index[16..].first_chunk().unwrap());
        let check = XxHash3_64::oneshot_with_seed(seed, &index[at..at + SLOT - 8]);
        index[at + SLOT - 8..at + SLOT].copy_from_slice(&check.to_le_bytes());
    }

    /// The file and the offset of the record that a slot names.
    fn record_of(&mut self, slot: usize) -> (String, usize) {
        let slot = &self.index()[slot..slot + SLOT];
        let segment = u64::from_le_bytes(*slot[16..].first_chunk().unwrap());
        let place = u32::from_le_bytes(*slot[24..].first_chunk().unwrap());
        let end = if slot[50] == 1 { "segment" } else { "value" };
        (format!("{segment:016x}.{end}"), place as usize * 64)
    }

    /// Gives a record the checks that it should have, whatever lengths it says, and its slot with it.
    fn seal_record(&mut self, slot: usize) {
        let (file, at) = self.record_of(slot);
        let bytes = self.file(|name| name == file);
        let Some(record) = bytes.get_mut(at..) else {
            return;
        };
        let [a, b, c, d, e, log2_chunk] = *record[24..].first_chunk().unwrap();
        let value_len = u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]) as usize;
        let chunk_len = match log2_chunk {
            10..=14 => 1 << log2_chunk,
            _ => 16_384,
        };
        let key_len = usize::from(u16::from_le_bytes(*record[30..].first_chunk().unwrap()));
        let segment = u64::from_le_bytes(*record[8..].first_chunk().unwrap());
        let chunks = if value_len > WHOLE {
            value_len.div_ceil(chunk_len)
        } else {
            0
        };
        let table = (32 + key_len).next_multiple_of(8);
        let value = match file.ends_with("value") {
            true => (table + chunks * 8 + 64).next_multiple_of(65_536) - 64,
            false => (32 + key_len).next_multiple_of(64),
        };
        let end = if chunks > 0 {
            table + chunks * 8
        } else {
            value + value_len
        };
        for number in 0..chunks.min(8) {
            let from = value + number * chunk_len;
            let to = (from + chunk_len).min(value + value_len);
            let Some(chunk) = record.get(from..to) else {
                break;
            };
            let check = XxHash3_64::oneshot_with_seed(segment.wrapping_add(number as u64), chunk);
            let place = table + number * 8;
            if let Some(place) = record.get_mut(place..place + 8) {
                place.copy_from_slice(&check.to_le_bytes());
            }
        }
        let Some(covered) = record.get(8..end) else {
            return;
        };
        let check = XxHash3_64::oneshot(covered).to_le_bytes();
        record[..8].copy_from_slice(&check);
        self.index()[slot + 32..slot + 40].copy_from_slice(&check);
        self.seal_slot(slot);
    }

    fn write_to(&self, directory: &Path) {
        for (name, bytes) in &self.0 {
            let path = directory.join(name);
            fs::write(&path, bytes).unwrap();
            // Whoever checked it out may share files with a group.
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        }
    }
}

/// Any slots.
pub fn index(input: &[u8]) -> String {
    let mut files = Files::right();
    let slots = files.slots();
    for change in input.chunks_exact(4).take(64) {
        let &[what, a, b, c] = change else { continue };
        let slot = |n: u8| slots[usize::from(n) % slots.len()];
        let anywhere = SLOTS_AT + (usize::from(b) | usize::from(c) << 8) % 1024 * SLOT;
        match what % 5 {
            // A byte of the header or of a slot, without a check.
            0 => {
                let at = match a % 2 {
                    0 => usize::from(b) % 40,
                    _ => slot(a) + usize::from(b) % SLOT,
                };
                files.index()[at] = c;
            }
            // A field of a slot.
            1 => {
                let at = slot(a);
                files.index()[at + usize::from(b) % 56] ^= c;
                files.seal_slot(at);
            }
            // The record of one key under the digest of another.
            2 => {
                let (from, to) = (slot(a), slot(b));
                let rest = files.index()[from + 16..from + SLOT].to_vec();
                files.index()[to + 16..to + SLOT].copy_from_slice(&rest);
                files.seal_slot(to);
            }
            // A slot at another place, also twice.
            3 => {
                let slot = files.index()[slot(a)..][..SLOT].to_vec();
                files.index()[anywhere..anywhere + SLOT].copy_from_slice(&slot);
            }
            // A cut.
            _ => {
                let keep = files.index().len() - usize::from(a) * 512;
                files.index().truncate(keep.max(anywhere));
            }
        }
        if files.index().len() < SLOTS_AT + 65_536 {
            break;
        }
    }
    use_it(&files, true)
}

/// Any records.
pub fn records(input: &[u8]) -> String {
    let mut files = Files::right();
    let slots = files.slots();
    for change in input.chunks_exact(4).take(64) {
        let &[what, a, b, c] = change else { continue };
        let slot = slots[usize::from(a) % slots.len()];
        let (file, at) = files.record_of(slot);
        let is_it = |name: &str| name == file;
        match what % 5 {
            // A byte near the beginning, without a check.
            0 => {
                if let Some(byte) = files.file(is_it).get_mut(at + usize::from(b)) {
                    *byte = c;
                }
            }
            // A byte of the header or the key.
            1 => {
                if let Some(byte) = files.file(is_it).get_mut(at + 8 + usize::from(b) % 48) {
                    *byte ^= c;
                }
                files.seal_record(slot);
            }
            // Other lengths.
            2 => {
                if let Some(lens) = files.file(is_it).get_mut(at + 24..at + 32) {
                    lens[usize::from(b) % 8] = c;
                }
                files.seal_record(slot);
            }
            // Another place or room.
            3 => {
                files.index()[slot + 24 + usize::from(b) % 8] = c;
                files.seal_slot(slot);
                let (file, at) = files.record_of(slot);
                if files
                    .0
                    .iter()
                    .any(|(name, bytes)| *name == file && bytes.len() >= at + 128)
                {
                    files.seal_record(slot);
                }
            }
            // A cut of the file, or a byte of its header.
            _ => {
                let bytes = files.file(is_it);
                match b % 2 {
                    0 => bytes.truncate(bytes.len().saturating_sub(usize::from(c) * 512)),
                    _ => bytes[usize::from(b) % 64] ^= c,
                }
                if bytes.len() < 128 {
                    break;
                }
            }
        }
    }
    use_it(&files, false)
}

/// Does with the cache what programs do. `right`: what is found was inserted, because no record was changed.
fn use_it(files: &Files, right: bool) -> String {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    files.write_to(home.path());
    // SAFETY: from here on, only brisk writes to the directory.
    let mapped = unsafe { Cache::open_mapped(home.path(), options()) }.unwrap();
    let copied = Cache::open(home.path(), options()).unwrap();
    let mut buf = Vec::new();
    let (mut found, mut missed) = (0, 0);
    for key in 0..KEYS {
        let hit = mapped.get(&name(key)).unwrap();
        let borrowed = hit.as_ref().and_then(|hit| hit.bytes().ok());
        let copy = copied.get_into(&name(key), &mut buf).unwrap();
        // A borrowed value is checked when it is asked for.
        assert!(borrowed == copy || hit.is_some() && copy.is_none());
        match copy {
            Some(copy) => {
                assert!(!right || copy == value(key));
                found += 1;
            }
            None => missed += 1,
        }
    }
    let listed = mapped.iter().unwrap().filter(Result::is_ok).count();
    for key in 0..KEYS {
        copied.update_use(&name(key)).unwrap();
    }
    mapped.stat().unwrap();
    mapped.remove(&name(1)).unwrap();
    // Everything that was there is evicted, or copied forward.
    for key in 100..140 {
        let value = vec![key as u8; 15_000];
        let writer = if key % 2 == 0 { &mapped } else { &copied };
        writer.insert(&name(key), &value, About::default()).unwrap();
        let reader = if key % 3 == 0 { &mapped } else { &copied };
        let there = reader.get_into(&name(key), &mut buf).unwrap();
        assert_eq!(there, Some(&value[..]));
    }
    for key in 0..KEYS {
        if let Some(hit) = mapped.get(&name(key)).unwrap()
            && right
        {
            assert_eq!(hit.bytes().unwrap(), value(key));
        }
    }
    assert!(copied.stat().unwrap().bytes <= 1 << 20);
    copied.clear().unwrap();
    assert_eq!(mapped.iter().unwrap().count(), 0);
    format!("{found} found, {missed} missed, {listed} listed")
}

#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
struct Row {
    name: Text,
    number: U32,
    other: Text,
}

/// Any bytes are a table or none, and a look-up finds only what it was asked for.
pub fn table(input: &[u8]) -> String {
    let outcome = match FlatTable::<Row>::view(input.into()).unwrap() {
        Some(table) => {
            let rows = table.rows(0..table.len()).unwrap().unwrap();
            let mut texts = 0;
            for (at, row) in rows.iter().enumerate().take(1_000) {
                assert_eq!(table.row(at).unwrap(), Some(row));
                for text in [row.name, row.other] {
                    let known = table.text(text).unwrap();
                    assert!(known.is_none_or(|known| is_part(known.as_bytes(), input)));
                    texts += usize::from(known.is_some());
                    let wanted = known.unwrap_or("none");
                    let found = table.find(wanted, |row| row.name).unwrap();
                    let has = |row: &Row| table.text(row.name).unwrap() == Some(wanted);
                    assert!(found.is_none_or(has));
                }
            }
            let behind = Range {
                start: 0,
                end: table.len() + 1,
            };
            assert_eq!(table.rows(behind).unwrap(), None);
            format!("{} rows, {texts} texts", table.len())
        }
        None => "no table".to_owned(),
    };
    build(input);
    outcome
}

/// A table that is built of the parts of the input has them.
fn build(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let mut names: Vec<&str> = text.split('\0').take(300).collect();
    names.sort_unstable();
    names.dedup();
    let mut builder = FlatTableBuilder::new();
    for (number, text) in (0..).zip(&names) {
        let name = builder.text(text).unwrap();
        let row = Row {
            name,
            number: U32::new(number),
            other: builder.text("other").unwrap(),
        };
        builder.row(row).unwrap();
    }
    let bytes = builder.finish_sorted(|row| row.name).unwrap();
    let table = FlatTable::<Row>::view(bytes[..].into()).unwrap().unwrap();
    for (number, name) in (0..).zip(&names) {
        let row = table.find(name, |row| row.name).unwrap().unwrap();
        assert_eq!(
            (row.number.get(), table.text(row.other).unwrap()),
            (number, Some("other"))
        );
    }
    assert_eq!(table.len(), names.len());
}

fn is_part(part: &[u8], of: &[u8]) -> bool {
    let (whole, part) = (of.as_ptr_range(), part.as_ptr_range());
    whole.start <= part.start && part.end <= whole.end
}
