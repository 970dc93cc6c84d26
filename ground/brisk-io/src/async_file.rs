use std::fmt;
use std::fs::File;
use std::future::Future;
use std::io::{self, IoSliceMut};
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use rustix::io::{Errno, ReadWriteFlags, preadv2};

use crate::byte_source::within_files;
use crate::read_pool;
use crate::waiting_read::{LARGEST, WaitingRead};
use crate::{ByteSource, Mapping};

/// Reads small parts of a file in asynchronous programs, under any executor. A read that does not have to
/// wait completes at once.
///
/// * A read of a [`Mapping`] is a copy.
/// * A read of a [`File`] is first a system call that returns what is in memory and does not wait (`preadv2`
///   with `RWF_NOWAIT`). Only for the rest does the file use `io_uring` (with the feature `io-uring`, where
///   the system allows it) or another thread.
///
/// A read that ends at once allocates nothing and wakes no thread. Synchronous code reads the same file
/// through [`ByteSource`].
///
/// # Example
///
/// ```
/// use brisk_io::AsyncFile;
///
/// # fn main() -> std::io::Result<()> {
/// let read = async {
///     let file = AsyncFile::new(std::fs::File::open("/proc/self/exe")?);
///     let mut magic = [0; 4];
///     file.read_at(0, &mut magic).await?;
///     Ok::<_, std::io::Error>(magic)
/// };
/// // Any executor runs it.
/// let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// assert_eq!(&runtime.block_on(read)?, b"\x7fELF");
/// # Ok(())
/// # }
/// ```
///
/// # What it does not do
///
/// * Keep pages of a mapping in memory. If the kernel has dropped a page, the copy reads it from the disk,
///   and the executor's thread waits. [`AsyncCounts::major_faults`] counts such faults.
/// * Work in a forked child that has not executed a program: the threads that read belong to the parent.
/// * Run slow wakers in parallel. One thread wakes every task whose read has ended, so a waker must not wait
///   for another read.
pub struct AsyncFile {
    source: Source,
    inline: AtomicU64,
    waited: AtomicU64,
    refused: AtomicU64,
    major_faults_before: u64,
}

enum Source {
    Mapping(Mapping),
    File {
        file: Arc<File>,
        /// Whether to try a read without waiting first.
        inline: AtomicBool,
    },
}

/// Counts the reads of an [`AsyncFile`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct AsyncCounts {
    /// Reads of a file that completed at once. Reads of a mapping always do, and are not counted.
    pub inline: u64,
    /// Reads that had to wait, for `io_uring` or for a thread. A large read counts once for each of its parts.
    pub waited: u64,
    /// How often the system refused to read without waiting. After the first refusal the file does not try
    /// again, so only reads that were in progress at the same time add to it.
    pub refused: u64,
    /// Major page faults of the whole process since the file was opened, for any reason.
    pub major_faults: u64,
}

impl AsyncFile {
    /// Reads `file`.
    pub fn new(file: File) -> Self {
        Self::of(Source::File {
            file: Arc::new(file),
            inline: AtomicBool::new(true),
        })
    }

    /// Reads a mapping. [Populate](Mapping::populate) it first, so that no read faults.
    pub fn of_mapping(mapping: Mapping) -> Self {
        Self::of(Source::Mapping(mapping))
    }

    fn of(source: Source) -> Self {
        Self {
            source,
            inline: AtomicU64::new(0),
            waited: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            major_faults_before: major_faults(),
        }
    }

    /// Never reads inline, so that tests can rely on others doing the reads.
    #[cfg(test)]
    fn always_wait(self) -> Self {
        if let Source::File { inline, .. } = &self.source {
            inline.store(false, Ordering::Relaxed);
        }
        self
    }

    /// Reads up to `buf.len()` bytes at `offset`, and returns how many: fewer only at the end of the file.
    ///
    /// Dropping the future cancels the read; `buf` then has some of the bytes, or none.
    ///
    /// # Errors
    ///
    /// Those of the system, and those of [`Mapping::check`].
    #[inline]
    pub fn read_at<'a>(&'a self, offset: u64, buf: &'a mut [u8]) -> ReadAtFuture<'a> {
        ReadAtFuture {
            file: self,
            offset,
            buf,
            unfinished: ManuallyDrop::new(None),
        }
    }

