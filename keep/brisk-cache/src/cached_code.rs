use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use brisk_io::{ImmutableFile, LoadSource, Loaded};

use crate::Cache;
use crate::value_file::Checks;

/// Code from a [`CodeCache`](crate::CodeCache), in memory.
///
/// It stays valid as long as this value lives, even if its entry in the cache is replaced, evicted or removed.
#[derive(Debug)]
pub struct CachedCode {
    loaded: Loaded,
    file: CodeFile,
    content: Range<u64>,
    unchecked: Option<Unchecked>,
}

/// The file of an entry.
#[derive(Debug)]
pub(crate) enum CodeFile {
    /// It may be mapped.
    Immutable(ImmutableFile),
    /// It is copied.
    Plain(File),
}

impl CodeFile {
    pub(crate) fn source(&self) -> LoadSource<'_> {
        match self {
            Self::Immutable(file) => file.into(),
            Self::Plain(file) => file.into(),
        }
    }

    fn as_file(&self) -> &File {
        match self {
            Self::Immutable(file) => file.as_file(),
            Self::Plain(file) => file,
        }
    }
}

/// What is still to be checked.
#[derive(Debug)]
struct Unchecked {
    checks: Checks,
    /// One bit for each piece that was checked.
    done: Vec<AtomicU64>,
    entry: StoredCode,
}

/// The entry that code was loaded from.
#[derive(Debug)]
pub(crate) struct StoredCode {
    pub(crate) cache: Arc<Cache>,
    pub(crate) key: Vec<u8>,
}

impl StoredCode {
    /// Removes it because it is damaged, and counts that.
    pub(crate) fn is_damaged(&self) {
        self.cache.store.counters.damaged.add(1);
        // If this fails, the next one who loads it finds the same damage.
        self.cache.remove(&self.key).ok();
    }
}

impl CachedCode {
    pub(crate) fn new(loaded: Loaded, file: CodeFile, content: Range<u64>) -> Self {
        Self {
            loaded,
            file,
            content,
            unchecked: None,
        }
    }

    /// Checks pieces when they are asked for.
    pub(crate) fn checked_later(mut self, checks: Checks, entry: StoredCode) -> Self {
        let done = (0..checks.pieces().div_ceil(64)).map(|_| AtomicU64::new(0));
        self.unchecked = Some(Unchecked {
            done: done.collect(),
            checks,
            entry,
        });
        self
    }

    /// The code. With [`Check::Touched`](crate::Check::Touched) it was not checked: see [`CachedCode::checked`].
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        self.loaded.as_slice()
    }

    /// The code, to patch or relocate. Available if [`Form::Patched`](brisk_io::Form::Patched) was asked for, or if the
    /// code was copied. The entry does not change.
    ///
    /// With [`Check::Touched`](crate::Check::Touched), [check](CachedCode::checked) a part before you patch it.
    /// Otherwise it counts as damaged.
    #[inline]
    pub fn as_mut_slice(&mut self) -> Option<&mut [u8]> {
        self.loaded.as_mut_slice()
    }

    /// A part of the code. Each piece of 4 KiB that the part touches is checked once, before this returns.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidData`] if a piece is not what was stored. The entry is then removed. Those of
    /// [`Loaded::check`] if a page cannot be read. [`io::ErrorKind::InvalidInput`] if the code has no such part.
    pub fn checked(&self, part: Range<usize>) -> io::Result<&[u8]> {
        let code = self.loaded.as_slice();
        let wanted = code.get(part.clone()).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "bytes {} to {} of code of {}; ask for a part of it",
                    part.start,
                    part.end,
                    code.len()
                ),
            )
        })?;
        let Some(unchecked) = &self.unchecked else {
            return Ok(wanted);
        };
        for number in unchecked.checks.touched(&part) {
            let bit = 1 << (number % 64);
            let word = unchecked.done.get(number / 64);
            if word.is_some_and(|word| word.load(Ordering::Relaxed) & bit != 0) {
                continue;
            }
            if !self.is_right(&unchecked.checks, number)? {
                unchecked.entry.is_damaged();
                let piece = unchecked.checks.piece(number, code.len());
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!(
                        "bytes {} to {} of the cached code differ from their check, allowed is what was stored; generate \
                         the code again",
                        piece.start, piece.end
                    ),
                ));
            }
            if let Some(word) = word {
                word.fetch_or(bit, Ordering::Relaxed);
            }
        }
        Ok(wanted)
    }

    /// Whether all of it is what was stored.
    pub(crate) fn is_whole(&self, checks: &Checks) -> io::Result<bool> {
        for number in 0..checks.pieces() {
            if !self.is_right(checks, number)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn is_right(&self, checks: &Checks, number: usize) -> io::Result<bool> {
        let code = self.loaded.as_slice();
        let piece = code.get(checks.piece(number, code.len()));
        let right = checks.is_right(number, piece.unwrap_or_default());
        // Zeros in place of an unreadable page are no damage of the entry.
        self.loaded.check()?;
        Ok(right)
    }

    /// The bytes as they were loaded, and how.
    pub fn loaded(&self) -> &Loaded {
        &self.loaded
    }

    /// The entry's file, and the range of the code in it, which starts at a multiple of 64 KiB. For a caller that maps
    /// it in its own way. Nobody may write it.
    pub fn file(&self) -> (&File, Range<u64>) {
        (self.file.as_file(), self.content.clone())
    }
}
