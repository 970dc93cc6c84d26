//! Ways to read a few bytes of a file, thousands of times.

use std::fmt;
use std::fs::File;
use std::hint::black_box;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::DerefMut;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use brisk_io::{
    AlignedBuf, AsyncFile, ByteSource, ImmutableFile, ImmutableMapping, Mapping, page_size,
};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio::runtime::{Builder, Runtime};
use tokio::task::{LocalSet, spawn_blocking};

use super::super::load::pages::{Grain, sum};

/// A way to read. People see [`Reader::name`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reader {
    Memcpy,
    Slice,
    MappingReadAt,
    SeekRead,
    Pread,
    PreadBuffer,
    PreadCopy,
    AsyncMemcpy,
    AsyncMapping,
    AsyncFile,
    InThread,
    Pattern,
    SyncFace,
    Tokio,
    Whole,
    Queued,
    Threads,
    /// A way that only earlier versions had. Their results have rows of it, which are not shown.
    #[serde(other)]
    Gone,
}

impl Reader {
    /// The ways that read one piece after another: the name of each, and what it does.
    pub const IN_TURN: [(Self, &str, &str); 15] = [
        (
            Self::Memcpy,
            "memcpy",
            "copied from the program's own memory",
        ),
        (Self::Slice, "slice", "borrowed from a mapping, and summed"),
        (
            Self::MappingReadAt,
            "mapping",
            "copied from a mapping (read_at)",
        ),
        (
            Self::SeekRead,
            "seek-read",
            "seek and read of the standard library",
        ),
        (
            Self::Pread,
            "pread",
            "read_at of the standard library, one buffer for all reads",
        ),
        (
            Self::PreadBuffer,
            "pread-buffer",
            "the same, with a new buffer for each read",
        ),
        (
            Self::PreadCopy,
            "pread-copy",
            "the same, copied once more from the buffer",
        ),
        (
            Self::AsyncMemcpy,
            "async-memcpy",
            "memcpy that is awaited: the least that an asynchronous read can take",
        ),
        (
            Self::AsyncMapping,
            "async-mapping",
            "AsyncFile of a populated mapping",
        ),
        (
            Self::AsyncFile,
            "async-file",
            "AsyncFile, which answers at once if the data is in memory",
        ),
        (
            Self::InThread,
            "in-thread",
            "read_at in a thread of tokio, which a future waits for (spawn_blocking)",
        ),
        (
            Self::Pattern,
            "pattern",
            "a buffer for each read, a thread, a report of progress, and a copy: all that an application did",
        ),
        (
            Self::SyncFace,
            "sync-face",
            "AsyncFile, with its synchronous calls",
        ),
        (Self::Tokio, "tokio", "seek and read of tokio::fs"),
        (
            Self::Whole,
            "whole",
            "the whole file read at once, then copied from memory",
        ),
    ];

    pub fn name(self) -> &'static str {
        let all = Self::IN_TURN.iter();
        match self {
            Self::Queued => "async-file, all at once",
            Self::Threads => "pread in threads",
            one => {
                let mut known = all.filter(|(reader, ..)| *reader == one);
                known.next().map_or("", |(_, name, _)| name)
            }
        }
    }

    /// Whether it reads the file while the clock runs. The others have the contents in their own memory
    /// before.
    pub fn is_of_file(self) -> bool {
        !matches!(self, Self::Memcpy | Self::AsyncMemcpy)
    }

    /// Whether it reads without a system call. Thousands of such reads take so little time that a single
    /// interrupt makes a difference.
    pub fn is_short(self) -> bool {
        use Reader::*;
        matches!(
            self,
            Memcpy | Slice | MappingReadAt | AsyncMemcpy | AsyncMapping
        )
    }

    /// Which bytes are summed. A way that borrows bytes must look at all of them, because it does not copy
    /// them.
    pub fn grain(self) -> Grain {
        match self {
            Self::Slice => Grain::Page,
            _ => Grain::Word,
        }
    }
}

impl fmt::Display for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What to read: positions and length.
#[derive(Debug, Clone, Copy)]
pub struct Places<'a> {
    pub offsets: &'a [u64],
    pub size: usize,
    /// How often to read everything, at least once. With several rounds the median counts, without the first.
    pub rounds: u64,
}

/// The result of reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    pub sum: u64,
    /// The time before the first read, for opening, mapping and populating.
    pub set_up: Duration,
    pub reads: Duration,
    /// Reads that another thread or `io_uring` did.
    pub waited: u64,
}

