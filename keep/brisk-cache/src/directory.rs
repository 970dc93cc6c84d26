use std::ffi::CString;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use brisk_io::{ByteSource, coarse_seconds};
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fchmod, fstat, fstatvfs, openat, statat,
};
use rustix::io::Errno;

use crate::format::index_header::MAGIC;
use crate::trust::Trust;

pub(crate) const INDEX: &str = "index";
pub(crate) const LEDGER: &str = "ledger";
pub(crate) const FLIGHTS: &str = "flights";
pub(crate) const TAG: &str = "CACHEDIR.TAG";
pub(crate) const TAG_TEXT: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55\n\
# This file is a cache directory tag created by brisk.\n\
# For information about cache directory tags, see https://bford.info/cachedir/\n";
const UNFINISHED: &str = ".new-";
const SEGMENT: &str = ".segment";
const VALUE: &str = ".value";

/// What tells two open files apart, whatever their names are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FileId {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

impl FileId {
    pub(crate) fn of(file: impl AsFd) -> io::Result<Self> {
        Ok(Self::of_stat(&fstat(file)?))
    }

    pub(crate) fn of_stat(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
        }
    }
}

/// A file of the cache, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Name {
    Index,
    Segment(u64),
    Value(u64),
    Unfinished(u64),
    /// One that takes no space worth counting: the ledger, the flights, the tag.
    Small,
}

impl Name {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let number = |digits: &str| {
            let plain = digits.len() == 16
                && digits
                    .bytes()
                    .all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
            u64::from_str_radix(digits, 16).ok().filter(|_| plain)
        };
        if let Some(digits) = name.strip_suffix(SEGMENT) {
            return number(digits).map(Self::Segment);
        }
        if let Some(digits) = name.strip_suffix(VALUE) {
            return number(digits).map(Self::Value);
        }
        if let Some(digits) = name.strip_prefix(UNFINISHED) {
            return number(digits).map(Self::Unfinished);
        }
        match name {
            INDEX => Some(Self::Index),
            LEDGER | FLIGHTS | TAG => Some(Self::Small),
            _ => None,
        }
    }
}

pub(crate) fn segment_name(number: u64) -> String {
    numbered("", number, SEGMENT)
}

pub(crate) fn value_name(number: u64) -> String {
    numbered("", number, VALUE)
}

pub(crate) fn unfinished_name(number: u64) -> String {
    numbered(UNFINISHED, number, "")
}

/// A name with the 16 hexadecimal digits of a number. A first look pays for each page of code that it is the first to run,
/// and formatting has several.
fn numbered(before: &str, number: u64, behind: &str) -> String {
    let digits = number
        .to_be_bytes()
        .map(|byte| [byte >> 4, byte & 15].map(|half| b"0123456789abcdef"[usize::from(half & 15)]));
    let mut name = String::with_capacity(before.len() + 2 * digits.len() + behind.len());
    name.push_str(before);
    name.extend(digits.as_flattened().iter().map(|&digit| char::from(digit)));
    name.push_str(behind);
    name
}

/// Where a file without a name can be found by the process that has it open.
pub(crate) fn unnamed_path(file: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// A file that was found in the directory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Listed {
    pub(crate) name: Name,
    pub(crate) len: u64,
}

/// What is free on a disk.
pub(crate) struct Free {
    pub(crate) bytes: u64,
    /// Whether there is room for another file.
    pub(crate) has_files: bool,
}

/// The time at which a name of a directory came or went, in seconds since 1970 and nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NameChange(i64, u64);

/// The directory of a cache, which nobody writes to who is not trusted.
#[derive(Debug)]
pub(crate) struct Directory {
    fd: OwnedFd,
    path: PathBuf,
    trust: Trust,
}

