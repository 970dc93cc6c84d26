//! What two runs or launches must have in common to share something.

use std::ffi::OsStr;
use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::{fs, io};

use rustix::fs::{AtFlags, CWD, StatxFlags, fstat, makedev, statx};
use rustix::process::{getegid, geteuid};

use brisk_io::ByteSource;

use crate::file_identity::FileIdentity;

/// How many bytes at the start of an image identify it: its superblock.
const SUPERBLOCK: usize = 96;

/// Everything that two runs must have in common to share a session, or two launches to share what is learned.
///
/// For a session, the parts are what the program sees (images, places, options) and where the run comes from:
/// its user, group, namespaces and root directory. A session can be joined only from where it was made.
#[derive(Clone)]
pub struct Key(Vec<u8>);

impl Key {
    /// For a session of the calling process.
    pub fn new() -> io::Result<Self> {
        let mut key = Self(Vec::new());
        key.add(env!("CARGO_PKG_VERSION").as_bytes());
        key.add_number(geteuid().as_raw().into());
        key.add_number(getegid().as_raw().into());
        for namespace in ["user", "mnt", "pid"] {
            let namespace = fs::read_link(format!("/proc/self/ns/{namespace}"))?;
            key.add(namespace.as_os_str().as_bytes());
        }
        let flags = StatxFlags::INO | StatxFlags::MNT_ID;
        let root = statx(CWD, "/", AtFlags::empty(), flags)?;
        key.add_number(makedev(root.stx_dev_major, root.stx_dev_minor));
        key.add_number(root.stx_ino);
        // Another mount of the same directory may be read-only. Zero before Linux 5.8.
        key.add_number(root.stx_mnt_id);
        Ok(key)
    }

    /// For what launches have in common, independent of user and session.
    pub fn of_launches() -> Self {
        Self(Vec::new())
    }

    /// Adds what identifies an image. A file that was replaced, written to or cut is another one.
    pub fn add_image(&mut self, file: &File, offset: u64) -> io::Result<()> {
        self.add_file(file)?;
        self.add_number(offset);
        let mut superblock = [0; SUPERBLOCK];
        file.read_exact_bytes_at(offset, &mut superblock)?;
        self.add(&superblock);
        Ok(())
    }

    /// Adds what identifies the contents of a file, as above.
    pub fn add_file(&mut self, file: &File) -> io::Result<()> {
        let numbers = FileIdentity::of(&fstat(file)?).numbers();
        numbers.into_iter().for_each(|n| self.add_number(n));
        Ok(())
    }

    /// The length comes first, so that two different lists of parts never look the same.
    pub fn add(&mut self, part: &[u8]) {
        self.0.extend_from_slice(&part.len().to_le_bytes());
        self.0.extend_from_slice(part);
    }

    /// A number.
    pub fn add_number(&mut self, part: u64) {
        self.add(&part.to_le_bytes());
    }

    /// A path, or that there is none.
    pub fn add_path(&mut self, path: Option<&Path>) {
        self.add_number(path.is_some().into());
        self.add(path.map_or(OsStr::new(""), Path::as_os_str).as_bytes());
    }

    /// A name for files, of 128 bits. All names in a directory belong to one user, who gains nothing from
    /// making two of them equal.
    pub fn name(&self) -> String {
        let half = |start: u8| {
            let mut hasher = DefaultHasher::new();
            hasher.write_u8(start);
            hasher.write(&self.0);
            hasher.finish()
        };
        format!("{:016x}{:016x}", half(0), half(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, Write};

    fn name(build: impl FnOnce(&mut Key)) -> String {
        let mut key = Key::new().expect("the process has namespaces");
        build(&mut key);
        key.name()
    }

    #[test]
    fn what_the_program_sees_tells_sessions_apart() {
        let names = [
            name(|_| {}),
            name(|key| key.add_path(None)),
            name(|key| key.add_path(Some(Path::new("")))),
            name(|key| key.add_path(Some(Path::new("/mnt")))),
            name(|key| {
                key.add(b"/m");
                key.add(b"nt");
            }),
        ];
        for (i, one) in names.iter().enumerate() {
            assert_eq!(one.len(), 32);
            assert!(!names[..i].contains(one), "{names:?}");
        }
        assert_eq!(name(|_| {}), names[0]);
    }

    #[test]
    fn a_file_that_changed_is_another_image() {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&[7; 200]).expect("room");
        let name_at =
            |file: &File, offset| name(|key| key.add_image(file, offset).expect("a superblock"));
        let first = name_at(&file, 0);
        assert_eq!(first, name_at(&file, 0));
        assert_ne!(first, name_at(&file, 1));
        // The same length, and the time of modification set back, as `cp -p` does.
        let modified = file.metadata().and_then(|found| found.modified());
        std::thread::sleep(std::time::Duration::from_millis(20));
        file.rewind().expect("a file");
        file.write_all(&[7; 200]).expect("room");
        file.set_modified(modified.expect("a time")).expect("ours");
        let second = name_at(&file, 0);
        assert_ne!(first, second);
        file.set_len(199).expect("ours");
        assert_ne!(second, name_at(&file, 0));
    }
}