/// Sums the bytes that were read, and times the reads.
struct Tally {
    start: Instant,
    sum: u64,
    grain: Grain,
    number: u64,
    /// The times of the finished rounds.
    rounds: Vec<Duration>,
    /// The sum of the first round.
    first: Option<u64>,
}

impl Tally {
    fn new(grain: Grain) -> Self {
        Self {
            start: Instant::now(),
            sum: 0,
            grain,
            number: 0,
            rounds: Vec::new(),
            first: None,
        }
    }

    #[inline]
    fn add(&mut self, bytes: &[u8]) {
        let added = sum(self.number, black_box(bytes), self.grain);
        self.sum = self.sum.wrapping_add(added);
        self.number += 1;
    }

    /// Begins a round.
    ///
    /// # Errors
    ///
    /// If the previous round read something else than the first.
    fn again(&mut self) -> io::Result<()> {
        if self.number > 0 {
            self.rounds.push(self.start.elapsed());
            if *self.first.get_or_insert(self.sum) != self.sum {
                return Err(io::Error::other(
                    "a round read something else than the first",
                ));
            }
        }
        *self = Self {
            rounds: std::mem::take(&mut self.rounds),
            first: self.first,
            ..Self::new(self.grain)
        };
        // Loops of futures keep the tally in memory. Other loops do so in some builds and not in others, and
        // take a quarter less time if they do not. This makes all of them keep it there, so that only the
        // reads are compared.
        black_box(&mut *self);
        Ok(())
    }

    fn done(mut self, set_up: Duration, waited: u64) -> Done {
        self.rounds.push(self.start.elapsed());
        // In the first round, the data may be in the cache of another processor.
        let first = usize::from(self.rounds.len() > 1);
        let counted = &mut self.rounds[first..];
        counted.sort_unstable();
        Done {
            sum: self.sum,
            set_up,
            reads: counted[counted.len() / 2],
            waited,
        }
    }
}

/// The sum that reads must find in the file.
pub fn expected(
    file: &(impl ByteSource + ?Sized),
    places: Places<'_>,
    grain: Grain,
) -> io::Result<u64> {
    let mut tally = Tally::new(grain);
    let mut buf = aligned(places.size);
    for &offset in places.offsets {
        file.read_exact_bytes_at(offset, &mut buf)?;
        tally.add(&buf);
    }
    Ok(tally.sum)
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().build()
}