impl Directory {
    /// Opens the directory. If it does not exist, makes it, for this user alone or for the group.
    pub(crate) fn open(path: &Path, group: Option<u32>) -> io::Result<Self> {
        let told =
            |e: io::Error| io::Error::new(e.kind(), format!("cache {}: {e}", path.display()));
        let open = |access| {
            let flags = access | OFlags::DIRECTORY | OFlags::CLOEXEC;
            openat(CWD, path, flags, Mode::empty())
        };
        // To look up names in it. That takes less than to open it for reading.
        let mut opened = open(OFlags::PATH);
        if matches!(opened, Err(Errno::NOENT)) {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
            made.map_err(told)?;
            opened = open(OFlags::RDONLY);
            if let (Ok(fd), Some(gid)) = (&opened, group) {
                let gid = rustix::fs::Gid::from_raw(gid);
                rustix::fs::fchown(fd, None, Some(gid)).map_err(|e| told(e.into()))?;
                let mode = Mode::from_raw_mode(0o2770);
                rustix::fs::fchmod(fd, mode).map_err(|e| told(e.into()))?;
            }
        }
        let fd = opened.map_err(|e| told(e.into()))?;
        let trust = Trust::new(group);
        let stat = fstat(&fd).map_err(|e| told(e.into()))?;
        trust.check(&stat).map_err(told)?;
        Ok(Self {
            fd,
            path: path.to_owned(),
            trust,
        })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// When a name in it last came or went. None if that was less than two seconds ago: more may happen that the clock of the
    /// filesystem does not tell from it.
    pub(crate) fn last_change(&self) -> io::Result<Option<NameChange>> {
        let stat = fstat(&self.fd).map_err(|e| self.told(".", e.into()))?;
        let is_over = stat.st_mtime.saturating_add(2) <= coarse_seconds();
        Ok(is_over.then_some(NameChange(stat.st_mtime, stat.st_mtime_nsec)))
    }

    /// Refuses a directory that is neither a cache nor empty: a cache replaces and removes files by their names.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::DirectoryNotEmpty`] if it has files of others.
    pub(crate) fn refuse_foreign(&self) -> io::Result<()> {
        if self.is_cache() {
            return Ok(());
        }
        let Some(foreign) = self.foreign_name()? else {
            return Ok(());
        };
        // Another process may have begun the cache meanwhile. The tag was there before what was just listed.
        if self.is_cache() {
            return Ok(());
        }
        let message = format!(
            "cache {}: it has {foreign:?} and is no cache of brisk, allowed is an empty directory or one that does not exist; \
             nothing was changed; name another directory",
            self.path.display()
        );
        Err(io::Error::new(io::ErrorKind::DirectoryNotEmpty, message))
    }

    /// Whether the tag or the index is one of brisk, of whatever version.
    fn is_cache(&self) -> bool {
        self.start_of(TAG, TAG_TEXT.len())
            .is_some_and(|start| start == TAG_TEXT)
            || self
                .start_of(INDEX, MAGIC.len())
                .is_some_and(|start| start == MAGIC)
    }

    /// The name of a file that a cache does not have whose writer was killed before it had a tag.
    fn foreign_name(&self) -> io::Result<Option<CString>> {
        let begins = |name, text: &[u8]| {
            let start = self.start_of(name, text.len() + 1);
            start.is_some_and(|start| text.starts_with(&start))
        };
        for entry in Dir::new(self.opened()?)? {
            let entry = entry?;
            let may_be_there = match entry.file_name().to_bytes() {
                // The last one is in each new filesystem.
                b"." | b".." | b"lost+found" => true,
                b"CACHEDIR.TAG" => begins(TAG, TAG_TEXT),
                b"ledger" => begins(LEDGER, b""),
                b"flights" => begins(FLIGHTS, b""),
                _ => false,
            };
            if !may_be_there {
                return Ok(Some(entry.file_name().to_owned()));
            }
        }
        Ok(None)
    }

    /// At most so many bytes of the start of a file. None if there is none that can be trusted.
    fn start_of(&self, name: &str, len: usize) -> Option<Vec<u8>> {
        let (file, _) = self.file(name, OFlags::RDONLY).ok().flatten()?;
        let mut bytes = vec![0; len];
        let found = file.read_bytes_at(0, &mut bytes).ok()?;
        bytes.truncate(found);
        Some(bytes)
    }

    /// Writes the names in it to the disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(self.opened()?)?)
    }

