//! What a process has mapped, and which pages of that its page tables have.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;
use std::{fs, io};

use brisk_io::page_size;

use super::files::Files;
use crate::process_maps::MapsLine;

/// A page of the page tables is in memory, or was and is swapped out.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;

/// Bytes of an entry of `/proc/PID/pagemap`.
const ENTRY: u64 = 8;

/// Entries to read at once: of 32 MiB with pages of 4 KiB.
const AT_ONCE: u64 = 8192;

/// A mapping of at most so many bytes is short.
const SHORT: u64 = 2 << 20;

/// The longest mapping that is looked through: 4 GiB. Its entries take 8 MB.
const LONGEST: u64 = 4 << 30;

/// A file, as far as a process has mapped it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct MappedFile {
    /// The first address.
    pub(super) start: u64,
    /// The address behind the last one.
    pub(super) end: u64,
    /// The byte of the file at the first address.
    pub(super) offset: u64,
    /// Its path, with ` (deleted)` behind it if it has none any more.
    pub(super) path: PathBuf,
}

/// The files that a process has mapped.
pub(super) fn mapped_files(process: i32) -> io::Result<Vec<MappedFile>> {
    let maps = fs::read(format!("/proc/{process}/maps"))?;
    Ok(maps
        .split(|byte| *byte == b'\n')
        .filter_map(parse)
        .collect())
}

/// Reads a line of `/proc/PID/maps`, if it is of a file.
fn parse(line: &[u8]) -> Option<MappedFile> {
    let line = MapsLine::parse(line)?;
    Some(MappedFile {
        start: line.start,
        end: line.end,
        offset: line.offset,
        path: line.path?.to_owned(),
    })
}

/// Notes everything that the page tables of a process have, as asked for at this time. False if nothing can be seen: it has
/// ended, or has the rights of others. The order in which pages were touched, page tables do not say. So short mappings come
/// first: a program needs headers and data of all its libraries before it does anything.
pub(super) fn look_at_all(process: i32, files: &mut Files, at: Duration) -> bool {
    let mut all = mapped_files(process).unwrap_or_default();
    let Ok(pagemap) = File::open(format!("/proc/{process}/pagemap")) else {
        return false;
    };
    all.sort_by_key(|mapped| mapped.end.saturating_sub(mapped.start) > SHORT);
    for mapped in &all {
        look_at(&pagemap, mapped, files, at);
    }
    // For a moment, a process that becomes another program has nothing mapped. One that has ended has no program either.
    !all.is_empty() || fs::read_link(format!("/proc/{process}/exe")).is_ok()
}

/// The same of one mapping.
pub(super) fn look_at(pagemap: &File, mapped: &MappedFile, files: &mut Files, at: Duration) {
    let Some(file) = files.file(&mapped.path) else {
        return;
    };
    files.has_mapped(&mapped.path);
    // A process that has ended meanwhile tells nothing more.
    touched(pagemap, mapped, |offset, len| {
        files.asked(file, offset, len, at);
    })
    .ok();
}

/// Calls `each` with offset and length, in bytes of the file, of what page tables have of a mapping.
fn touched(pagemap: &File, mapped: &MappedFile, mut each: impl FnMut(u64, u64)) -> io::Result<()> {
    let page = page_size() as u64;
    if mapped.end.saturating_sub(mapped.start) > LONGEST {
        return Ok(());
    }
    let (first, end) = (mapped.start / page, mapped.end.div_ceil(page));
    let mut buffer = Vec::new();
    let mut at = first;
    while at < end {
        let count = (end - at).min(AT_ONCE);
        buffer.resize((count * ENTRY) as usize, 0);
        pagemap.read_exact_at(&mut buffer, at * ENTRY)?;
        let (entries, _) = buffer.as_chunks::<{ ENTRY as usize }>();
        let here =
            |entry: &[u8; ENTRY as usize]| u64::from_ne_bytes(*entry) & (PRESENT | SWAPPED) != 0;
        for run in runs(entries.iter().map(here)) {
            let from = at - first + run.start;
            let offset = mapped.offset.saturating_add(from.saturating_mul(page));
            each(offset, (run.end - run.start).saturating_mul(page));
        }
        at += count;
    }
    Ok(())
}

/// The ranges of those that are true.
fn runs(all: impl Iterator<Item = bool>) -> Vec<std::ops::Range<u64>> {
    let mut runs: Vec<std::ops::Range<u64>> = Vec::new();
    for (at, _) in (0..).zip(all).filter(|(_, is_one)| *is_one) {
        match runs.last_mut() {
            Some(last) if last.end == at => last.end += 1,
            _ => runs.push(at..at + 1),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::super::inputs::Inputs;
    use super::*;
    use brisk_io::{ByteSource, Mapping};

    #[test]
    fn runs_are_those_that_are_true() {
        let all = [true, true, false, true, false, false, true];
        assert_eq!(runs(all.into_iter()), [0..2, 3..4, 6..7]);
        assert_eq!(runs([false].into_iter()), []);
    }

    /// Becomes a new program hundreds of times.
    #[test]
    fn a_process_that_becomes_another_program_has_not_ended() {
        let script = r#"[ $0 -eq 0 ] || exec sh -c "$1" $(($0 - 1)) "$1""#;
        let mut shell = std::process::Command::new("sh")
            .args(["-c", script, "500", script])
            .spawn()
            .expect("there is a shell");
        let process = i32::try_from(shell.id()).expect("small");
        let mut files = Files::new(Inputs::of_test()).expect("a mount table");
        let mut is_seen = || look_at_all(process, &mut files, Duration::ZERO);
        while is_seen() {}
        // It has ended, even if nobody knows yet.
        while shell.try_wait().expect("ours").is_none() {
            assert!(!is_seen(), "it has not ended");
        }
    }

    #[test]
    fn only_touched_pages_are_found() {
        let page = page_size();
        let file = tempfile::NamedTempFile::new().expect("room");
        // The kernel maps up to 64 KiB around a page that is touched, or all of the large page that it is in.
        let pages = (8 << 20) / page;
        std::fs::write(file.path(), vec![1; pages * page]).expect("room");
        let mapping = Mapping::shared(file.as_file()).expect("a mapping");
        let own = i32::try_from(std::process::id()).expect("small");
        let mine = || {
            let mapped = mapped_files(own).expect("maps");
            let mut mapped = mapped.into_iter();
            mapped
                .find(|mapped| mapped.path == file.path())
                .expect("mapped")
        };
        let list = || {
            let mut found = Vec::new();
            let pagemap = File::open("/proc/self/pagemap").expect("a page map");
            touched(&pagemap, &mine(), |offset, len| found.push((offset, len)))
                .expect("a page map");
            found
        };
        assert_eq!(list(), []);
        let at = (40 * page) as u64;
        mapping.read_exact_bytes_at(at, &mut [0]).expect("there");
        let found = list();
        let sum: u64 = found.iter().map(|(_, len)| len).sum();
        assert!(sum <= 2 << 20, "{found:?}");
        let has = |(offset, len): &(u64, u64)| (*offset..offset + len).contains(&at);
        assert!(found.iter().any(has), "{found:?}");
    }
}
