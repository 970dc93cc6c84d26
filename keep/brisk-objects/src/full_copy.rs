//! A copy of a file whose pages are full.

use std::fs::File;
use std::path::Path;

use heed::types::Bytes;
use heed::{CompactionOption, PutFlags};

use crate::environment::{self, Access};
use crate::error::Error;
use crate::inner::Inner;
use crate::store_error::Told;
use crate::table::Table;
use crate::unfinished::Unfinished;
use crate::untyped::pages;

/// Writes all tables of a file to a new one, in the order of their keys. So each page is filled before the next one begins, and
/// none is unused. Pages that were filled at random are two thirds full.
///
/// A handle of a file has room for the tables of its program alone. So a first copy, of pages, is opened with room for all.
pub(crate) fn write(inner: &Inner, target: &Path) -> Result<Unfinished, Error> {
    let mut copied = Unfinished::beside(target)?;
    let done = inner
        .env
        .copy_to_file(copied.file(), CompactionOption::Enabled);
    done.map_err(|e| inner.told(e))?;
    let room = pages::newest(&File::open(copied.path())?, copied.path())?.room();
    #[expect(unsafe_code, reason = "nobody else knows the file")]
    // SAFETY: the file is new, and nothing writes to it any more.
    let from = unsafe { environment::open_existing(copied.path(), room, Access::ReadFrozen) }?;
    let reading = from.read_txn().told(&from)?;

    let full = Unfinished::beside(target)?;
    let limit = u64::try_from(inner.env.info().map_size).unwrap_or(u64::MAX);
    #[expect(unsafe_code, reason = "nobody else knows the file")]
    // SAFETY: the file is new, and nothing but LMDB writes to it.
    let to = unsafe { environment::open_existing(full.path(), room, Access::Write(limit)) }?;
    let mut writing = to.write_txn().told(&to)?;
    let root = from.open_database::<Bytes, Bytes>(&reading, None);
    if let Some(root) = root.told(&from)? {
        for entry in root.iter(&reading).told(&from)? {
            let (name, _) = entry.told(&from)?;
            let name = String::from_utf8_lossy(name);
            let table = from.open_database::<Bytes, Bytes>(&reading, Some(&name));
            let Some(table) = table.told(&from)? else {
                continue;
            };
            let full: Table = to.create_database(&mut writing, Some(&name)).told(&to)?;
            for entry in table.iter(&reading).told(&from)? {
                let (key, value) = entry.told(&from)?;
                let put = full.put_with_flags(&mut writing, PutFlags::APPEND, key, value);
                put.told(&to)?;
            }
        }
    }
    writing.commit().told(&to)?;
    Ok(full)
}
