//! Looking at the files of a cache without being one of its users.

mod damage;
mod explanation;
mod files;
mod layouts;
mod listing;
mod summary;
mod value;
mod verification;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use brisk_io::ByteSource;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, statat};

use crate::directory::{FileId, INDEX};
use crate::format::fault::Fault;
use crate::format::index_header::{self, BLOCK, IndexHeader, MARK_AT, SLOTS_AT, VERSION};
use crate::format::slot::{self, Slot};

pub use damage::Damage;
pub use explanation::{Explanation, FoundRecord, FoundSegment, FoundSlot, Outcome};
pub use layouts::LayoutStat;
pub use summary::{DataFile, IndexMark, LedgerSummary, Summary};
pub use verification::Verification;

/// How often a slot that is not right is read again: it may be being written.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(1);

/// The files of a cache, for somebody who wants to know what is in them and what is wrong with them.
///
/// It writes nothing, makes nothing and takes no lock, so it disturbs nobody who uses the cache. It trusts no byte of the
/// files and no owner: what it reads, it copies, checks, and then reports. Memory is bounded by a small factor of the
/// files' sizes. While others write, an entry may be missing, but nothing that they do is reported as damage.
///
/// ```
/// use brisk_cache::{About, Cache, CacheOptions, Inspection, Outcome};
///
/// # fn main() -> std::io::Result<()> {
/// # let home = tempfile::tempdir()?;
/// # let directory = home.path().join("pages");
/// let cache = Cache::open(&directory, CacheOptions::new())?;
/// cache.insert(b"key", b"value", About::default())?;
/// let inspection = Inspection::open(&directory)?;
/// assert_eq!(inspection.explain(b"key")?.outcome, Outcome::Found);
/// assert_eq!(inspection.summary()?.entries, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Inspection {
    path: PathBuf,
    fd: OwnedFd,
    /// None if there is none that can be read.
    index: Option<IndexFile>,
    index_damage: Option<Damage>,
    segments: files::Segments,
}

#[derive(Debug)]
struct IndexFile {
    file: File,
    id: FileId,
    header: IndexHeader,
}

/// What is at the place of a slot.
#[derive(Debug)]
enum AtSlot {
    Slot(Slot),
    Damaged(Fault),
}

impl Inspection {
    /// Opens the directory of a cache. It must exist, and have files of a cache.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidData`] if none of its files begins as one of a cache does.
    /// [`io::ErrorKind::Unsupported`] if another version of the format wrote its index. Otherwise those of the system.
    pub fn open(directory: &Path) -> io::Result<Self> {
        let told = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", directory.display()));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = openat(CWD, directory, flags, Mode::empty()).map_err(|e| told(e.into()))?;
        let mut inspection = Self {
            path: directory.to_owned(),
            fd,
            index: None,
            index_damage: None,
            segments: files::Segments::default(),
        };
        inspection.open_index()?;
        if inspection.index.is_none() && !inspection.has_other_files()? {
            return Err(told(io::Error::new(
                io::ErrorKind::InvalidData,
                "not a cache of brisk: no file in it begins as one of a cache does; name the directory that the program \
                 opens as its cache",
            )));
        }
        Ok(inspection)
    }

    /// The directory, as it was given.
    pub fn directory(&self) -> &Path {
        &self.path
    }

    /// What is wrong with the index, if it cannot be read. Then no entry is found, and the next writer makes an empty
    /// index in its place.
    pub fn index_damage(&self) -> Option<&Damage> {
        self.index_damage.as_ref()
    }

