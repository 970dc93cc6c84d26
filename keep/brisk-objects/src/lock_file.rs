//! The file beside a database in which LMDB notes readers and locks writers.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::unfinished::Unfinished;

/// What LMDB gives to a file that it makes: its owner reads and writes.
const OWNER: u32 = 0o600;
/// Who may read and write, of the bits of a mode.
const MAY: u32 = 0o777;

/// Makes the lock file that a database of another user lacks, if this process is root, with the owner and the mode of the
/// database. LMDB would give it to root, and lock the owner out.
///
/// LMDB takes an empty one as its own. It appears with its owner: another process may open it at once, and would have locks
/// in a file without a name if this one removed it again.
pub(crate) fn make_for_owner(database: &Path) -> Result<(), Error> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let lock = of(database);
    let (owner, group, mode) = match fs::metadata(database) {
        // LMDB makes both.
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        found => {
            let found = found?;
            (found.uid(), found.gid(), found.mode() & MAY | OWNER)
        }
    };
    let is_there = fs::symlink_metadata(&lock).is_ok();
    if is_there || (owner, mode) == (0, OWNER) {
        return Ok(());
    }
    let mut made = match Unfinished::beside(&lock) {
        // LMDB needs none to read there.
        Err(Error::Io(e)) if e.kind() == ErrorKind::ReadOnlyFilesystem => return Ok(()),
        made => made?,
    };
    let file = made.file();
    fchown(&*file, Some(owner), Some(group))
        // Behind the other, which may take bits away.
        .and_then(|()| file.set_permissions(Permissions::from_mode(mode)))
        .map_err(|e| {
            let message = format!(
                "cannot give the new {} the owner {owner}:{group} and the mode {mode:03o}, as {} has them: {e}; open the \
                 database once as its owner",
                lock.display(),
                database.display()
            );
            // Not the kind of a refusal to open it.
            io::Error::other(message)
        })?;
    // If not, another process has made one, or LMDB.
    made.has_appeared()?;
    Ok(())
}

fn of(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push("-lock");
    name.into()
}
