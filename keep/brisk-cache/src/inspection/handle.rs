//! A cache's directory, open to be looked at.

use std::io;
use std::path::Path;

use brisk_io::ByteSource;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, statat};

use super::damage::Damage;
use super::files::{Files, Opened};
use super::index_file::{IndexFile, IndexMark};
use crate::directory::{FileId, INDEX};
use crate::format::fault::Fault;
use crate::format::index_header::{self, IndexHeader, SLOTS_AT, VERSION};

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
    pub(super) files: Files,
    /// None if there is none that can be read.
    pub(super) index: Option<IndexFile>,
    pub(super) index_damage: Option<Damage>,
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
            files: Files::new(directory, fd),
            index: None,
            index_damage: None,
        };
        inspection.open_index()?;
        if inspection.index.is_none() && !inspection.files.has_other_files()? {
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
        &self.files.path
    }

    /// What is wrong with the index, if it cannot be read. Then no entry is found, and the next writer makes an empty
    /// index in its place.
    pub fn index_damage(&self) -> Option<&Damage> {
        self.index_damage.as_ref()
    }

    fn open_index(&mut self) -> io::Result<()> {
        let (file, len) = match self.files.file(INDEX)? {
            Opened::File(file, len) => (file, len),
            Opened::Nothing => return Ok(()),
            Opened::Other(damage) => {
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
                            self.files.path.join(INDEX).display(),
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
    pub(super) fn is_current(&self, index: &IndexFile) -> bool {
        let named = statat(&self.files.fd, INDEX, AtFlags::SYMLINK_NOFOLLOW);
        let named = named.is_ok_and(|stat| FileId::of_stat(&stat) == index.id);
        named && index.mark().is_ok_and(|mark| mark == IndexMark::Current)
    }
}
