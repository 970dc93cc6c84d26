//! Where an archive holds what, for archives that hold layers.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Component, Path, PathBuf};

use super::input::InPlace;
use super::reader::{Segment, TarKind, TarReader};
use crate::error::{Error, Result};

/// Names in an archive at most. One of layers has a few for each.
const MOST_NAMES: usize = 100_000;

/// The files of an archive that is a file, by name: the byte that each starts at, and its length.
///
/// What is compressed or has holes is left out, and so are directories. A link is the file that it leads to, if that is in the
/// archive and no link.
///
/// # Errors
///
/// Those of [`Tree::from_tar_file`](crate::Tree::from_tar_file), and `Limit` for more than 100,000 names.
pub fn archive_files(archive: File) -> Result<BTreeMap<PathBuf, (u64, u64)>> {
    let mut reader = TarReader::new(InPlace::new(archive)?);
    let (mut files, mut links) = (BTreeMap::new(), Vec::new());
    while let Some(entry) = reader.next()? {
        let names = files.len() + links.len();
        if names >= MOST_NAMES {
            let what = "the number of names in the archive";
            return Err(Error::limit(what, names as u64 + 1, MOST_NAMES as u64));
        }
        let path = PathBuf::from(entry.path.as_os_str());
        match entry.kind {
            TarKind::File { len, segments } => {
                let place = match &segments[..] {
                    [] if len == 0 => Some((0, 0)),
                    [Segment { piece, at }] if piece.len == len => Some((*at, len)),
                    _ => None,
                };
                files.extend(place.map(|place| (path, place)));
            }
            TarKind::HardLink(target) => links.push((path, target.as_os_str().into())),
            TarKind::Symlink(target) => {
                let above = path.parent().unwrap_or(Path::new(""));
                let target = above.join(crate::names::from_bytes(&*target));
                links.extend(resolved(&target).map(|target| (path, target)));
            }
            _ => {}
        }
    }
    for (path, target) in links {
        if let Some(place) = files.get(&target).copied() {
            files.entry(path).or_insert(place);
        }
    }
    Ok(files)
}

/// `path` without `..`, if it stays in the archive.
fn resolved(path: &Path) -> Option<PathBuf> {
    let mut resolved = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => resolved.push(name),
            Component::ParentDir => resolved.pop().then_some(())?,
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(resolved)
}
