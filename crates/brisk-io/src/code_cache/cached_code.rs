use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::directory::Directory;
use super::entry::{CHUNK, Damage, Entry};
use crate::Loaded;

/// Code from a [`CodeCache`](crate::CodeCache), in memory.
///
/// It stays valid as long as this value lives, even if its entry in the cache is replaced, evicted or
/// removed.
#[derive(Debug)]
pub struct CachedCode {
    loaded: Loaded,
    file: File,
    content: Range<u64>,
    unchecked: Option<Unchecked>,
}

/// What is still to be checked.
#[derive(Debug)]
struct Unchecked {
    entry: Entry,
    /// One bit for each chunk that was checked.
    done: Vec<AtomicU64>,
    directory: Arc<Directory>,
    name: String,
}

impl CachedCode {
    pub(super) fn new(loaded: Loaded, file: File, content: Range<u64>) -> Self {
        Self {
            loaded,
            file,
            content,
            unchecked: None,
        }
    }

    /// Checks chunks when they are asked for.
    pub(super) fn checked_later(
        mut self,
        entry: Entry,
        directory: Arc<Directory>,
        name: String,
    ) -> Self {
        let done = (0..entry.chunks().div_ceil(64)).map(|_| AtomicU64::new(0));
        self.unchecked = Some(Unchecked {
            done: done.collect(),
            entry,
            directory,
            name,
        });
        self
    }

    /// The code. With [`Check::Touched`](crate::Check::Touched) it was not checked: see
    /// [`CachedCode::checked`].
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        self.loaded.as_slice()
    }

    /// The code, to patch or relocate. Available if [`Form::Patched`](crate::Form::Patched) was asked for, or
    /// if the code was copied. The entry does not change.
    ///
    /// With [`Check::Touched`](crate::Check::Touched), [check](CachedCode::checked) a part before you patch
    /// it. Otherwise it counts as damaged.
    #[inline]
    pub fn as_mut_slice(&mut self) -> Option<&mut [u8]> {
        self.loaded.as_mut_slice()
    }

    /// A part of the code. Each piece of 64 KiB that the part touches is checked once, before this returns.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidData`] with a [`Damage`], if a piece is not what was stored. The entry is then
    /// removed. Those of [`Loaded::check`] if a page cannot be read. [`io::ErrorKind::InvalidInput`] if the
    /// code has no such part.
    pub fn checked(&self, part: Range<usize>) -> io::Result<&[u8]> {
        let code = self.loaded.as_slice();
        let wanted = code.get(part.clone()).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "bytes {} to {} of code of {}",
                    part.start,
                    part.end,
                    code.len()
                ),
            )
        })?;
        let Some(unchecked) = &self.unchecked else {
            return Ok(wanted);
        };
        if wanted.is_empty() {
            return Ok(wanted);
        }
        for number in part.start / CHUNK..part.end.div_ceil(CHUNK) {
            let (word, bit) = (&unchecked.done[number / 64], 1 << (number % 64));
            if word.load(Ordering::Relaxed) & bit != 0 {
                continue;
            }
            let chunk = &code[number * CHUNK..code.len().min((number + 1) * CHUNK)];
            let right = unchecked.entry.check(number, chunk);
            // Zeros in place of an unreadable page are no damage of the entry.
            self.loaded.check()?;
            if let Err(damage) = right {
                let Unchecked {
                    directory, name, ..
                } = unchecked;
                // If this fails, the next one who loads it finds the same damage.
                directory.remove(name, Some(&self.file)).ok();
                return Err(io::Error::new(io::ErrorKind::InvalidData, damage));
            }
            word.fetch_or(bit, Ordering::Relaxed);
        }
        Ok(wanted)
    }

    pub(super) fn check_all(&self, entry: &Entry) -> io::Result<Result<(), Damage>> {
        let code = self.loaded.as_slice();
        for (number, chunk) in code.chunks(CHUNK).enumerate() {
            let right = entry.check(number, chunk);
            self.loaded.check()?;
            if right.is_err() {
                return Ok(right);
            }
        }
        Ok(Ok(()))
    }

    /// The bytes as they were loaded, and how.
    pub fn loaded(&self) -> &Loaded {
        &self.loaded
    }

    /// Like [`CachedCode::loaded`], to keep or to [release](Loaded::release).
    pub fn into_loaded(self) -> Loaded {
        self.loaded
    }

    /// The entry's file, and the range of the code in it, which starts at a multiple of 64 KiB. For a caller
    /// that maps it in its own way. Nobody may write it.
    pub fn file(&self) -> (&File, Range<u64>) {
        (&self.file, self.content.clone())
    }
}
