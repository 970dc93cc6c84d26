//! A file that arrives: what of it is there, and how to read that.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use brisk_io::ByteSource;

use crate::cache::{Entry, open_to_read};
use crate::error::{Error, Result};
use crate::presence::Presence;
use crate::protocol::Ask;

/// An image in the cache, of which the fetcher writes what arrives.
///
/// 1. A bit of `presence` is set only if the fetcher has set it in the map, or has said so, which it does when the bytes are
///    written.
#[derive(Debug)]
pub struct Arriving {
    key: String,
    image: File,
    inode: u64,
    /// None if the image was complete when it was opened.
    map: Option<File>,
    presence: Presence,
    /// What is asked for again because it was wrong. The map may still say that it is there.
    renewing: Mutex<Vec<Range<u64>>>,
}

impl Arriving {
    /// Opens an entry. While this lives, the entry stays in the cache.
    ///
    /// # Errors
    ///
    /// `Io`.
    pub fn open(entry: &Entry) -> Result<Self> {
        let image = entry.open_image()?;
        let inode = image.metadata();
        let inode = inode.map_err(|e| Error::io("examine the image", e))?.ino();
        let path = entry.map_path();
        let map = match open_to_read(&path) {
            Ok(map) => Some(map),
            // The map goes when all is there, which may be since the entry was looked up.
            Err(e) if e.kind() == io::ErrorKind::NotFound && entry.is_complete_now()? => None,
            Err(e) => return Err(Error::io(format!("open {}", path.display()), e)),
        };
        let presence = Presence::nothing(entry.about.len);
        if map.is_none() {
            presence.set(&(0..entry.about.len));
        }
        let arriving = Self {
            key: entry.key.clone(),
            image,
            inode,
            map,
            presence,
            renewing: Mutex::default(),
        };
        arriving
            .look(&(0..entry.about.len))
            .map_err(|e| Error::io(format!("read {}", path.display()), e))?;
        Ok(arriving)
    }

    /// The name of its entry.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Says to the fetcher which image a connection is about.
    pub(crate) fn attach(&self) -> Ask {
        Ask::Attach {
            key: self.key.clone(),
            inode: self.inode,
        }
    }

    /// Asks the fetcher whether all of it is there.
    pub(crate) fn ask_whole(&self) -> Ask {
        Ask::Whole {
            key: self.key.clone(),
            inode: self.inode,
        }
    }

    /// That a read of these bytes cannot be answered.
    pub fn absent(&self, bytes: Range<u64>) -> Absent {
        Absent {
            bytes,
            inode: self.inode,
        }
    }

    /// Whether these bytes are absent in this file.
    pub fn lacks(&self, absent: &Absent) -> bool {
        self.inode == absent.inode
    }

    /// The file with the bytes. What has not arrived is zeros in it.
    pub fn image(&self) -> &File {
        &self.image
    }

    /// The descriptors that another process needs.
    pub fn files(&self) -> impl Iterator<Item = &File> {
        std::iter::once(&self.image).chain(&self.map)
    }

    /// Whether all of it was here when this was opened.
    pub fn is_whole(&self) -> bool {
        self.map.is_none()
    }

    /// Bytes of the file.
    pub fn len(&self) -> u64 {
        self.presence.len()
    }

    /// Whether the file has no bytes.
    pub fn is_empty(&self) -> bool {
        self.presence.is_empty()
    }

    /// Looks into the map for what has arrived of `bytes`.
    fn look(&self, bytes: &Range<u64>) -> io::Result<()> {
        let Some(map) = &self.map else {
            return Ok(());
        };
        let range = self.presence.map_range(bytes);
        let len =
            usize::try_from(range.end - range.start).map_err(|_| io::ErrorKind::InvalidData)?;
        let mut read = vec![0; len];
        // A map that is shorter says that nothing behind it is there.
        let mut have = 0;
        while have < len {
            match map.read_bytes_at(range.start + have as u64, &mut read[have..])? {
                0 => break,
                n => have += n,
            }
        }
        self.presence.take_map(range.start, &read);
        for wrong in &*self.renewing() {
            self.presence.clear(wrong);
        }
        Ok(())
    }

    /// The first part of `bytes` that is absent. None if all of it is there.
    ///
    /// # Errors
    ///
    /// Of reading the map.
    pub fn first_absent(&self, bytes: &Range<u64>) -> io::Result<Option<Range<u64>>> {
        if self.presence.has(bytes) {
            return Ok(None);
        }
        self.look(bytes)?;
        Ok(self.presence.first_absent(bytes))
    }

    /// `bytes` as far as they are in the file, in the units that arrive.
    pub fn whole_units(&self, bytes: &Range<u64>) -> Range<u64> {
        self.presence.whole_units(bytes)
    }

    fn renewing(&self) -> MutexGuard<'_, Vec<Range<u64>>> {
        self.renewing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether `bytes` are asked for again already, and have not come.
    pub(crate) fn is_renewing(&self, bytes: &Range<u64>) -> bool {
        let is_in = |wrong: &Range<u64>| wrong.start <= bytes.start && bytes.end <= wrong.end;
        self.renewing().iter().any(is_in)
    }

    /// Forgets that `bytes` are there, until [`has_come`](Self::has_come) says that they are there anew.
    pub(crate) fn forget(&self, bytes: &Range<u64>) {
        let bytes = self.presence.whole_units(bytes);
        let mut renewing = self.renewing();
        self.presence.clear(&bytes);
        renewing.push(bytes);
    }