    /// It, opened for reading.
    fn opened(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(&self.fd, ".", flags, Mode::empty()).map_err(|e| self.told(".", e.into()))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a file, which must not exist, and opens it for reading and writing.
    pub(crate) fn create(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let made = openat(&self.fd, name, flags, self.trust.file_mode());
        made.and_then(|fd| self.share(fd))
            .map_err(|e| self.told(name, e.into()))
    }

    /// Makes a file without a name. None if this filesystem has none, or if there is no `/proc` to name it later.
    pub(crate) fn create_unnamed(&self) -> io::Result<Option<File>> {
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        let file = match openat(&self.fd, ".", flags, self.trust.file_mode()) {
            Ok(fd) => self.share(fd).map_err(|e| self.told(".", e.into()))?,
            // `ISDIR` and `NOENT` come from kernels that do not know the flag.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => return Ok(None),
            Err(e) => return Err(self.told(".", e.into())),
        };
        let has_path = statat(CWD, unnamed_path(file.as_fd()), AtFlags::SYMLINK_NOFOLLOW).is_ok();
        Ok(has_path.then_some(file))
    }

    /// Lets the group write a new file: the process's umask may have kept it out.
    fn share(&self, fd: OwnedFd) -> Result<File, Errno> {
        if self.trust.has_group() {
            fchmod(&fd, self.trust.file_mode())?;
        }
        Ok(File::from(fd))
    }

    /// Opens a file for writing. Makes it, without contents, if it does not exist.
    pub(crate) fn open_or_create(&self, name: &str) -> io::Result<(File, Stat)> {
        loop {
            if let Some(opened) = self.file(name, OFlags::RDWR)? {
                return Ok(opened);
            }
            match self.create(name) {
                Ok(file) => {
                    let stat = fstat(&file)?;
                    return Ok((file, stat));
                }
                // Another process was faster.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Opens a file that exists and that only trusted users can write to. None if there is no such file.
    pub(crate) fn file(&self, name: &str, access: OFlags) -> io::Result<Option<(File, Stat)>> {
        // Otherwise opening a named pipe would wait.
        let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let no_file = || {
            let e = io::Error::new(io::ErrorKind::InvalidData, "not a file; remove it");
            self.told(name, e)
        };
        let fd = match openat(&self.fd, name, flags, Mode::empty()) {
            Ok(fd) => fd,
            // `STALE`: another client of a server has removed it.
            Err(Errno::NOENT | Errno::STALE) => return Ok(None),
            // A symbolic link, a socket.
            Err(Errno::LOOP | Errno::NXIO) => return Err(no_file()),
            Err(e) => return Err(self.told(name, e.into())),
        };
        let stat = fstat(&fd)?;
        if !FileType::from_raw_mode(stat.st_mode).is_file() {
            return Err(no_file());
        }
        self.trust.check(&stat).map_err(|e| self.told(name, e))?;
        Ok(Some((File::from(fd), stat)))
    }

    /// Which file has the name. None if none has.
    pub(crate) fn id_of(&self, name: &str) -> io::Result<Option<FileId>> {
        match statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(FileId::of_stat(&stat))),
            Err(Errno::NOENT | Errno::STALE) => Ok(None),
            Err(e) => Err(self.told(name, e.into())),
        }
    }

    /// The cache's files. Other names are left alone.
    pub(crate) fn list(&self) -> io::Result<Vec<Listed>> {
        self.list_but(|_| None)
    }

    /// The cache's files. It asks only for the lengths of those that `known` does not know.
    pub(crate) fn list_but(&self, known: impl Fn(Name) -> Option<u64>) -> io::Result<Vec<Listed>> {
        let mut found = Vec::new();
        for entry in Dir::new(self.opened()?)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(parsed) = name.to_str().ok().and_then(Name::parse) else {
                continue;
            };
            if let Some(len) = known(parsed) {
                found.push(Listed { name: parsed, len });
                continue;
            }
            match statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => found.push(Listed {
                    name: parsed,
                    len: u64::try_from(stat.st_size).unwrap_or(0),
                }),
                // Another process has removed it.
                Err(Errno::NOENT | Errno::STALE) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(found)
    }

    /// What is free on its disk for this user.
    pub(crate) fn free(&self) -> io::Result<Free> {
        let stat = fstatvfs(&self.fd).map_err(|e| self.told(".", e.into()))?;
        Ok(Free {
            bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
            has_files: stat.f_files == 0 || stat.f_favail > 0,
        })
    }

    /// Says which file an error is about.
    pub(crate) fn told(&self, name: &str, e: io::Error) -> io::Error {
        let path = self.path.join(name);
        io::Error::new(e.kind(), format!("cache file {}: {e}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_a_file_is() {
        assert_eq!(Name::parse(&segment_name(7)), Some(Name::Segment(7)));
        assert_eq!(
            Name::parse(&value_name(u64::MAX)),
            Some(Name::Value(u64::MAX))
        );
        assert_eq!(Name::parse(&unfinished_name(1)), Some(Name::Unfinished(1)));
        assert_eq!(Name::parse("index"), Some(Name::Index));
        for other in [
            "index2",
            "7.segment",
            "+00000000000000a.segment",
            "000000000000000A.value",
            ".new-",
        ] {
            assert_eq!(Name::parse(other), None, "{other}");
        }
    }
}