    /// The counts so far.
    pub fn counts(&self) -> AsyncCounts {
        AsyncCounts {
            inline: self.inline.load(Ordering::Relaxed),
            waited: self.waited.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            major_faults: major_faults().saturating_sub(self.major_faults_before),
        }
    }
}

impl fmt::Debug for AsyncFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("AsyncFile");
        match &self.source {
            Source::Mapping(mapping) => debug.field("mapping", mapping),
            Source::File { file, .. } => debug.field("file", file),
        };
        debug.field("counts", &self.counts()).finish()
    }
}

/// Reads synchronously: the caller waits if necessary.
impl ByteSource for AsyncFile {
    fn size(&self) -> io::Result<u64> {
        match &self.source {
            Source::Mapping(mapping) => ByteSource::size(mapping),
            Source::File { file, .. } => ByteSource::size(&**file),
        }
    }

    #[inline]
    fn read_bytes_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        match &self.source {
            Source::Mapping(mapping) => mapping.read_bytes_at(offset, buf),
            Source::File { file, .. } => ByteSource::read_bytes_at(&**file, offset, buf),
        }
    }
}

/// A read of an [`AsyncFile`].
// A read that completes at once creates and drops one of these. So it is small, and what only other reads
// need is in `Unfinished`. Keep a single caller: with a second one, the compiler no longer inlines `poll` and
// `drop` down to the copy, and the read takes 2.1 times as long as a plain read of a mapping, instead of 1.4
// times.
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct ReadAtFuture<'a> {
    file: &'a AsyncFile,
    offset: u64,
    buf: &'a mut [u8],
    /// Dropped by hand, because the drop code that the compiler makes would be called for every read.
    unfinished: ManuallyDrop<Option<Box<Unfinished>>>,
}

/// A read that did not complete at once, and how far it got.
#[derive(Debug, Default)]
struct Unfinished {
    done: usize,
    read: Option<Arc<WaitingRead>>,
}

impl Future for ReadAtFuture<'_> {
    type Output = io::Result<usize>;

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        match &this.file.source {
            Source::Mapping(mapping) => Poll::Ready(mapping.read_bytes_at(this.offset, this.buf)),
            Source::File { file, inline } => {
                let (offset, unfinished) = (this.offset, &mut this.unfinished);
                this.file
                    .poll_file(file, inline, offset, this.buf, unfinished, context)
            }
        }
    }
}

impl Drop for ReadAtFuture<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.unfinished.is_some() {
            give_up(&mut self.unfinished);
        }
    }
}

#[inline(never)]
fn give_up(unfinished: &mut Option<Box<Unfinished>>) {
    if let Some(read) = unfinished.take().and_then(|unfinished| unfinished.read) {
        read.cancel();
    }
}

impl AsyncFile {
    // With this inline, a read of a mapping takes a tenth longer.
    #[inline(never)]
    fn poll_file(
        &self,
        file: &Arc<File>,
        inline: &AtomicBool,
        offset: u64,
        buf: &mut [u8],
        unfinished: &mut Option<Box<Unfinished>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let Some(buf) = within_files(offset, buf) else {
            return Poll::Ready(Ok(0));
        };
        if unfinished.is_none() && inline.load(Ordering::Relaxed) {
            match self.read_inline(file, inline, offset, buf)? {
                Resident::All(n) => return Poll::Ready(Ok(n)),
                Resident::Start(done) => {
                    *unfinished = Some(Box::new(Unfinished { done, read: None }));
                }
            }
        }
        let unfinished = unfinished.get_or_insert_default();
        self.poll_unfinished(file, offset, buf, unfinished, context)
    }

