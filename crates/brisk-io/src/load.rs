use std::fs::File;
use std::io;
use std::ops::Range;

use rustix::mm::Advice;

use crate::choice::{Choice, Reason, choose};
use crate::load_source::LoadSource;
use crate::page_cache::is_cached;
use crate::region::{Region, len_within};
use crate::transfer::{DIRECT_ALIGNMENT, Transfer, copying_threads, open_direct};
use crate::{BlockDevice, Form, Need, ReadAt, Strategy, Touch, uring};

/// Reads past the page cache that are under way at once.
const DIRECT_READS: usize = 8;

/// What the kernel reads ahead on a disk that nobody has set up.
const USUAL_READ_AHEAD_KIB: u64 = 128;

/// Bytes of a file in memory, and how they came there.
///
/// They are this process's own copy, or a mapping of an [`ImmutableFile`](crate::ImmutableFile);
/// [`Strategy::copies`] tells which.
///
/// 1. `region` is memory of the process's own, or maps a file that keeps the promise of `ImmutableFile`.
#[derive(Debug)]
pub struct Loaded {
    region: Region,
    strategy: Strategy,
    reason: Reason,
    refused: Vec<(Strategy, io::Error)>,
}

/// How [`Loaded`] memory is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Release {
    /// At once, by this thread, as dropping it does.
    Unmap,
    /// Never: the process ends soon, and the kernel takes it then.
    SkipAtExit,
    /// At once, the pages by so many threads first.
    InParallel(usize),
}

impl Loaded {
    /// The bytes.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: invariant 1.
        unsafe { self.region.as_slice() }
    }

    /// The bytes, to be patched: there if [`Form::Patched`] was asked for, or if they were copied.
    #[inline]
    pub fn as_mut_slice(&mut self) -> Option<&mut [u8]> {
        // SAFETY: invariant 1.
        unsafe { self.region.as_mut_slice() }
    }

    /// The way that was taken.
    pub fn strategy(&self) -> Strategy {
        self.strategy
    }

    /// Why that way, or the first of those that were refused, was to be taken.
    pub fn reason(&self) -> &Reason {
        &self.reason
    }

    /// The ways that were tried before, and what the system said to each.
    pub fn refused(&self) -> &[(Strategy, io::Error)] {
        &self.refused
    }

    /// As [`Mapping::check`](crate::Mapping::check); nothing can be wrong with what was copied.
    ///
    /// # Errors
    ///
    /// As there.
    #[inline]
    pub fn check(&self) -> io::Result<()> {
        self.region.check()
    }

    /// Gives the memory back.
    pub fn release(self, how: Release) {
        match how {
            Release::Unmap => drop(self),
            Release::SkipAtExit => std::mem::forget(self),
            Release::InParallel(threads) => self.region.release_in_parallel(threads),
        }
    }
}

impl ReadAt for Loaded {
    #[inline]
    fn size(&self) -> io::Result<u64> {
        Ok(self.region.len() as u64)
    }

    #[inline]
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.region.copy(offset, buf)
    }
}

/// Brings `bytes` of `file` into memory in the way that suits `need`, by a table of what most machines do
/// best.
///
/// A [`File`] is copied, for other processes may write to it. An [`ImmutableFile`](crate::ImmutableFile) is mapped
/// where that is faster.
///
/// If the system or the filesystem refuses a way, `load` takes the next best one, and [`Loaded::refused`] tells.
///
/// # Errors
///
/// [`io::ErrorKind::UnexpectedEof`] if the file has not all of the bytes, and what the system says of a disk
/// that fails or of memory that it has not.
pub fn load<'a>(
    file: impl Into<LoadSource<'a>>,
    bytes: Range<u64>,
    need: Need,
) -> io::Result<Loaded> {
    let source = file.into();
    let Choice { ways, reason } = choose(source, &bytes, need)?;
    let mut refused = Vec::new();
    for strategy in ways {
        match bring(strategy, source, &bytes, need) {
            Ok(region) => {
                return Ok(Loaded {
                    region,
                    strategy,
                    reason,
                    refused,
                });
            }
            Err(e) if is_refusal(&e) => refused.push((strategy, e)),
            Err(e) => return Err(e),
        }
    }
    let told = refused.pop().map(|(_, e)| e);
    Err(told.unwrap_or_else(|| io::ErrorKind::Unsupported.into()))
}

/// Brings `bytes` of `file` into memory in this way, and in no other.
///
/// # Errors
///
/// As [`load`], and [`io::ErrorKind::InvalidInput`], [`io::ErrorKind::Unsupported`] and others where the
/// system, the filesystem or this build refuses that way. A [`Strategy::SharedMap`] cannot be
/// [`Form::Patched`], and only an [`ImmutableFile`](crate::ImmutableFile) can be mapped.
pub fn load_as<'a>(
    strategy: Strategy,
    file: impl Into<LoadSource<'a>>,
    bytes: Range<u64>,
    need: Need,
) -> io::Result<Loaded> {
    Ok(Loaded {
        region: bring(strategy, file.into(), &bytes, need)?,
        strategy,
        reason: Reason::Given,
        refused: Vec::new(),
    })
}