/// Reads all positions of the file at `path`, one after the other. [`Reader::Queued`] and
/// [`Reader::Threads`] keep `depth` reads in progress.
pub fn run(reader: Reader, path: &Path, places: Places<'_>, depth: usize) -> io::Result<Done> {
    let begun = Instant::now();
    let file = File::open(path)?;
    match reader {
        Reader::Memcpy => {
            let bytes = copied(&file)?;
            each(reader, places, begun, |offset, buf| {
                ByteSource::read_bytes_at(&*bytes, offset, buf)
            })
        }
        Reader::Whole => {
            let (set_up, mut tally) = (begun.elapsed(), Tally::new(reader.grain()));
            let mut buf = aligned(places.size);
            for _ in 0..places.rounds {
                tally.again()?;
                let bytes = std::fs::read(path)?;
                for &offset in places.offsets {
                    full(ByteSource::read_bytes_at(&*bytes, offset, &mut buf)?, &buf)?;
                    tally.add(&buf);
                }
            }
            Ok(tally.done(set_up, 0))
        }
        Reader::Slice => {
            let mapping = borrowed(&file)?;
            let (set_up, mut tally) = (begun.elapsed(), Tally::new(reader.grain()));
            for _ in 0..places.rounds {
                tally.again()?;
                for &offset in places.offsets {
                    let start = usize::try_from(offset).unwrap_or(usize::MAX);
                    let bytes = mapping
                        .as_slice()
                        .get(start..)
                        .and_then(|rest| rest.get(..places.size));
                    tally.add(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
                }
            }
            Ok(tally.done(set_up, 0))
        }
        Reader::MappingReadAt => {
            let mapping = mapped(&file)?;
            each(reader, places, begun, |offset, buf| {
                mapping.read_bytes_at(offset, buf)
            })
        }
        Reader::SeekRead => {
            let mut file = file;
            each(reader, places, begun, |offset, buf| {
                file.seek(SeekFrom::Start(offset))?;
                file.read(buf)
            })
        }
        Reader::Pread => each(reader, places, begun, |offset, buf| {
            FileExt::read_at(&file, buf, offset)
        }),
        Reader::PreadBuffer => {
            let (set_up, mut tally) = (begun.elapsed(), Tally::new(reader.grain()));
            for _ in 0..places.rounds {
                tally.again()?;
                for &offset in places.offsets {
                    let mut made = vec![0; places.size];
                    full(FileExt::read_at(&file, &mut made, offset)?, &made)?;
                    tally.add(&made);
                }
            }
            Ok(tally.done(set_up, 0))
        }
        Reader::PreadCopy => {
            let mut first = aligned(places.size);
            each(reader, places, begun, |offset, buf| {
                let n = FileExt::read_at(&file, &mut first, offset)?;
                buf.copy_from_slice(black_box(&first));
                Ok(n)
            })
        }
        Reader::SyncFace => {
            let file = AsyncFile::new(file);
            each(reader, places, begun, |offset, buf| {
                ByteSource::read_bytes_at(&file, offset, buf)
            })
        }
        Reader::AsyncMemcpy => {
            let file = Copied(copied(&file)?);
            asynchronous(reader, places, begun, file)
        }
        Reader::AsyncMapping => {
            let file = AsyncFile::of_mapping(mapped(&file)?);
            asynchronous(reader, places, begun, file)
        }
        Reader::AsyncFile => {
            let file = AsyncFile::new(file);
            asynchronous(reader, places, begun, file)
        }
        Reader::InThread => in_thread(places, begun, file),
        Reader::Pattern => pattern(places, begun, file),
        Reader::Tokio => tokio_fs(path, places, begun),
        Reader::Queued => {
            let runtime = runtime()?;
            runtime.block_on(queued(AsyncFile::new(file), places, begun, depth))
        }
        Reader::Threads => threads(&file, places, begun, depth),
        Reader::Gone => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Memory that starts at a page. How fast bytes are copied depends on their position in a cache line of the
/// processor, and allocators place them differently.
fn aligned(len: usize) -> AlignedBuf {
    AlignedBuf::zeroed(len, page_size())
}

fn copied(file: &File) -> io::Result<AlignedBuf> {
    let len = usize::try_from(ByteSource::size(file)?).unwrap_or(usize::MAX);
    let mut bytes = aligned(len);
    FileExt::read_exact_at(file, &mut bytes, 0)?;
    Ok(bytes)
}

fn mapped(file: &File) -> io::Result<Mapping> {
    let mapping = Mapping::shared(file)?;
    mapping.populate()?;
    Ok(mapping)
}

fn borrowed(file: &File) -> io::Result<ImmutableMapping> {
    // SAFETY: the lab has made the file in a directory of its own, and does not write to it while it reads.
    let file = unsafe { ImmutableFile::new(file.try_clone()?) };
    let mapping = ImmutableMapping::new(&file)?;
    mapping.populate()?;
    Ok(mapping)
}

/// An error if a read returned less than requested.
fn full(read: usize, buf: &[u8]) -> io::Result<()> {
    match read == buf.len() {
        true => Ok(()),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn each(
    reader: Reader,
    places: Places<'_>,
    begun: Instant,
    mut read: impl FnMut(u64, &mut [u8]) -> io::Result<usize>,
) -> io::Result<Done> {
    let mut buf = aligned(places.size);
    let (set_up, mut tally) = (begun.elapsed(), Tally::new(reader.grain()));
    for _ in 0..places.rounds {
        tally.again()?;
        for &offset in places.offsets {
            full(read(offset, &mut buf)?, &buf)?;
            tally.add(&buf);
        }
    }
    Ok(tally.done(set_up, 0))
}

/// A source of asynchronous reads.
trait AsyncRead {
    fn read_at<'a>(
        &'a self,
        offset: u64,
        buf: &'a mut [u8],
    ) -> impl Future<Output = io::Result<usize>>;

    /// See [`AsyncCounts::waited`](brisk_io::AsyncCounts::waited).
    fn waited(&self) -> u64;
}

impl AsyncRead for AsyncFile {
    #[inline]
    fn read_at<'a>(
        &'a self,
        offset: u64,
        buf: &'a mut [u8],
    ) -> impl Future<Output = io::Result<usize>> {
        self.read_at(offset, buf)
    }

    fn waited(&self) -> u64 {
        self.counts().waited
    }
}

/// Memory of the program itself.
struct Copied(AlignedBuf);

impl AsyncRead for Copied {
    #[inline]
    async fn read_at<'a>(&'a self, offset: u64, buf: &'a mut [u8]) -> io::Result<usize> {
        ByteSource::read_bytes_at(&*self.0, offset, buf)
    }

    fn waited(&self) -> u64 {
        0
    }
}

fn asynchronous(
    reader: Reader,
    places: Places<'_>,
    begun: Instant,
    file: impl AsyncRead,
) -> io::Result<Done> {
    // The loop is inline on purpose. In a function that owns the file, a read of a mapping takes a tenth
    // longer.
    runtime()?.block_on(async {
        let mut buf = aligned(places.size);
        let (set_up, mut tally) = (begun.elapsed(), Tally::new(reader.grain()));
        for _ in 0..places.rounds {
            tally.again()?;
            for &offset in places.offsets {
                full(file.read_at(offset, &mut buf).await?, &buf)?;
                tally.add(&buf);
            }
        }
        Ok(tally.done(set_up, file.waited() / places.rounds))
    })
}

/// Fills `buf` in another thread, and returns it.
async fn read_in_thread<B>(file: &Arc<File>, offset: u64, mut buf: B) -> io::Result<B>
where
    B: DerefMut<Target = [u8]> + Send + 'static,
{
    let file = Arc::clone(file);
    let read = move || {
        let n = FileExt::read_at(&*file, &mut buf, offset)?;
        full(n, &buf)?;
        Ok(buf)
    };
    spawn_blocking(read).await?
}

fn in_thread(places: Places<'_>, begun: Instant, file: File) -> io::Result<Done> {
    let file = Arc::new(file);
    runtime()?.block_on(async {
        let mut buf = aligned(places.size);
        let (set_up, mut tally) = (begun.elapsed(), Tally::new(Grain::Word));
        for _ in 0..places.rounds {
            tally.again()?;
            for &offset in places.offsets {
                buf = read_in_thread(&file, offset, buf).await?;
                tally.add(&buf);
            }
        }
        Ok(tally.done(set_up, places.offsets.len() as u64))
    })
}

/// What made an application slow: for each read a buffer, a thread, a report of progress, and a copy.
fn pattern(places: Places<'_>, begun: Instant, file: File) -> io::Result<Done> {
    let file = Arc::new(file);
    let told = Arc::new(AtomicUsize::new(0));
    let listener = Arc::clone(&told);
    let progress: Box<dyn Fn(usize)> = Box::new(move |bytes| {
        listener.fetch_add(bytes, Ordering::Relaxed);
    });
    let done = runtime()?.block_on(async {
        let mut buf = aligned(places.size);
        let (set_up, mut tally) = (begun.elapsed(), Tally::new(Grain::Word));
        for _ in 0..places.rounds {
            tally.again()?;
            for &offset in places.offsets {
                let made = read_in_thread(&file, offset, vec![0; places.size]).await?;
                black_box(&progress)(made.len());
                buf.copy_from_slice(black_box(&made));
                tally.add(&buf);
            }
        }
        io::Result::Ok(tally.done(set_up, places.offsets.len() as u64))
    })?;
    let all = places.offsets.len() * places.size * usize::try_from(places.rounds).unwrap_or(1);
    match told.load(Ordering::Relaxed) == all {
        true => Ok(done),
        false => Err(io::Error::other(
            "the reported progress differs from what was read",
        )),
    }
}

fn tokio_fs(path: &Path, places: Places<'_>, begun: Instant) -> io::Result<Done> {
    runtime()?.block_on(async {
        let mut file = tokio::fs::File::open(path).await?;
        let mut buf = aligned(places.size);
        let (set_up, mut tally) = (begun.elapsed(), Tally::new(Grain::Word));
        for _ in 0..places.rounds {
            tally.again()?;
            for &offset in places.offsets {
                file.seek(SeekFrom::Start(offset)).await?;
                file.read_exact(&mut buf).await?;
                tally.add(&buf);
            }
        }
        Ok(tally.done(set_up, 0))
    })
}

/// Hands out the next position, with its number, to each of several readers. So the number of reads in
/// progress stays the same until the end. If readers took fixed turns, it would not.
struct Next(AtomicUsize);

impl Next {
    fn of(&self, offsets: &[u64]) -> Option<(u64, u64)> {
        let number = self.0.fetch_add(1, Ordering::Relaxed);
        let offset = offsets.get(number)?;
        Some((number as u64, *offset))
    }
}

/// Reads with tasks of tokio, on any executor.
async fn queued(
    file: AsyncFile,
    places: Places<'_>,
    begun: Instant,
    depth: usize,
) -> io::Result<Done> {
    let (set_up, mut total) = (begun.elapsed(), Tally::new(Grain::Word));
    let shared = Rc::new((file, places.offsets.to_vec(), Next(AtomicUsize::new(0))));
    let tasks = LocalSet::new();
    let started = (0..depth).map(|_| {
        let (shared, size) = (shared.clone(), places.size);
        tasks.spawn_local(async move {
            let (file, offsets, next) = &*shared;
            let mut tally = Tally::new(Grain::Word);
            let mut buf = aligned(size);
            while let Some((number, offset)) = next.of(offsets) {
                full(file.read_at(offset, &mut buf).await?, &buf)?;
                tally.number = number;
                tally.add(&buf);
            }
            io::Result::Ok(tally.sum)
        })
    });
    let started: Vec<_> = started.collect();
    tasks.await;
    for sum in started {
        total.sum = total.sum.wrapping_add(sum.await??);
    }
    Ok(total.done(set_up, shared.0.counts().waited))
}

fn threads(file: &File, places: Places<'_>, begun: Instant, depth: usize) -> io::Result<Done> {
    let (set_up, mut total) = (begun.elapsed(), Tally::new(Grain::Word));
    let next = Next(AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let read = || {
            let mut tally = Tally::new(Grain::Word);
            let mut buf = aligned(places.size);
            while let Some((number, offset)) = next.of(places.offsets) {
                full(FileExt::read_at(file, &mut buf, offset)?, &buf)?;
                tally.number = number;
                tally.add(&buf);
            }
            io::Result::Ok(tally.sum)
        };
        let started: Vec<_> = (0..depth).map(|_| scope.spawn(read)).collect();
        for thread in started {
            let sum = thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            total.sum = total.sum.wrapping_add(sum);
        }
        Ok(total.done(set_up, 0))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_the_rounds_after_the_first_counts() {
        let second = Duration::from_secs(1);
        for (ended, counted) in [
            // Each row of the table ends with a reader that takes next to nothing.
            (vec![], 0..1),
            (vec![9], 0..1),
            (vec![9, 1, 7], 1..2),
            (vec![9, 1, 7, 3, 5], 3..4),
        ] {
            let mut tally = Tally::new(Grain::Word);
            tally.rounds = ended.iter().map(|&n| n * second).collect();
            let reads = tally.done(Duration::ZERO, 0).reads.as_secs();
            assert!(counted.contains(&reads), "{reads} of {ended:?}");
        }
    }

    #[test]
    fn a_round_that_reads_something_else_is_an_error() {
        let mut tally = Tally::new(Grain::Word);
        for (bytes, same) in [([1; 8], true), ([1; 8], true), ([2; 8], false)] {
            tally.add(&bytes);
            assert_eq!(tally.again().is_ok(), same, "{bytes:?}");
        }
    }

    #[test]
    fn a_reader_of_an_earlier_version_is_no_error() {
        let read = |name: &str| serde_json::from_str::<Reader>(&format!("\"{name}\"")).unwrap();
        assert_eq!(read("in-thread"), Reader::InThread);
        assert_eq!(read("async-hop"), Reader::Gone);
    }

    #[test]
    fn all_read_the_same() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let bytes: Vec<u8> = (0..5000_u32).map(|n| (n * n % 251) as u8).collect();
        io::Write::write_all(&mut file, &bytes).unwrap();
        let offsets: Vec<_> = (0..40).map(|n| n * 71 % 50 * 100).collect();
        let places = Places {
            offsets: &offsets,
            size: 100,
            rounds: 2,
        };
        let all = Reader::IN_TURN.map(|(reader, ..)| reader);
        for reader in all.into_iter().chain([Reader::Queued, Reader::Threads]) {
            let done = run(reader, file.path(), places, 3).unwrap();
            assert_eq!(
                done.sum,
                expected(&bytes, places, reader.grain()).unwrap(),
                "{reader}"
            );
            if matches!(reader, Reader::InThread | Reader::Pattern) {
                assert_eq!(done.waited, 40, "{reader}");
            }
            let beyond = Places {
                offsets: &[4950],
                size: 100,
                rounds: 1,
            };
            assert!(run(reader, file.path(), beyond, 1).is_err(), "{reader}");
        }
    }
}
