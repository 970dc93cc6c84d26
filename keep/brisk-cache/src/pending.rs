use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use brisk_io::{PerProcess, UnsharedFile};
use rustix::io::{Errno, pread};

use crate::About;
use crate::append::New;
use crate::eviction::with_room_on_disk;
use crate::format::record::{ChunkChecks, Layout, WHOLE, encode_chunked_head};
use crate::format::slot::Kind;
use crate::format::{PAGE, UNIT};
use crate::insertion::{
    self, Instead, check_len, check_names, file_len, layout_among_others, publish_alone, seal,
};
use crate::random;
use crate::segment::FIRST_LEN;
use crate::store::Store;
use crate::unfinished::Unfinished;

/// Up to this many bytes, a value is kept in memory. A longer one is in a file from its first byte on.
const IN_MEMORY: u64 = 64 << 10;

/// Keys are believed to have so many bytes, until they are known. The room before a value is a multiple of 64 KiB, so a
/// longer key matters only to values of nearly 128 MiB, or a multiple of that.
const USUAL_KEY: usize = 64;

/// A value that is stored while it arrives.
///
/// Nobody finds it before [`Pending::finish`]. A writer that is dropped, or killed, leaves nothing. Between the pieces
/// nothing is locked, so any number of values can arrive at once, for any time. At most 64 KiB of each are in memory.
///
/// [`Cache::pending`](crate::Cache::pending) makes it. It goes on working when the cache it came from is dropped. A
/// process that is forked meanwhile cannot write it.
///
/// # Example
///
/// ```
/// use brisk_cache::{About, Cache, CacheOptions};
///
/// # fn main() -> std::io::Result<()> {
/// # let home = tempfile::tempdir()?;
/// # let directory = home.path().join("bodies");
/// let cache = Cache::open(&directory, CacheOptions::new())?;
/// let mut body = cache.pending(None)?;
/// let reader = body.reader();
/// body.write(b"first, ")?;
/// let mut seen = [0; 100];
/// assert_eq!(reader.read_at(&mut seen, 0)?, 7);
/// body.write(b"second")?;
/// body.finish(b"digest", About::default())?;
/// assert_eq!(cache.get(b"digest")?.expect("it was stored").bytes()?, b"first, second");
/// # Ok(())
/// # }
/// ```
pub struct Pending {
    store: Arc<Store>,
    shared: Arc<Shared>,
    /// None as long as the value is in memory.
    streamed: Option<Streamed>,
}

/// Reads what is there already of a value that is still arriving.
///
/// It goes on reading when the value is finished or given up: its bytes stay as long as this does. A process that is
/// forked meanwhile cannot read it.
#[derive(Clone)]
pub struct PendingReader(Arc<Shared>);

/// What the writer of a value and its readers have in common.
struct Shared {
    /// How many bytes have come.
    ///
    /// 1. So many bytes are in `bytes`, and they never change.
    len: AtomicU64,
    bytes: RwLock<Bytes>,
    /// Has something in the process that began the value, and nowhere else: a thread that a child does not have could
    /// hold the lock of `bytes`.
    process: PerProcess<()>,
}

enum Bytes {
    Memory(Vec<u8>),
    /// The value begins at this offset.
    File(Arc<UnsharedFile>, u64),
}

/// A value that is in a file.
struct Streamed {
    unfinished: Unfinished,
    /// Of the file, if the value will have it to itself.
    number: u64,
    /// Where the value begins.
    start: u64,
    /// The length of the file as far as it was reserved.
    reserved: u64,
    checks: ChunkChecks,
}

