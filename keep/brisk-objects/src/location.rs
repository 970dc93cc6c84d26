//! Where a file is: its real name, and no network.

use std::path::{Path, PathBuf};

use brisk_io::Filesystem;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::error::Error;

/// Refuses a file on a network.
pub(crate) fn refuse_network(path: &Path) -> Result<(), Error> {
    // A file can be mounted alone, and that of its readers is in the directory.
    for place in [path.parent().unwrap_or(Path::new("/")), path] {
        // To ask for its filesystem. A directory of others need not be readable.
        let opened = match rustix::fs::open(place, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
            Err(Errno::NOENT) if place == path => return Ok(()),
            opened => opened.map_err(std::io::Error::from)?,
        };
        if let Filesystem::Network(filesystem) = Filesystem::of(opened)? {
            let path = path.to_owned();
            return Err(Error::Network { path, filesystem });
        }
    }
    Ok(())
}

/// A path from the root, through links to the file that they name, so that all processes lock the same one.
pub(crate) fn resolved(path: &Path) -> Result<PathBuf, Error> {
    let path = std::path::absolute(path)?;
    match path.canonicalize() {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            if path.is_symlink() {
                let told = format!("{} is a link to a file that does not exist", path.display());
                return Err(std::io::Error::new(e.kind(), told).into());
            }
            let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
                return Err(e.into());
            };
            let directory = parent.canonicalize().map_err(|e| {
                let message = format!(
                    "cannot open {}: the directory {}: {e}",
                    path.display(),
                    parent.display()
                );
                std::io::Error::new(e.kind(), message)
            })?;
            Ok(directory.join(name))
        }
        found => found.map_err(|e| {
            let message = format!("cannot open {}: {e}", path.display());
            std::io::Error::new(e.kind(), message).into()
        }),
    }
}
