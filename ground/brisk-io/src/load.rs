use std::fs::File;
use std::io;
use std::ops::Range;

use rustix::mm::Advice;

use crate::choice::{Choice, Reason, choose};
use crate::load_source::LoadSource;
use crate::page_cache::is_cached;
use crate::region::{Region, len_within};
use crate::transfer::{DIRECT_ALIGNMENT, Transfer, copying_threads, open_direct};
use crate::{BlockDevice, ByteSource, Form, Need, Strategy, Touch, uring};

/// How many direct reads are in progress at once.
const DIRECT_READS: usize = 8;

/// The default read-ahead of the kernel for a disk.
const USUAL_READ_AHEAD_KIB: u64 = 128;

/// Bytes of a file in memory, and how they got there.
///
/// They are this process's own copy, or a mapping of an [`ImmutableFile`](crate::ImmutableFile);
/// [`Strategy::copies`] says which.
///
/// 1. `region` is memory of this process, or maps a file that keeps the promise of `ImmutableFile`.
#[derive(Debug)]
pub struct Loaded {
    region: Region,
    strategy: Strategy,
    reason: Reason,
    refused: Vec<(Strategy, io::Error)>,
}

impl Loaded {
    /// The bytes.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: invariant 1.
        unsafe { self.region.as_slice() }
    }

    /// The bytes, to patch. Available if [`Form::Patched`] was asked for, or if they were copied.
    #[inline]
    pub fn as_mut_slice(&mut self) -> Option<&mut [u8]> {
        // SAFETY: invariant 1.
        unsafe { self.region.as_mut_slice() }
    }

    /// The strategy that was used.
    pub fn strategy(&self) -> Strategy {
        self.strategy
    }

    /// Why this strategy was chosen, or the first of those that were refused.
    pub fn reason(&self) -> &Reason {
        &self.reason
    }

    /// The strategies that were tried before, and the error of each.
    pub fn refused(&self) -> &[(Strategy, io::Error)] {
        &self.refused
    }

    /// Like [`Mapping::check`](crate::Mapping::check). Copied bytes are always right.
    ///
    /// # Errors
    ///
    /// As for [`Mapping::check`](crate::Mapping::check).
    #[inline]
    pub fn check(&self) -> io::Result<()> {
        self.region.check()
    }
}

impl ByteSource for Loaded {
    #[inline]
    fn size(&self) -> io::Result<u64> {
        Ok(self.region.len() as u64)
    }

    #[inline]
    fn read_bytes_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.region.copy(offset, buf)
    }
}

/// Brings `bytes` of `file` into memory in the way that suits `need`, by a table of what most machines do
/// best.
///
/// A [`File`] is copied, because other processes may write to it. An [`ImmutableFile`](crate::ImmutableFile)
/// is mapped if that is faster.
///
/// If the system or the filesystem refuses a strategy, `load` uses the next best one, and [`Loaded::refused`]
/// says so.
///
/// # Errors
///
/// [`io::ErrorKind::UnexpectedEof`] if the file does not have all of the bytes. Otherwise those of the
/// system, for example if a disk fails or there is too little memory.
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

/// Brings `bytes` of `file` into memory with this strategy, and no other.
///
/// # Errors
///
/// As [`load`]. Also [`io::ErrorKind::InvalidInput`], [`io::ErrorKind::Unsupported`] and others if the
/// system, the filesystem or this build refuses the strategy. A [`Strategy::SharedMap`] cannot be
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

/// Whether another strategy may work where this one failed.
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

/// Memory of this process, or a mapping if the source is immutable.
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
            "a shared mapping cannot be patched; map it private, or copy it",
        )),
        Strategy::SharedMap => map(file, bytes, need, false),
        Strategy::PrivateMap => map(file, bytes, need, true),
        Strategy::PopulatedMap => populated(file, bytes, patched),
        Strategy::Read => copied(file, bytes, 1, |buf, needed| {
            let threads = copying_threads();
            let missing = is_cached(file, bytes.start, bytes.end - bytes.start) != Some(true);
            // A filesystem without mappings reads in its own way.
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
    // This is only advice.
    match need.touch {
        Touch::All | Touch::Random => region.advise_large().ok(),
        Touch::Few => region.advise(Advice::Random).ok(),
        Touch::Part if waits_for_much(file, bytes) => region.advise_large().ok(),
        Touch::Part => None,
    };
    Ok(region)
}

/// Whether a touch of `bytes` may wait for more than the kernel's usual read-ahead. Without advice, the
/// kernel reads the whole read-ahead of the disk around each missing page, and the touch waits for all of it.
/// If the kernel is told to use large pages, the touch waits for one of those, and the kernel reads the next
/// one meanwhile.
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
    // Without this the kernel reads page by page, beyond any read-ahead. This is only advice.
    region.advise_large().ok();
    region.populate(0..region.len())?;
    Ok(region)
}

/// Memory of this process that `transfer` fills. It gets the file's bytes from a multiple of `alignment` on,
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
    // SAFETY: the region is memory of this process.
    let pages = unsafe { region.pages_mut() }.ok_or(io::ErrorKind::Unsupported)?;
    transfer(&mut pages[..room], skip + len)?;
    Ok(region)
}