    /// Reads what is in memory, and counts it.
    fn read_inline(
        &self,
        file: &File,
        inline: &AtomicBool,
        offset: u64,
        buf: &mut [u8],
    ) -> io::Result<Resident> {
        let resident = match read_resident(file, offset, buf) {
            Ok(resident) => resident,
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                inline.store(false, Ordering::Relaxed);
                Resident::Start(0)
            }
            Err(e) => return Err(e.into()),
        };
        if let Resident::All(_) = resident {
            self.inline.fetch_add(1, Ordering::Relaxed);
        }
        Ok(resident)
    }

    #[inline(never)]
    fn poll_unfinished(
        &self,
        file: &Arc<File>,
        offset: u64,
        buf: &mut [u8],
        unfinished: &mut Unfinished,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        loop {
            let read = match &unfinished.read {
                Some(read) => read,
                None => {
                    let at = offset.saturating_add(unfinished.done as u64);
                    let read = WaitingRead::new(file, at, buf.len() - unfinished.done);
                    read_pool::submit(Arc::clone(&read))?;
                    self.waited.fetch_add(1, Ordering::Relaxed);
                    unfinished.read.insert(read)
                }
            };
            let Poll::Ready(read) = read.poll(context) else {
                return Poll::Pending;
            };
            unfinished.read = None;
            let read = read?;
            let rest = &mut buf[unfinished.done..];
            let wanted = rest.len().min(LARGEST);
            rest[..read.len()].copy_from_slice(&read);
            unfinished.done += read.len();
            if read.len() < wanted || unfinished.done == buf.len() {
                return Poll::Ready(Ok(unfinished.done));
            }
        }
    }
}

/// How much could be read without waiting.
enum Resident {
    /// Everything that was requested, or everything up to the end of the file.
    All(usize),
    /// This many bytes, and no more for now.
    Start(usize),
}

/// Reads what is in memory. If the kernel returns less, that counts as the end of the file only if the file
/// really ends there: Linux 5.9 and 5.10 also return less for pages that are not in memory.
fn read_resident(file: &File, offset: u64, buf: &mut [u8]) -> rustix::io::Result<Resident> {
    let wanted = buf.len();
    let n = match preadv2(
        file,
        &mut [IoSliceMut::new(buf)],
        offset,
        ReadWriteFlags::NOWAIT,
    ) {
        Ok(n) => n,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(Resident::Start(0)),
        Err(e) => return Err(e),
    };
    if n == wanted {
        return Ok(Resident::All(n));
    }
    let len = rustix::fs::fstat(file)?.st_size;
    let ends = u64::try_from(len).is_ok_and(|len| offset.saturating_add(n as u64) >= len);
    // `metadata` gives no length for a device.
    Ok(if ends && len > 0 {
        Resident::All(n)
    } else {
        Resident::Start(n)
    })
}

