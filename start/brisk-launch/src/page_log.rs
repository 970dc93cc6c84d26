//! A log, with times, of what a fill stored and the kernel asked for, or of what a replay asked for.
//! Timelines are drawn from it.
//!
//! The log stays in memory until its server or the replay ends, and is written then, so it takes almost no
//! time from the launch. In the file, each record ends with a zero byte. A record is `ahead` or `asked`, the
//! time, the first page, the number of pages, and the path, which is missing for a file that the pack lacks.
//! The last record is `end`. If some events were not kept, the record before it is `left out` with their
//! number.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// How many events are kept: 5 MB. Later ones are only counted.
const MOST: usize = 1 << 17;

/// The start of the record that says how many events were not kept.
const LEFT_OUT: &[u8] = b"left out ";

/// The last record.
const END: &[u8] = b"end";

/// An event of some pages of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageEvent {
    /// The time of the system's monotonic clock.
    pub at: Duration,
    /// Whether they were stored or asked for ahead of the program. Otherwise a program waited for them.
    pub ahead: bool,
    /// The first page of 4 KiB.
    pub first: u64,
    /// The number of pages.
    pub count: u64,
    /// The file's path in its tree. None for a file that the pack lacks.
    pub path: Option<PathBuf>,
}

impl PageEvent {
    /// The events of a log (see `SessionFill::log` of brisk-serve and
    /// [`BackgroundReplay::log`](crate::BackgroundReplay::log)), and how many later ones were not kept. None
    /// while the log is incomplete.
    pub fn list(log: &[u8]) -> Option<(Vec<Self>, u64)> {
        let records = log.strip_suffix(b"\0")?.split(|byte| *byte == 0);
        let mut records: Vec<&[u8]> = records.collect();
        if records.pop()? != END {
            return None;
        }
        let mut left_out: u64 = 0;
        if let Some(number) = records.last().and_then(|last| last.strip_prefix(LEFT_OUT)) {
            left_out = std::str::from_utf8(number).ok()?.parse().ok()?;
            records.pop();
        }
        let events: Option<Vec<_>> = records.into_iter().map(Self::read).collect();
        Some((events?, left_out))
    }

    fn read(record: &[u8]) -> Option<Self> {
        let mut fields = record.splitn(5, |byte| *byte == b' ');
        let ahead = match fields.next()? {
            b"ahead" => true,
            b"asked" => false,
            _ => return None,
        };
        let mut number = || std::str::from_utf8(fields.next()?).ok()?.parse().ok();
        let (at, first, count) = (number()?, number()?, number()?);
        let path = fields.next()?;
        Some(Self {
            at: Duration::from_micros(at),
            ahead,
            first,
            count,
            path: (!path.is_empty()).then(|| Path::new(OsStr::from_bytes(path)).to_owned()),
        })
    }
}

/// The log of one fill or replay.
#[derive(Debug)]
pub struct PageLog {
    file: File,
    events: Mutex<Vec<Event>>,
    /// How many later events were not kept.
    left_out: AtomicU64,
    /// Paths of files by their numbers, once they are known.
    paths: OnceLock<HashMap<u64, PathBuf>>,
}

#[derive(Debug)]
struct Event {
    at: Duration,
    ahead: bool,
    file: u64,
    pages: Range<u64>,
}

impl PageLog {
    /// A log that will be written to `file`.
    pub fn new(file: File) -> Self {
        Self {
            file,
            events: Mutex::default(),
            left_out: AtomicU64::new(0),
            paths: OnceLock::new(),
        }
    }

    /// The file.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Sets the paths of files, by the numbers that [`PageLog::add`] gets.
    pub fn know(&self, paths: impl Iterator<Item = (u64, PathBuf)>) {
        self.paths.get_or_init(|| paths.collect());
    }

    /// Adds an event of `pages` of a file.
    pub fn add(&self, ahead: bool, file: u64, pages: Range<u64>) {
        let now = clock_gettime(ClockId::Monotonic);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        let nanos = u32::try_from(now.tv_nsec).unwrap_or(0);
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        if events.len() < MOST {
            events.push(Event {
                at: Duration::new(seconds, nanos),
                ahead,
                file,
                pages,
            });
        } else {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Writes the whole log. If that fails, the file has no end, and its reader notices.
    pub fn write(&self) -> std::io::Result<()> {
        let mut out = BufWriter::new(&self.file);
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        for event in &*events {
            let what = match event.ahead {
                true => "ahead",
                false => "asked",
            };
            let Range { start, end } = event.pages;
            let (at, count) = (event.at.as_micros(), end.saturating_sub(start));
            write!(out, "{what} {at} {start} {count} ")?;
            let path = self.paths.get().and_then(|paths| paths.get(&event.file));
            out.write_all(path.map_or(b"", |path| path.as_os_str().as_bytes()))?;
            out.write_all(b"\0")?;
        }
        match self.left_out.load(Ordering::Relaxed) {
            0 => {}
            number => {
                out.write_all(LEFT_OUT)?;
                write!(out, "{number}\0")?;
            }
        }
        out.write_all(END)?;
        out.write_all(b"\0")?;
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let log = PageLog::new(File::create(&path).unwrap());
        log.add(false, 2, 0..4);
        log.add(true, 1, 7..9);
        log.know([(1, PathBuf::from("a b/c\nd"))].into_iter());
        log.write().unwrap();
        let text = std::fs::read(&path).unwrap();
        let (events, left_out) = PageEvent::list(&text).unwrap();
        assert_eq!(left_out, 0);
        let seen: Vec<_> = events
            .iter()
            .map(|e| (e.ahead, e.first, e.count, e.path.as_deref()))
            .collect();
        let named = Path::new("a b/c\nd");
        assert_eq!(seen, [(false, 0, 4, None), (true, 7, 2, Some(named))]);
        assert!(events[0].at <= events[1].at);
        // Truncated anywhere, it is incomplete.
        for end in 0..text.len() {
            assert_eq!(PageEvent::list(&text[..end]), None, "{end}");
        }
        assert_eq!(PageEvent::list(b"odd\0end\0"), None);
        assert_eq!(PageEvent::list(b"left out x\0end\0"), None);
        assert_eq!(PageEvent::list(b"left out 2\0"), None);
        assert_eq!(PageEvent::list(b"end\0"), Some((Vec::new(), 0)));
    }

    #[test]
    fn events_that_are_not_kept_are_counted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let log = PageLog::new(File::create(&path).unwrap());
        for page in 0..MOST as u64 + 3 {
            log.add(true, 1, page..page + 1);
        }
        log.write().unwrap();
        let (events, left_out) = PageEvent::list(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!((events.len(), left_out), (MOST, 3));
        assert_eq!(
            events.last().map(|event| event.first),
            Some(MOST as u64 - 1)
        );
    }
}
