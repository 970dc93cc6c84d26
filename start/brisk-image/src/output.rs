//! Output files that appear whole or not at all.

use std::fs::{File, Metadata, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use brisk_io::start_writeback;
use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Uid, fchown, linkat, openat};

use crate::error::{Error, Result};

/// Where an image is written to.
pub(crate) trait Output {
    /// Bytes written so far.
    fn len(&self) -> u64;

    fn append(&mut self, bytes: &[u8]) -> Result<()>;

    /// Makes the length a multiple of `align`, with zeros.
    fn pad_to(&mut self, align: u64) -> Result<()>;

    /// Writes over bytes that were appended before.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()>;
}

/// A file that gets its name only when it is complete.
///
/// The file has no name while it is written, where the filesystem can do that: whatever happens to
/// the process, nothing is left. Where not, it has a temporary name in the same directory.
pub(crate) struct OutputFile {
    file: File,
    path: PathBuf,
    /// Its name, where it must have one.
    temporary: Option<tempfile::TempPath>,
    len: u64,
    /// Up to here the kernel was told to write to the disk.
    started: u64,
}

/// Bytes after which the kernel is told to start writing: large enough for long runs on the disk,
/// small enough that little is left for the end.
const WRITEBACK: u64 = 16 << 20;

impl OutputFile {
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let create = || {
            let replaced = std::fs::metadata(path).ok();
            // A device of that name would be replaced by a file.
            if replaced
                .as_ref()
                .is_some_and(|metadata| !metadata.is_file())
            {
                let text = "the output exists and is not a file; name another one";
                return Err(Error::input(text));
            }
            let directory = directory_of(path);
            let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
            let mode = Mode::from_raw_mode(0o666);
            let unnamed = openat(CWD, directory, flags, mode).ok().map(File::from);
            // It gets its name through /proc, which not every root directory has.
            let unnamed = unnamed.filter(|file| std::fs::metadata(by_descriptor(file)).is_ok());
            let (file, temporary) = match unnamed {
                Some(file) => (file, None),
                None => {
                    let named = temporary_builder().tempfile_in(directory);
                    // The cause without tempfile's words, which name the temporary file.
                    let named = named.map_err(|e| {
                        let cause = e.raw_os_error().map_or(e, io::Error::from_raw_os_error);
                        Error::io("create the output file", cause)
                    })?;
                    let (file, path) = named.into_parts();
                    (file, Some(path))
                }
            };
            if let Some(replaced) = replaced {
                take_permissions(&file, &replaced)
                    .map_err(|e| Error::io("set the permissions of the output file", e))?;
            }
            Ok(Self {
                file,
                path: path.to_owned(),
                temporary,
                len: 0,
                started: 0,
            })
        };
        create().map_err(|e| e.with_path(path))
    }

    /// Another handle on the file, to read what was written.
    pub(crate) fn reader(&self) -> Result<File> {
        let error = |e| Error::io("read the output file", e).with_path(&self.path);
        self.file.try_clone().map_err(error)
    }

    /// Puts all bytes on the disk, and then the name. At any time, either the whole older file has
    /// this name or the whole new one.
    pub(crate) fn finish(self) -> Result<()> {
        let path = self.path.clone();
        self.finish_inner()
            .map_err(|e| Error::io("complete the output file", e).with_path(path))
    }

    fn finish_inner(self) -> io::Result<()> {
        self.file.sync_all()?;
        let directory = directory_of(&self.path);
        match self.temporary {
            Some(temporary) => temporary.persist(&self.path).map_err(|e| e.error)?,
            None => {
                // A name can be given to the file only where there is none, so an older file is
                // replaced in two steps: a temporary name, then `rename`.
                let from = by_descriptor(&self.file);
                let link = |to: &Path| {
                    linkat(CWD, from.as_str(), CWD, to, AtFlags::SYMLINK_FOLLOW)
                        .map_err(io::Error::from)
                };
                let named = temporary_builder().make_in(directory, link)?;
                named
                    .into_temp_path()
                    .persist(&self.path)
                    .map_err(|e| e.error)?;
            }
        }
        File::open(directory)?.sync_all()
    }
}

impl Output for OutputFile {
    fn len(&self) -> u64 {
        self.len
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.write_at(self.len, bytes)?;
        self.len += bytes.len() as u64;
        if self.len - self.started >= WRITEBACK {
            start_writeback(&self.file, self.started, self.len - self.started);
            self.started = self.len;
        }
        Ok(())
    }

    fn pad_to(&mut self, align: u64) -> Result<()> {
        self.len = self.len.next_multiple_of(align);
        self.file
            .set_len(self.len)
            .map_err(|e| Error::io("write the output file", e).with_path(&self.path))
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file
            .write_all_at(bytes, offset)
            .map_err(|e| Error::io("write the output file", e).with_path(&self.path))
    }
}

/// Gives `file` the owner and the permissions of the file that it replaces, so that nobody can read
/// the new one who could not read the old one.
fn take_permissions(file: &File, replaced: &Metadata) -> io::Result<()> {
    let new = file.metadata()?;
    let mut mode = replaced.mode() & 0o777;
    let owner = (new.uid() != replaced.uid()).then(|| Uid::from_raw(replaced.uid()));
    let group = (new.gid() != replaced.gid()).then(|| Gid::from_raw(replaced.gid()));
    let is_given = |owner, group| fchown(file, owner, group).is_ok();
    // A user who may not give it away keeps it.
    if (owner, group) != (None, None) && !is_given(owner, group) && !is_given(None, group) {
        // Another group may what all may.
        mode = mode & !0o070 | (mode & 0o007) << 3;
    }
    if file.metadata()?.mode() & 0o777 == mode {
        return Ok(());
    }
    match file.set_permissions(Permissions::from_mode(mode)) {
        // Some file systems have one mode for all files.
        Err(e)
            if e.kind() == io::ErrorKind::PermissionDenied && new.mode() & 0o777 & !mode == 0 =>
        {
            Ok(())
        }
        set => set,
    }
}

/// The name of a file without one.
fn by_descriptor(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

fn temporary_builder<'a, 'b>() -> tempfile::Builder<'a, 'b> {
    let mut builder = tempfile::Builder::new();
    // Less the umask, as for any new file.
    builder
        .prefix(".brisk-")
        .permissions(Permissions::from_mode(0o666));
    builder
}

/// The directory that the file at `path` is in.
pub(crate) fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unfinished_file_leaves_the_old_one_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        std::fs::write(&path, "old").unwrap();
        let mut file = OutputFile::create(&path).unwrap();
        file.append(b"new").unwrap();
        drop(file);
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        let mut file = OutputFile::create(&path).unwrap();
        file.append(b"new").unwrap();
        file.pad_to(8).unwrap();
        file.write_at(1, b"E").unwrap();
        file.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"nEw\0\0\0\0\0");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_replaces_a_private_file_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        for mode in [0o600, 0o640, 0o666] {
            std::fs::write(&path, "old").unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            OutputFile::create(&path).unwrap().finish().unwrap();
            let metadata = std::fs::metadata(&path).unwrap();
            assert_eq!((metadata.len(), metadata.mode() & 0o7777), (0, mode));
        }
    }

    #[test]
    fn an_output_that_cannot_be_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let e = OutputFile::create(dir.path()).err().unwrap();
        assert_eq!(
            e.to_string(),
            format!(
                "{}: the output exists and is not a file; name another one",
                dir.path().display()
            )
        );
        let path = dir.path().join("none/out");
        let e = OutputFile::create(&path).err().unwrap();
        assert_eq!(
            e.to_string(),
            format!("{}: cannot create the output file", path.display())
        );
    }
}