impl Shared {
    fn bytes(&self) -> RwLockReadGuard<'_, Bytes> {
        self.bytes.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    fn check_process(&self) -> io::Result<()> {
        self.process.get().copied().ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::Unsupported,
                "a value that arrives in the process that this one was forked from; begin another one here",
            )
        })
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.check_process()?;
        let left = self.len().saturating_sub(offset);
        let wanted = usize::try_from(left).map_or(buf.len(), |left| left.min(buf.len()));
        let Some(buf) = buf.get_mut(..wanted).filter(|buf| !buf.is_empty()) else {
            return Ok(0);
        };
        match &*self.bytes() {
            Bytes::Memory(bytes) => {
                let from = usize::try_from(offset).unwrap_or(usize::MAX);
                let there = bytes.get(from..).and_then(|rest| rest.get(..wanted));
                buf.copy_from_slice(there.ok_or(io::ErrorKind::UnexpectedEof)?);
                Ok(wanted)
            }
            Bytes::File(file, start) => {
                let file = file.get().ok_or(io::ErrorKind::NotFound)?;
                loop {
                    match pread(file, &mut *buf, start.saturating_add(offset)) {
                        // By invariant 1 there is something, unless somebody has cut the file.
                        Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                        Ok(n) => return Ok(n),
                        Err(Errno::INTR) => {}
                        Err(e) => return Err(e.into()),
                    }
                }
            }
        }
    }
}

impl Pending {
    pub(crate) fn begin(store: &Arc<Store>, expected_len: Option<u64>) -> io::Result<Self> {
        let process = PerProcess::new();
        process.get_or_try_make(|| io::Result::Ok(()))?;
        let mut pending = Self {
            store: Arc::clone(store),
            shared: Arc::new(Shared {
                len: AtomicU64::new(0),
                bytes: RwLock::new(Bytes::Memory(Vec::new())),
                process,
            }),
            streamed: None,
        };
        if let Some(len) = expected_len {
            check_len(store, len, "")?;
            if len > IN_MEMORY {
                pending.begin_file(len)?;
            }
        }
        Ok(pending)
    }

    /// Goes on in a file, with what is in memory. `expected_len` is 0 if nobody knows it.
    fn begin_file(&mut self, expected_len: u64) -> io::Result<&mut Streamed> {
        let number = random::number()?;
        let layout = Layout::of(Kind::Alone, USUAL_KEY, expected_len);
        let start = layout.map_or(PAGE, |layout| UNIT + layout.value as u64);
        let reserved = match layout.filter(|_| expected_len > self.store.most_shared) {
            Some(layout) => file_len(&layout),
            None => 0,
        };
        let mut checks = ChunkChecks::new(number);
        let begin = |come: &[u8]| {
            let unfinished = Unfinished::create(&self.store, number)?;
            if reserved > 0 {
                unfinished.reserve(0, reserved)?;
            }
            unfinished.write(start, come)?;
            Ok(unfinished)
        };
        let unfinished = match &*self.shared.bytes() {
            Bytes::Memory(come) => {
                checks.update(come);
                let wanted = reserved.max(FIRST_LEN);
                with_room_on_disk(&self.store, wanted, || begin(come))?
            }
            Bytes::File(..) => return Err(io::ErrorKind::AlreadyExists.into()),
        };
        let file = Arc::clone(unfinished.file());
        *self.bytes_mut() = Bytes::File(file, start);
        Ok(self.streamed.insert(Streamed {
            unfinished,
            number,
            start,
            reserved,
            checks,
        }))
    }