/// Whether another way may do what this one could not.
fn is_refusal(e: &io::Error) -> bool {
    matches!(
        e.raw_os_error(),
        Some(
            libc::EINVAL
                | libc::ENODEV
                | libc::EOPNOTSUPP
                | libc::ENOSYS
                | libc::EPERM
                | libc::EACCES
                | libc::ENOMEM
                | libc::ENOENT
        )
    ) || e.kind() == io::ErrorKind::Unsupported
}

/// Memory of the process's own, or a mapping, if the source is immutable.
fn bring(
    strategy: Strategy,
    source: LoadSource<'_>,
    bytes: &Range<u64>,
    need: Need,
) -> io::Result<Region> {
    let patched = need.form == Form::Patched;
    let file = source.file();
    match strategy {
        Strategy::SharedMap | Strategy::PrivateMap | Strategy::PopulatedMap
            if !source.is_immutable() =>
        {
            Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "others may change the file, so its bytes cannot be borrowed from a mapping; copy them, or promise \
                 that nobody changes it (ImmutableFile)",
            ))
        }
        Strategy::SharedMap if patched => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "what is patched cannot be mapped shared; map it private, or copy it",
        )),
        Strategy::SharedMap => map(file, bytes, need, false),
        Strategy::PrivateMap => map(file, bytes, need, true),
        Strategy::PopulatedMap => populated(file, bytes, patched),
        Strategy::Read => copied(file, bytes, 1, |buf, needed| {
            let threads = copying_threads();
            let missing = is_cached(file, bytes.start, bytes.end - bytes.start) != Some(true);
            // A filesystem that has no mappings is read in its own way.
            let ahead = missing.then(|| populated_later(file, bytes).ok()).flatten();
            let transfer = Transfer { threads, ahead };
            transfer.run(file, bytes.start, buf, needed)
        }),
        Strategy::Direct => {
            let direct = open_direct(file)?;
            let transfer = Transfer {
                threads: DIRECT_READS,
                ahead: None,
            };
            let start = bytes.start / DIRECT_ALIGNMENT * DIRECT_ALIGNMENT;
            copied(file, bytes, DIRECT_ALIGNMENT, |buf, needed| {
                transfer.run(&direct, start, buf, needed)
            })
        }
        Strategy::Uring => copied(file, bytes, 1, |buf, needed| {
            uring::transfer(file, bytes.start, buf, needed)
        }),
        Strategy::UringDirect => {
            let direct = open_direct(file)?;
            let start = bytes.start / DIRECT_ALIGNMENT * DIRECT_ALIGNMENT;
            copied(file, bytes, DIRECT_ALIGNMENT, |buf, needed| {
                uring::transfer(&direct, start, buf, needed)
            })
        }
    }
}

/// A mapping through which the kernel can be made to read in large pages.
fn populated_later(file: &File, bytes: &Range<u64>) -> io::Result<Region> {
    let region = Region::map(file, bytes, false)?;
    region.advise_large()?;
    Ok(region)
}

fn map(file: &File, bytes: &Range<u64>, need: Need, private: bool) -> io::Result<Region> {
    let region = Region::map(file, bytes, private)?;
    // Advice only.
    match need.touch {
        Touch::All | Touch::Random => region.advise_large().ok(),
        Touch::Few => region.advise(Advice::Random).ok(),
        Touch::Part if waits_for_much(file, bytes) => region.advise_large().ok(),
        Touch::Part => None,
    };
    Ok(region)
}

/// Whether a touch of `bytes` is to wait for more than the kernel's usual read-ahead: without advice it reads as
/// much around each page that is missing as is set up for the disk, and the touch waits for all of it. Told of
/// large pages, it waits for one of those and reads the next meanwhile.
fn waits_for_much(file: &File, bytes: &Range<u64>) -> bool {
    if is_cached(file, bytes.start, bytes.end - bytes.start) == Some(true) {
        return false;
    }
    let device = BlockDevice::of_file(file);
    let read_ahead = device.and_then(|device| device.number("queue/read_ahead_kb"));
    read_ahead.is_some_and(|kib| kib > USUAL_READ_AHEAD_KIB)
}

fn populated(file: &File, bytes: &Range<u64>, private: bool) -> io::Result<Region> {
    let region = Region::map(file, bytes, private)?;
    // Without it the kernel reads page by page here, past any read-ahead. Advice only.
    region.advise_large().ok();
    region.populate(0..region.len())?;
    Ok(region)
}

/// Own memory that `transfer` fills; of the file's bytes it gets those from a multiple of `alignment` on,
/// and room up to such a multiple.
fn copied(
    file: &File,
    bytes: &Range<u64>,
    alignment: u64,
    transfer: impl FnOnce(&mut [u8], usize) -> io::Result<()>,
) -> io::Result<Region> {
    let len = usize::try_from(len_within(file, bytes)?).map_err(|_| io::ErrorKind::OutOfMemory)?;
    // Less than `alignment`.
    let skip = (bytes.start % alignment) as usize;
    let mut region = Region::own(skip, len)?;
    if len == 0 {
        return Ok(region);
    }
    let room = (skip + len).next_multiple_of(alignment as usize);
    let skip = region.skip();
    // SAFETY: the region is memory of the process's own.
    let pages = unsafe { region.pages_mut() }.ok_or(io::ErrorKind::Unsupported)?;
    transfer(&mut pages[..room], skip + len)?;
    Ok(region)
}