    fn open_index(&mut self) -> io::Result<()> {
        let (file, len) = match self.file(INDEX)? {
            files::Opened::File(file, len) => (file, len),
            files::Opened::Nothing => return Ok(()),
            files::Opened::Other(damage) => {
                self.index_damage = Some(damage);
                return Ok(());
            }
        };
        let mut bytes = [0; index_header::LEN];
        if let Err(e) = file.read_exact_bytes_at(0, &mut bytes) {
            if e.kind() != io::ErrorKind::UnexpectedEof {
                return Err(e);
            }
            let allowed = format_args!("at least {SLOTS_AT} bytes");
            let fault = Fault::new(0, "the file's length", len, allowed);
            self.index_damage = Some(Damage::of(INDEX, 0, &fault));
            return Ok(());
        }
        match IndexHeader::parse(&bytes, len) {
            Some(header) => {
                self.index = Some(IndexFile {
                    id: FileId::of(&file)?,
                    file,
                    header,
                });
            }
            None => {
                let fault = Fault::of_index(&bytes, len);
                if let Some(fault) = fault.as_ref().filter(|fault| fault.field == "version") {
                    return Err(io::Error::new(
                        io::ErrorKind::Unsupported,
                        format!(
                            "{}: its format has version {}, allowed is {VERSION}; use the brisk that wrote it",
                            self.path.join(INDEX).display(),
                            fault.found
                        ),
                    ));
                }
                self.index_damage = fault.map(|fault| Damage::of(INDEX, 0, &fault));
            }
        }
        Ok(())
    }

    /// Whether the name still belongs to the index that is open, and nobody is replacing it.
    fn is_current(&self, index: &IndexFile) -> bool {
        let named = statat(&self.fd, INDEX, AtFlags::SYMLINK_NOFOLLOW);
        let named = named.is_ok_and(|stat| FileId::of_stat(&stat) == index.id);
        named
            && self
                .mark(index)
                .is_ok_and(|mark| mark == IndexMark::Current)
    }

    fn mark(&self, index: &IndexFile) -> io::Result<IndexMark> {
        let mut mark = [0; 8];
        index.file.read_exact_bytes_at(MARK_AT, &mut mark)?;
        Ok(match mark {
            index_header::CURRENT => IndexMark::Current,
            index_header::MOVING => IndexMark::Moving,
            index_header::REPLACED => IndexMark::Replaced,
            _ => IndexMark::Unknown,
        })
    }

    /// Shows each place of a slot that is not free.
    fn each_slot(
        &self,
        index: &IndexFile,
        mut visit: impl FnMut(u64, AtSlot) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut block = vec![0; BLOCK as usize];
        for number in 0..index.header.blocks {
            let start = SLOTS_AT + u64::from(number) * BLOCK;
            index.file.read_exact_bytes_at(start, &mut block)?;
            let (slots, _) = block.as_chunks::<{ slot::LEN }>();
            for (at, bytes) in (start..).step_by(slot::LEN).zip(slots) {
                if *bytes != slot::FREE
                    && let Some(found) = self.at_slot(index, at, *bytes)?
                {
                    visit(at, found)?;
                }
            }
        }
        Ok(())
    }

    /// What is at this place of the index, where these bytes were. None if it is free.
    fn at_slot(
        &self,
        index: &IndexFile,
        at: u64,
        mut bytes: [u8; slot::LEN],
    ) -> io::Result<Option<AtSlot>> {
        let seed = index.header.seed;
        for tried in 1.. {
            if let Some(slot) = Slot::parse(seed, &bytes) {
                return Ok(Some(AtSlot::Slot(slot)));
            }
            let Some(fault) = Fault::of_slot(seed, &bytes) else {
                return Ok(None);
            };
            if tried == TRIES {
                return Ok(Some(AtSlot::Damaged(fault)));
            }
            thread::sleep(PAUSE);
            index.file.read_exact_bytes_at(at, &mut bytes)?;
        }
        Ok(None)
    }

    /// The bytes at the place of a slot.
    fn slot_bytes(&self, index: &IndexFile, at: u64) -> io::Result<[u8; slot::LEN]> {
        let mut bytes = [0; slot::LEN];
        index.file.read_exact_bytes_at(at, &mut bytes)?;
        Ok(bytes)
    }
}