/// Major faults of this process so far.
fn major_faults() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the call writes a whole `rusage` to memory of its size.
    let answer = unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
    if answer != 0 {
        return 0;
    }
    // SAFETY: the call above has written it, and all bytes were zero before, which is valid too.
    let usage = unsafe { usage.assume_init() };
    u64::try_from(usage.ru_majflt).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{evict, page_size};
    use std::os::unix::fs::FileExt;
    use std::task::{Wake, Waker};
    use std::thread::{self, Thread};

    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    /// The smallest executor.
    fn block_on<F: Future>(future: F) -> F::Output {
        let mut future = std::pin::pin!(future);
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return output;
            }
            thread::park();
        }
    }

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|n| (n % 251) as u8).collect()
    }

    /// A file on a disk, because pages of a file in memory cannot be evicted.
    fn file_of(bytes: &[u8]) -> File {
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all_at(bytes, 0).unwrap();
        file
    }

    /// Reads pieces of many lengths all over the file, and past its end.
    fn compare(file: &AsyncFile, bytes: &[u8]) {
        for (at, len) in [
            (0, 1),
            (4000, 200),
            (0, 3 << 20),
            (bytes.len() - 10, 100),
            (bytes.len(), 5),
        ] {
            let mut buf = vec![0; len];
            let n = block_on(file.read_at(at as u64, &mut buf)).unwrap();
            let expected = &bytes[at..bytes.len().min(at + len)];
            assert_eq!(n, expected.len());
            assert!(buf[..n] == *expected, "{len} at {at}");
        }
        for at in [u64::MAX / 4, 1 << 63, u64::MAX] {
            assert_eq!(block_on(file.read_at(at, &mut [0; 4])).unwrap(), 0, "{at}");
        }
    }

    #[test]
    fn every_way_gives_the_same_bytes() {
        let bytes = bytes((2 << 20) + 77);
        let file = file_of(&bytes);
        compare(
            &AsyncFile::of_mapping(Mapping::shared(&file).unwrap()),
            &bytes,
        );
        compare(&AsyncFile::new(file.try_clone().unwrap()), &bytes);
        evict(&file).unwrap();
        compare(&AsyncFile::new(file.try_clone().unwrap()), &bytes);
        let waiting_file = AsyncFile::new(file).always_wait();
        compare(&waiting_file, &bytes);
        // The read of 3 MiB is done in pieces.
        assert_eq!(
            (waiting_file.counts().inline, waiting_file.counts().waited),
            (0, 8)
        );
    }

    #[test]
    fn a_shared_file_is_read_by_a_task_and_a_file_by_either_trait() {
        use std::os::unix::fs::FileExt;
        let bytes = bytes(1_000);
        let file = file_of(&bytes);
        let mut buf = [[0; 10]; 3];
        // The names of the standard library's trait and those of `ByteSource` are in one place.
        assert_eq!(file.read_at(&mut buf[0], 5).unwrap(), 10);
        assert_eq!(file.read_bytes_at(5, &mut buf[1]).unwrap(), 10);
        let shared = Arc::new(AsyncFile::new(file));
        // Not the method of `ByteSource`, which a pointer has, too.
        assert_eq!(block_on(shared.read_at(5, &mut buf[2])).unwrap(), 10);
        assert!(buf.iter().all(|read| *read == bytes[5..15]));
    }

    #[test]
    fn what_is_in_memory_is_read_inline() {
        let bytes = bytes(16 * page_size());
        let file = AsyncFile::new(file_of(&bytes));
        // The system may drop pages at any time, but it does not do so always.
        for _ in 0..100 {
            let mut buf = [0; 100];
            assert_eq!(block_on(file.read_at(5000, &mut buf)).unwrap(), 100);
            assert_eq!(buf, bytes[5000..5100]);
        }
        let counts = file.counts();
        assert_eq!((counts.inline + counts.waited, counts.refused), (100, 0));
        assert!(counts.inline >= 90, "{counts:?}");
    }

    #[test]
    fn a_system_that_refuses_is_asked_once() {
        // Nothing of procfs is in the page cache.
        let file = AsyncFile::new(File::open("/proc/self/status").unwrap());
        for _ in 0..3 {
            let mut buf = [0; 5];
            assert_eq!(block_on(file.read_at(0, &mut buf)).unwrap(), 5);
            assert_eq!(&buf, b"Name:");
        }
        let counts = file.counts();
        assert_eq!((counts.inline, counts.waited, counts.refused), (0, 3, 1));
    }

    #[test]
    fn a_read_that_was_given_up_harms_nobody() {
        let bytes = bytes(64 * page_size());
        let file = AsyncFile::new(file_of(&bytes)).always_wait();
        for round in 0..200 {
            let mut buf = [0; 100];
            let mut read = std::pin::pin!(file.read_at(round * 1000, &mut buf));
            let mut context = Context::from_waker(Waker::noop());
            let polled = read.as_mut().poll(&mut context);
            assert!(matches!(polled, Poll::Pending | Poll::Ready(Ok(100))));
        }
        compare(&file, &bytes);
    }

    #[test]
    fn many_reads_at_once_all_end() {
        let bytes = bytes(300 * page_size());
        let file = AsyncFile::new(file_of(&bytes)).always_wait();
        thread::scope(|scope| {
            for first in 0..8 {
                let (file, bytes) = (&file, &bytes);
                scope.spawn(move || {
                    for round in 0..200 {
                        let at = (first * 131 + round * 4099) % (bytes.len() - 64);
                        let mut buf = [0; 64];
                        assert_eq!(block_on(file.read_at(at as u64, &mut buf)).unwrap(), 64);
                        assert_eq!(buf, bytes[at..at + 64]);
                    }
                });
            }
        });
        assert_eq!(file.counts().waited, 1600);
    }

    #[test]
    fn a_long_read_is_done_piece_by_piece() {
        let bytes = bytes((2 << 20) + 5);
        let file = AsyncFile::new(file_of(&bytes)).always_wait();
        let mut buf = vec![0; 4 << 20];
        assert_eq!(block_on(file.read_at(0, &mut buf)).unwrap(), bytes.len());
        assert_eq!(buf[..bytes.len()], bytes);
        assert_eq!(file.counts().waited, 3);
    }

    #[test]
    fn the_synchronous_face_reads_the_same() {
        let bytes = bytes(10_000);
        let file = AsyncFile::new(file_of(&bytes));
        let mut buf = [0; 50];
        file.read_exact_bytes_at(7777, &mut buf).unwrap();
        assert_eq!(buf, bytes[7777..7827]);
        assert_eq!(ByteSource::size(&file).unwrap(), 10_000);
    }
}
