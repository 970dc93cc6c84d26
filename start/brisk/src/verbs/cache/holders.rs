//! Which processes still have files of a directory open that have no name any more.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What the kernel puts behind the name of a file that was removed.
const DELETED: &[u8] = b" (deleted)";

/// The files that processes hold, though they have no name any more.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    /// Bytes of all of them. Their space is free when the last process lets go.
    pub(super) bytes: u64,
    pub(super) files: u64,
    pub(super) processes: Vec<i32>,
    /// How many processes this user may not look at.
    pub(super) unseen: u64,
}

impl Held {
    /// Looks at what all processes have open and mapped.
    pub(super) fn find(directory: &Path) -> io::Result<Self> {
        let directory = directory.canonicalize()?;
        let mut held = Self::default();
        // Numbers of segments are random, so a name is a file.
        let mut files: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        let mut processes = BTreeSet::new();
        for entry in fs::read_dir("/proc")? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else {
                continue;
            };
            let maps = match fs::read(entry.path().join("maps")) {
                Ok(maps) => maps,
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                    held.unseen += 1;
                    continue;
                }
                // It has ended.
                Err(_) => continue,
            };
            let mut note = |name: &[u8], bytes: u64| {
                let known = files.entry(name.to_vec()).or_default();
                *known = (*known).max(bytes);
                processes.insert(pid);
            };
            for line in maps.split(|&b| b == b'\n') {
                if let Some((name, bytes)) = mapped(line, &directory) {
                    note(name, bytes);
                }
            }
            for open in fs::read_dir(entry.path().join("fd"))
                .into_iter()
                .flatten()
                .flatten()
            {
                let path = open.path();
                let Ok(target) = fs::read_link(&path) else {
                    continue;
                };
                if let Some(name) = removed(target.as_os_str().as_bytes(), &directory) {
                    note(
                        name,
                        fs::metadata(&path).map_or(0, |metadata| metadata.len()),
                    );
                }
            }
        }
        held.files = files.len() as u64;
        held.bytes = files.into_values().fold(0, u64::saturating_add);
        held.processes = processes.into_iter().collect();
        Ok(held)
    }
}

/// The name of a file with records that was removed from the directory.
fn removed<'a>(path: &'a [u8], directory: &Path) -> Option<&'a [u8]> {
    let inside = path.strip_prefix(directory.as_os_str().as_bytes())?;
    let name = inside.strip_prefix(b"/")?.strip_suffix(DELETED)?;
    let known = [&b".segment"[..], b".value"]
        .iter()
        .any(|end| name.ends_with(end));
    (known && !name.contains(&b'/')).then_some(name)
}

/// The removed file that a line of `/proc/PID/maps` is about, and how far it is mapped. The line is
/// `START-END MODE OFFSET DEVICE INODE   PATH`.
fn mapped<'a>(line: &'a [u8], directory: &Path) -> Option<(&'a [u8], u64)> {
    let path = line.iter().position(|&b| b == b'/')?;
    let (fields, path) = line.split_at_checked(path)?;
    let name = removed(path, directory)?;
    let mut fields = std::str::from_utf8(fields).ok()?.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let offset = hex(fields.nth(1)?)?;
    let len = hex(end)?.checked_sub(hex(start)?)?;
    Some((name, offset.saturating_add(len)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_removed_files_of_the_directory_count() {
        let directory = Path::new("/tmp/a cache");
        let line =
            |path: &str| format!("7f0000000000-7f0000020000 r--s 00010000 fe:00 77    {path}");
        let found = |path: &str| {
            let line = line(path);
            mapped(line.as_bytes(), directory).map(|(name, bytes)| (name.to_vec(), bytes))
        };
        assert_eq!(
            found("/tmp/a cache/0123456789abcdef.segment (deleted)"),
            Some((b"0123456789abcdef.segment".to_vec(), 0x30000))
        );
        for other in [
            "/tmp/a cache/0123456789abcdef.segment",
            "/tmp/a cache/index (deleted)",
            "/tmp/a cache2/0123456789abcdef.value (deleted)",
            "/tmp/a cache/b/0123456789abcdef.value (deleted)",
        ] {
            assert_eq!(found(other), None, "{other}");
        }
        assert_eq!(mapped(b"7f00-7f01 rw-p 0 00:00 0", directory), None);
    }
}