    fn bytes_mut(&self) -> std::sync::RwLockWriteGuard<'_, Bytes> {
        let bytes = self.shared.bytes.write();
        bytes.unwrap_or_else(PoisonError::into_inner)
    }

    /// How many bytes have come.
    pub fn len(&self) -> u64 {
        self.shared.len()
    }

    /// Whether no byte has come.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A reader for other threads of this process. It reads what has come, while more comes.
    pub fn reader(&self) -> PendingReader {
        PendingReader(Arc::clone(&self.shared))
    }

    /// Adds bytes to the end of the value. It hands them to the kernel and does not wait for the disk, unless the kernel
    /// does.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] if the value gets longer than a quarter of the limit.
    /// [`io::ErrorKind::StorageFull`] if the disk is full and the oldest entries do not make enough room. Otherwise those of
    /// the system. Then none of the bytes were added, and the caller may try the same again.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.shared.check_process()?;
        if bytes.is_empty() {
            return Ok(());
        }
        let before = self.len();
        let len = before.saturating_add(bytes.len() as u64);
        check_len(&self.store, len, "at least ")?;
        if self.streamed.is_none() && len <= IN_MEMORY {
            if let Bytes::Memory(memory) = &mut *self.bytes_mut() {
                memory.extend_from_slice(bytes);
            }
        } else {
            let store = Arc::clone(&self.store);
            let streamed = match &mut self.streamed {
                Some(streamed) => streamed,
                None => self.begin_file(0)?,
            };
            let at = streamed.start.saturating_add(before);
            let wanted = FIRST_LEN.max(bytes.len() as u64);
            with_room_on_disk(&store, wanted, || streamed.unfinished.write(at, bytes))?;
            streamed.checks.update(bytes);
        }
        self.shared.len.store(len, Ordering::Release);
        Ok(())
    }

    /// Stores the value under a key, as [`Cache::insert`](crate::Cache::insert) does: others find all of it or nothing.
    ///
    /// The kernel first copies a value that is shorter than expected, and one of more than 120 MiB without an expected length.
    ///
    /// # Errors
    ///
    /// As [`Cache::insert`](crate::Cache::insert). The value is given up, and its readers go on.
    pub fn finish(mut self, key: &[u8], about: About) -> io::Result<()> {
        self.shared.check_process()?;
        check_names(key, about.bucket)?;
        let len = self.len();
        let insert = |value: &[u8]| {
            insertion::insert(
                &self.store,
                New {
                    key,
                    value,
                    fingerprint: about.fingerprint,
                    bucket: about.bucket,
                },
            )
        };
        if let Bytes::Memory(value) = &*self.shared.bytes() {
            return insert(value);
        }
        if layout_among_others(&self.store, key, len).is_some() || len <= WHOLE as u64 {
            return insert(&self.read_all()?);
        }
        let layout = Layout::of(Kind::Alone, key.len(), len).ok_or(io::ErrorKind::InvalidInput)?;
        let streamed = self.streamed.take().ok_or(io::ErrorKind::NotFound)?;
        let number = streamed.number;
        let (unfinished, checks) = streamed.fit(&self.store, &layout)?;
        let (head, record) =
            encode_chunked_head(&layout, number, about.fingerprint, key, checks.into_iter());
        let prepared = seal(&self.store, unfinished, number, &layout, &head, record)?;
        publish_alone(&self.store, prepared, (key, about.bucket), Instead::OfAny).map(|_always| ())
    }

    /// All of a value that has other values beside it, which are at most 1 MiB long.
    fn read_all(&self) -> io::Result<Vec<u8>> {
        let len = usize::try_from(self.len()).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let mut value = vec![0; len];
        let mut done = 0;
        while let Some(rest) = value.get_mut(done..).filter(|rest| !rest.is_empty()) {
            done += self.shared.read_at(rest, done as u64)?;
        }
        Ok(value)
    }
}

impl Streamed {
    /// The file with the value at its place and room for the record, and the checks of the value. It is a copy if the
    /// value is not where its record has it, or if more room was reserved than it takes.
    fn fit(self, store: &Arc<Store>, layout: &Layout) -> io::Result<(Unfinished, Vec<u64>)> {
        let value = self.start..self.start.saturating_add(layout.value_len as u64);
        let (start, len) = (UNIT + layout.value as u64, file_len(layout));
        let checks = self.checks.finish();
        if self.start == start && self.reserved <= len {
            let reserved = value.end.max(self.reserved);
            if reserved < len {
                with_room_on_disk(store, len - reserved, || {
                    self.unfinished.reserve(reserved, len)
                })?;
            }
            return Ok((self.unfinished, checks));
        }
        let copy = with_room_on_disk(store, len, || {
            let copy = Unfinished::create(store, random::number()?)?;
            copy.reserve(0, len)?;
            copy.copy(&self.unfinished, value.clone(), start)?;
            Ok(copy)
        })?;
        Ok((copy, checks))
    }
}

impl PendingReader {
    /// How many bytes have come.
    pub fn len(&self) -> u64 {
        self.0.len()
    }

    /// Whether no byte has come.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads bytes from an offset of the value on, and returns how many. That is 0 if no byte has come there yet.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending")
            .field("len", &self.len())
            .field("in_memory", &self.streamed.is_none())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for PendingReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingReader")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

// A value in a file is checked in chunks.
const _: () = assert!(IN_MEMORY >= WHOLE as u64);