    /// The fetcher says that these bytes are there.
    pub(crate) fn has_come(&self, bytes: &Range<u64>) {
        let mut renewing = self.renewing();
        renewing.retain(|wrong| wrong.start < bytes.start || bytes.end < wrong.end);
        // The map may have no bit of it any more, if all was dropped meanwhile, and nobody says it again.
        self.presence.set(bytes);
        for wrong in &*renewing {
            self.presence.clear(wrong);
        }
    }

    /// Reads what is there.
    ///
    /// # Errors
    ///
    /// [`Absent`], for the first bytes that are not.
    pub(crate) fn read_there(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let end = offset.saturating_add(buf.len() as u64).min(self.len());
        match self.first_absent(&(offset..end))? {
            None => self.image.read_bytes_at(offset, buf),
            Some(_) => Err(self.absent(offset..end).into()),
        }
    }
}

/// Bytes that have not arrived yet, as the reason of a failed read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Absent {
    /// All bytes of the read, of which some are absent.
    pub bytes: Range<u64>,
    /// The number of the file's inode: a program may read several files that arrive.
    inode: u64,
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "bytes {} to {} of the image have not arrived yet",
            self.bytes.start, self.bytes.end
        )
    }
}

impl std::error::Error for Absent {}

impl From<Absent> for io::Error {
    fn from(absent: Absent) -> Self {
        Self::new(io::ErrorKind::WouldBlock, absent)
    }
}

impl Absent {
    /// The absent bytes among the reasons of an error.
    pub fn of<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(absent) = error.downcast_ref() {
                return Some(absent);
            }
            // What an error of the system wraps is no source of it, but stands for it.
            let wrapped = error
                .downcast_ref::<io::Error>()
                .and_then(io::Error::get_ref);
            next = match wrapped {
                Some(wrapped) => match wrapped.downcast_ref() {
                    Some(absent) => return Some(absent),
                    None => {
                        let inner = wrapped.downcast_ref::<io::Error>();
                        wrapped.source().or(inner.map(|inner| inner as _))
                    }
                },
                None => error.source(),
            };
        }
        None
    }
}

/// How often bytes are asked for again because they were wrong. Two reads at the same time may both find a block wrong that they
/// share, so once would not do. A server whose bytes are wrong each time does not have the image.
const RENEWALS: usize = 3;

/// Whether `bytes` may be asked for again, after these ranges were.
pub(crate) fn may_renew(renewed: &[Range<u64>], bytes: &Range<u64>) -> bool {
    let overlapping = renewed
        .iter()
        .filter(|range| range.start < bytes.end && bytes.start < range.end);
    overlapping.count() < RENEWALS
}

/// How far to ask beyond what is read.
///
/// The first read of a place asks for nothing behind it: of Chromium, 128 KiB behind each miss doubled the bytes, and a start took
/// longer. Each read that goes on from the last one doubles what is asked for.
#[derive(Debug, Default)]
pub(crate) struct Window {
    end: u64,
    len: u64,
}

/// The least and the most that is asked for behind a read.
const FIRST_WINDOW: u64 = 128 << 10;
const MOST_WINDOW: u64 = 4 << 20;

impl Window {
    /// What to ask for behind `bytes`, which are about to be read, in a file of `len` bytes.
    pub(crate) fn behind(&mut self, bytes: &Range<u64>, len: u64) -> Range<u64> {
        // Small gaps are blocks that were there already.
        let goes_on = bytes.start >= self.end.saturating_sub(MOST_WINDOW)
            && bytes.start <= self.end.saturating_add(FIRST_WINDOW)
            && self.end > 0;
        self.len = match goes_on {
            true => (self.len * 2).clamp(FIRST_WINDOW, MOST_WINDOW),
            false => 0,
        };
        self.end = bytes.end.max(if goes_on { self.end } else { 0 });
        let end = bytes.end.saturating_add(self.len).min(len);
        bytes.end.min(end)..end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_bytes_are_found_among_reasons() {
        let absent = Absent {
            bytes: 5..9,
            inode: 7,
        };
        let error = io::Error::from(absent.clone());
        assert_eq!(Absent::of(&error), Some(&absent));
        let twice = io::Error::other(io::Error::other(error));
        assert_eq!(Absent::of(&twice), Some(&absent));
        let wrapped = Error::io("read", io::Error::from(absent.clone()));
        assert_eq!(Absent::of(&wrapped), Some(&absent));
        assert_eq!(Absent::of(&io::Error::other(wrapped)), Some(&absent));
        assert_eq!(Absent::of(&io::Error::other("other")), None);
        assert_eq!(
            Absent::of(&io::Error::from(io::ErrorKind::WouldBlock)),
            None
        );
    }

    #[test]
    fn wrong_bytes_are_asked_for_again_a_few_times() {
        let mut renewed = Vec::new();
        for _ in 0..RENEWALS {
            assert!(may_renew(&renewed, &(0..8192)));
            renewed.push(4096..16_384);
        }
        assert!(!may_renew(&renewed, &(0..8192)));
        assert!(may_renew(&renewed, &(0..4096)));
    }

    #[test]
    fn a_window_doubles_as_long_as_reads_go_on() {
        const K: u64 = 1 << 10;
        let mut window = Window::default();
        for (bytes, behind) in [
            (1000 * K..1050 * K, 1050 * K..1050 * K),
            (1050 * K..1100 * K, 1100 * K..1228 * K),
            (1120 * K..1170 * K, 1170 * K..1426 * K),
            (9000 * K..9050 * K, 9050 * K..9050 * K),
            (9050 * K..9100 * K, 9100 * K..9228 * K),
            (9900 * K..9999 * K, 9999 * K..9999 * K),
            (9999 * K..10_000 * K, 10_000 * K..10_000 * K),
        ] {
            assert_eq!(window.behind(&bytes, 10_000 * K), behind, "{bytes:?}");
        }
    }
}
