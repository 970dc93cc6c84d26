//! The files of a cache, opened by somebody who trusts none of them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use brisk_io::ByteSource;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, openat, statat};
use rustix::io::Errno;

use super::damage::Damage;
use crate::directory::{INDEX, LEDGER, Name};
use crate::format::fault::Fault;
use crate::format::slot::{Kind, Slot};
use crate::format::{UNIT, index_header, ledger_state, segment_header};
use crate::segment::{Reading, Segment, SegmentFile, file_name};

/// So many files are open at once at most.
const MOST_OPEN: usize = 64;

/// No slot reaches farther: its `place` and its `room` have 32 bits each.
const MOST_BYTES: u64 = 2 * (UNIT << 32);

/// What is behind a name.
#[derive(Debug)]
pub(super) enum Opened {
    /// A file, and its length.
    File(File, u64),
    Nothing,
    /// Something that is no file, or that this user may not read.
    Other(Damage),
}

/// What is behind the name of a segment.
#[derive(Debug, Clone)]
pub(super) enum Known {
    Right(Rc<Segment>),
    Missing,
    Damaged(Damage),
}

/// The files of a directory.
#[derive(Debug)]
pub(super) struct Files {
    /// As it was given.
    pub(super) path: PathBuf,
    pub(super) fd: OwnedFd,
    /// The segments that were opened before.
    segments: RefCell<HashMap<(bool, u64), Known>>,
}

/// A file that was found in the directory.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) name: Name,
    pub(super) len: u64,
}

impl Files {
    pub(super) fn new(path: &Path, fd: OwnedFd) -> Self {
        Self {
            path: path.to_owned(),
            fd,
            segments: RefCell::default(),
        }
    }

    pub(super) fn file(&self, name: &str) -> io::Result<Opened> {
        // Otherwise opening a named pipe would wait.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let other = |found: &str| {
            let fault = Fault::new(0, "its kind", found, "a file");
            Ok(Opened::Other(Damage::of(name, 0, &fault)))
        };
        let fd = match openat(&self.fd, name, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(Opened::Nothing),
            Err(Errno::LOOP) => return other("a symbolic link"),
            Err(Errno::NXIO) => return other("a socket"),
            Err(e) => {
                let path = self.path.join(name);
                let e = io::Error::from(e);
                return Err(io::Error::new(e.kind(), format!("{}: {e}", path.display())));
            }
        };
        let stat = fstat(&fd)?;
        if !FileType::from_raw_mode(stat.st_mode).is_file() {
            return other("not a file");
        }
        let len = u64::try_from(stat.st_size).unwrap_or(0);
        Ok(Opened::File(File::from(fd), len))
    }

    /// The files of the cache, and how many others there are.
    pub(super) fn list(&self) -> io::Result<(Vec<Found>, u64)> {
        let (mut found, mut others) = (Vec::new(), 0);
        for entry in Dir::read_from(&self.fd)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let Some(known) = name.to_str().ok().and_then(Name::parse) else {
                others += 1;
                continue;
            };
            match statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => found.push(Found {
                    name: known,
                    len: u64::try_from(stat.st_size).unwrap_or(0),
                }),
                // Another process has removed it.
                Err(Errno::NOENT) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok((found, others))
    }

    /// Whether the directory has a file that begins as one of a cache does.
    pub(super) fn has_other_files(&self) -> io::Result<bool> {
        let begins = |name: &str, magic: [u8; 8]| {
            let mut start = [0; 8];
            match self.file(name)? {
                Opened::File(file, _) => {
                    let read = file.read_exact_bytes_at(0, &mut start);
                    Ok::<_, io::Error>(read.is_ok() && start == magic)
                }
                _ => Ok(false),
            }
        };
        if begins(INDEX, index_header::MAGIC)? || begins(LEDGER, ledger_state::MAGIC)? {
            return Ok(true);
        }
        for Found { name, .. } in self.list()?.0 {
            let name = match name {
                Name::Segment(number) => file_name(Kind::Shared, number),
                Name::Value(number) => file_name(Kind::Alone, number),
                _ => continue,
            };
            if begins(&name, segment_header::MAGIC)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The segment that a slot names, as far as its record reaches.
    pub(super) fn segment_of(&self, slot: &Slot) -> io::Result<Known> {
        let reaches = |known: &Known| match known {
            // It may have grown.
            Known::Right(segment) => segment.range(slot).is_some(),
            _ => false,
        };
        let key = (slot.kind == Kind::Alone, slot.segment);
        if let Some(known) = self.segments.borrow().get(&key).filter(|k| reaches(k)) {
            return Ok(known.clone());
        }
        let known = self.open_segment(slot.kind, slot.segment)?;
        let mut segments = self.segments.borrow_mut();
        if segments.len() >= MOST_OPEN {
            segments.clear();
        }
        segments.insert(key, known.clone());
        Ok(known)
    }

    pub(super) fn open_segment(&self, kind: Kind, number: u64) -> io::Result<Known> {
        let name = file_name(kind, number);
        let (file, len) = match self.file(&name)? {
            Opened::File(file, len) => (file, len),
            Opened::Nothing => return Ok(Known::Missing),
            Opened::Other(damage) => return Ok(Known::Damaged(damage)),
        };
        let mut header = [0; segment_header::LEN];
        if len > MOST_BYTES || file.read_exact_bytes_at(0, &mut header).is_err() {
            let least = segment_header::LEN;
            let allowed = format_args!("{least} to {MOST_BYTES} bytes");
            let fault = Fault::new(0, "the file's length", len, allowed);
            return Ok(Known::Damaged(Damage::of(&name, 0, &fault)));
        }
        if let Some(fault) = Fault::of_segment(&header, kind, number) {
            return Ok(Known::Damaged(Damage::of(&name, 0, &fault)));
        }
        let file = SegmentFile::of(file, len, kind, number);
        let segment = Segment::of_file(file, Reading::Read)?;
        Ok(match segment {
            Some(segment) => Known::Right(Rc::new(segment)),
            // Somebody has cut it just now.
            None => Known::Missing,
        })
    }
}
