//! Where the bytes of a tar archive come from, and where the contents of its files stay.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use brisk_io::ByteSource;

use crate::error::{Error, Result};

/// Bytes read or written at once.
const CHUNK: usize = 256 << 10;

/// An archive that is read from front to back.
pub(super) trait TarInput {
    /// Fills `buf` as far as there are bytes, and returns how many there were.
    fn read(&mut self, buf: &mut [u8]) -> Result<usize>;

    /// Goes past `len` bytes; true if there were as many.
    fn skip(&mut self, len: u64) -> Result<bool>;

    /// Goes past `len` bytes and keeps them; returns where they are in what was kept, or none if there were fewer.
    fn keep(&mut self, len: u64) -> Result<Option<u64>>;
}

/// A file with the contents of the files of an archive.
pub(super) struct Kept {
    file: File,
    /// What the file was, if others can change it.
    stamp: Option<Stamp>,
}

/// Length, and times of the last changes to contents and inode in nanoseconds.
pub(super) type Stamp = (u64, i128, i128);

pub(super) fn stamp(file: &File) -> Result<Stamp> {
    let metadata = file
        .metadata()
        .map_err(|e| Error::io("read the metadata of the archive", e))?;
    let nanoseconds = |s: i64, ns: i64| i128::from(s) * 1_000_000_000 + i128::from(ns);
    Ok((
        metadata.len(),
        nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
        nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
    ))
}

impl Kept {
    pub(super) fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        ByteSource::read_exact_bytes_at(&self.file, offset, buf).map_err(|e| {
            match (self.stamp, e.kind()) {
                (Some(_), io::ErrorKind::UnexpectedEof) => match self.check_unchanged() {
                    Err(changed) => changed,
                    Ok(()) => Error::io("read the archive", e),
                },
                _ => Error::io("read the contents of the archive", e),
            }
        })
    }

    pub(super) fn check_unchanged(&self) -> Result<()> {
        match self.stamp {
            Some(was) => check_stamp(&self.file, was),
            None => Ok(()),
        }
    }
}

/// Checks that `file` is still what it was.
pub(super) fn check_stamp(file: &File, was: Stamp) -> Result<()> {
    let is = stamp(file)?;
    if was.0 != is.0 {
        return Err(Error::changed("length", was.0, is.0));
    }
    for (what, was, is) in [
        ("modification time", was.1, is.1),
        ("change time", was.2, is.2),
    ] {
        if was != is {
            let shown = |time: i128| u64::try_from(time.unsigned_abs()).unwrap_or(u64::MAX);
            return Err(Error::changed(what, shown(was), shown(is)));
        }
    }
    Ok(())
}

/// Fills `buf` as far as there are bytes, and returns how many there were.
pub(super) fn read_full(from: &mut impl Read, buf: &mut [u8]) -> Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match from.read(&mut buf[done..]) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(Error::io("read the archive", e)),
        }
    }
    Ok(done)
}

/// An archive that can be read once; contents go to a file without a name.
pub(super) struct Stream<R> {
    archive: BufReader<R>,
    spool: BufWriter<File>,
    spooled: u64,
    directory: PathBuf,
}

impl<R: Read> Stream<R> {
    pub(super) fn new(archive: R, directory: &Path) -> Result<Self> {
        let spool = tempfile::tempfile_in(directory).map_err(|e| {
            Error::io("make a temporary file for the contents of the archive", e)
                .with_path(directory)
        })?;
        Ok(Self {
            archive: BufReader::with_capacity(CHUNK, archive),
            spool: BufWriter::with_capacity(CHUNK, spool),
            spooled: 0,
            directory: directory.to_owned(),
        })
    }

    /// What was kept.
    pub(super) fn finish(self) -> Result<Kept> {
        let file = self
            .spool
            .into_inner()
            .map_err(|e| spool_error(e.into_error(), &self.directory))?;
        Ok(Kept { file, stamp: None })
    }

    /// Gives `each` the next `len` bytes in parts; true if there were as many.
    fn parts(&mut self, len: u64, keep: bool) -> Result<bool> {
        let mut left = len;
        while left > 0 {
            let part = match self.archive.fill_buf() {
                Ok([]) => return Ok(false),
                Ok(part) => part,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(Error::io("read the archive", e)),
            };
            let n = usize::try_from(left).unwrap_or(usize::MAX).min(part.len());
            if keep {
                self.spool
                    .write_all(&part[..n])
                    .map_err(|e| spool_error(e, &self.directory))?;
            }
            self.archive.consume(n);
            left -= n as u64;
        }
        Ok(true)
    }
}

fn spool_error(e: io::Error, directory: &Path) -> Error {
    Error::io(
        "write the contents of the archive to a temporary file in this directory",
        e,
    )
    .with_path(directory)
}

impl<R: Read> TarInput for Stream<R> {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        read_full(&mut self.archive, buf)
    }

    fn skip(&mut self, len: u64) -> Result<bool> {
        self.parts(len, false)
    }

    fn keep(&mut self, len: u64) -> Result<Option<u64>> {
        let at = self.spooled;
        if !self.parts(len, true)? {
            return Ok(None);
        }
        self.spooled += len;
        Ok(Some(at))
    }
}

/// An archive that is a file, from its cursor on; contents stay where they are.
pub(super) struct InPlace {
    archive: File,
    stamp: Stamp,
    /// At most the length of the file, or where the cursor was behind it.
    at: u64,
}

impl InPlace {
    pub(super) fn new(mut archive: File) -> Result<Self> {
        let metadata = archive
            .metadata()
            .map_err(|e| Error::io("read the metadata of the archive", e))?;
        if !metadata.is_file() {
            return Err(Error::input(
                "the archive is not a regular file, so it cannot be read in place; pipe it in",
            ));
        }
        let at = archive
            .stream_position()
            .map_err(|e| Error::io("find the start of the archive", e))?;
        let stamp = stamp(&archive)?;
        Ok(Self { archive, stamp, at })
    }

    /// What was kept: all that is in the file.
    pub(super) fn finish(self) -> Kept {
        Kept {
            file: self.archive,
            stamp: Some(self.stamp),
        }
    }
}

impl TarInput for InPlace {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match self.archive.read_bytes_at(self.at, &mut buf[done..]) {
                Ok(0) => break,
                Ok(n) => {
                    done += n;
                    self.at += n as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Error::io("read the archive", e)),
            }
        }
        Ok(done)
    }

    fn skip(&mut self, len: u64) -> Result<bool> {
        let end = self.at.checked_add(len).filter(|end| *end <= self.stamp.0);
        self.at = end.unwrap_or(self.at);
        Ok(end.is_some())
    }

    fn keep(&mut self, len: u64) -> Result<Option<u64>> {
        let at = self.at;
        Ok(self.skip(len)?.then_some(at))
    }
}
