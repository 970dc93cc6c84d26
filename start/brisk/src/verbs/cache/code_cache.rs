use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// What the entries begin with that `CodeCache` made before it became a face of `Cache`.
const MAGIC: &[u8; 8] = b"briskcod";

/// The entries of a cache of generated code, as older versions of brisk made them.
pub(super) struct CodeCacheFiles {
    pub(super) entries: u64,
    pub(super) bytes: u64,
    /// The versions of the format that they have, lowest first.
    pub(super) versions: Vec<u32>,
}

impl CodeCacheFiles {
    /// None if no file of the directory begins as such an entry does.
    pub(super) fn find(directory: &Path) -> io::Result<Option<Self>> {
        let mut found = Self {
            entries: 0,
            bytes: 0,
            versions: Vec::new(),
        };
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if !entry.file_name().to_str().is_some_and(is_name) {
                continue;
            }
            let Some((version, len)) = read(&entry.path())? else {
                continue;
            };
            found.entries += 1;
            found.bytes = found.bytes.saturating_add(len);
            if !found.versions.contains(&version) {
                found.versions.push(version);
            }
        }
        found.versions.sort_unstable();
        Ok((found.entries > 0).then_some(found))
    }
}

/// Whether an entry may have this name: 32 hexadecimal digits, `.code` and a number.
fn is_name(name: &str) -> bool {
    name.split_once(".code").is_some_and(|(digest, version)| {
        let hex = |b| matches!(b, b'0'..=b'9' | b'a'..=b'f');
        digest.len() == 32
            && digest.bytes().all(hex)
            && !version.is_empty()
            && version.bytes().all(|b| b.is_ascii_digit())
    })
}

/// The version of the format and the length, if the file begins as an entry does.
fn read(path: &Path) -> io::Result<Option<(u32, u64)>> {
    // Otherwise opening a named pipe would wait.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let opened = File::options().read(true).custom_flags(flags).open(path);
    // It is a link, it is gone, or it belongs to somebody else.
    let Ok(mut file) = opened else {
        return Ok(None);
    };
    let metadata = file.metadata()?;
    let mut start = [0; 12];
    if !metadata.is_file() || file.read_exact(&mut start).is_err() {
        return Ok(None);
    }
    let version = start.last_chunk().copied().unwrap_or_default();
    let right = start.starts_with(MAGIC);
    Ok(right.then(|| (u32::from_le_bytes(version), metadata.len())))
}
