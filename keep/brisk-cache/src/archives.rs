use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use rkyv::rancor::Error;
use yoke::Yoke;

use crate::clock::time_of;
use crate::format::check;
use crate::hit::Held;
use crate::owned_archive::access;
use crate::segment::Segment;
use crate::{About, Cache, Hit, OwnedArchive, StoredArchive};

/// The part of a cache whose keys are `K`s and whose values are archives of `T`: see [`Cache::archives`].
///
/// It borrows the cache, because one directory, with one limit, has values of many types.
///
/// A value that was inserted with another layout is a miss, and [counted](crate::CacheCounts::unknown). The layout is
/// that of [`StoredArchive::FINGERPRINT`], of the size and the alignment of the archived type, and of a sample with
/// numbers, texts, lists and options that this program's rkyv archives. So programs that were built with other options
/// of rkyv (its order of bytes, its width of pointers) share a directory and get misses.
///
/// # Example
///
/// ```
/// use brisk_cache::{Cache, CacheOptions, Layout, StoredArchive};
/// use rkyv::{Archive, Serialize};
///
/// #[derive(Archive, Layout, Serialize)]
/// struct Page {
///     title: String,
///     links: Vec<String>,
/// }
///
/// impl StoredArchive for Page {
///     const FINGERPRINT: u64 = Page::LAYOUT;
/// }
///
/// # fn main() -> std::io::Result<()> {
/// # let home = tempfile::tempdir()?;
/// # let directory = home.path().join("cache");
/// let cache = Cache::open(&directory, CacheOptions::new())?;
/// let pages = cache.archives::<str, Page>();
/// let fetch = || {
///     let (title, links) = ("Example".to_owned(), vec!["/a".to_owned(), "/b".to_owned()]);
///     std::io::Result::Ok(Page { title, links })
/// };
/// let page = pages.get_or_insert_with("https://example.org/", fetch)?;
/// assert_eq!(page.title, "Example");
/// assert_eq!(page.links[1], "/b");
/// assert!(pages.get("https://example.org/none")?.is_none());
/// # Ok(())
/// # }
/// ```
pub struct Archives<'c, K: ?Sized, T> {
    cache: &'c Cache,
    about: About,
    types: PhantomData<fn(&K) -> T>,
}

impl Cache {
    /// The part of the cache whose keys are `K`s and whose values are archives of `T`.
    pub fn archives<K: AsRef<[u8]> + ?Sized, T: StoredArchive>(&self) -> Archives<'_, K, T> {
        Archives {
            cache: self,
            about: About {
                fingerprint: layout_of::<T>(),
                bucket: 0,
            },
            types: PhantomData,
        }
    }
}

impl<'c, K: AsRef<[u8]> + ?Sized, T: StoredArchive> Archives<'c, K, T> {
    /// Inserts into this bucket, and not into bucket 0.
    #[must_use]
    pub fn bucket(mut self, bucket: u16) -> Self {
        self.about.bucket = bucket;
        self
    }

    /// Looks for the archive of a key. All of it is checked each time: its bytes, unless this handle has checked them
    /// before, and by rkyv each place in it that points to another.
    ///
    /// # Errors
    ///
    /// As [`Cache::get`]. Bytes that are no archive of the type are a miss and a
    /// [count](crate::CacheCounts::unknown).
    pub fn get(&self, key: &K) -> io::Result<Option<ArchivedHit<T>>> {
        let Some(hit) = self.cache.get(key.as_ref())? else {
            return Ok(None);
        };
        let counters = &self.cache.store.counters;
        if hit.fingerprint() != self.about.fingerprint {
            counters.unknown.add(1);
            return Ok(None);
        }
        match hit.bytes() {
            Ok(_) => {}
            Err(e) => {
                return match e.kind() {
                    // A chunk is damaged, or its page is lost.
                    io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
                        counters.damaged.add(1);
                        Ok(None)
                    }
                    _ => Err(e),
                };
            }
        }
        let archived = ArchivedHit::of(hit);
        if archived.is_err() {
            counters.unknown.add(1);
        }
        Ok(archived.ok())
    }

    /// Archives a value and stores it under a key. It replaces the one before.
    ///
    /// # Errors
    ///
    /// As [`OwnedArchive::new`] and [`Cache::insert`].
    pub fn insert(&self, key: &K, value: &T) -> io::Result<()> {
        self.insert_archive(key, &OwnedArchive::new(value)?)
    }

    /// Stores an archive under a key. It replaces the one before.
    ///
    /// # Errors
    ///
    /// As [`Cache::insert`].
    pub fn insert_archive(&self, key: &K, archive: &OwnedArchive<T>) -> io::Result<()> {
        self.cache
            .insert(key.as_ref(), archive.as_bytes(), self.about)
    }

    /// Looks for the archive of a key. If there is none, `fetch` makes a value, and its archive is stored: see
    /// [`Cache::get_or_insert_with`].
    ///
    /// # Errors
    ///
    /// Those of `fetch`, of [`Archives::get`], and of [`OwnedArchive::new`].
    pub fn get_or_insert_with<E: From<io::Error>>(
        &self,
        key: &K,
        fetch: impl FnOnce() -> Result<T, E>,
    ) -> Result<ArchivedHit<T>, E> {
        let find = || self.get(key);
        let made = |value: T| -> Result<_, E> {
            let archive = OwnedArchive::new(&value)?;
            let stored = self.insert_archive(key, &archive);
            Ok((stored, || ArchivedHit::unstored(archive, self.about)))
        };
        let fetch = || made(fetch()?);
        self.cache.find_or_make(key.as_ref(), find, fetch)
    }

    /// Removes the value of a key, of whatever layout it is: see [`Cache::remove`].
    ///
    /// # Errors
    ///
    /// As [`Cache::remove`].
    pub fn remove(&self, key: &K) -> io::Result<bool> {
        self.cache.remove(key.as_ref())
    }
}

impl<K: ?Sized, T> Clone for Archives<'_, K, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: ?Sized, T> Copy for Archives<'_, K, T> {}

impl<K: ?Sized, T> fmt::Debug for Archives<'_, K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Archives")
            .field("cache", &self.cache)
            .field("about", &self.about)
            .finish()
    }
}

/// An archive that was found. It derefs to the archived type.
///
/// It stays as it is, as a [`Hit`] does, and borrows from the mapping if the cache was opened by
/// [`Cache::open_mapped`].
pub struct ArchivedHit<T: StoredArchive> {
    archive: HeldArchive<T>,
    about: About,
    written: SystemTime,
}

enum HeldArchive<T: StoredArchive> {
    Mapped {
        archive: Yoke<&'static T::Archived, Arc<Segment>>,
        start: u64,
        len: usize,
    },
    Owned(OwnedArchive<T>),
}

impl<T: StoredArchive> ArchivedHit<T> {
    /// The archive in a value whose bytes were checked.
    fn of(hit: Hit) -> io::Result<Self> {
        let about = About {
            fingerprint: hit.fingerprint(),
            bucket: hit.bucket(),
        };
        let (written, value) = (hit.written(), hit.value_range());
        let archive = match &hit.held {
            Held::Mapped { segment, start, .. } => {
                let start = start.saturating_add(value.start as u64);
                let len = value.len();
                let archive = Yoke::try_attach_to_cart(Arc::clone(segment), |segment| {
                    access::<T>(segment.published(start, len).unwrap_or_default())
                })?;
                HeldArchive::Mapped {
                    archive,
                    start,
                    len,
                }
            }
            Held::Copied(_) | Held::Unstored(_) | Held::Unread(_) => {
                HeldArchive::Owned(OwnedArchive::from_bytes(hit.bytes()?)?)
            }
        };
        Ok(Self {
            archive,
            about,
            written,
        })
    }

    fn unstored(archive: OwnedArchive<T>, about: About) -> Self {
        Self {
            archive: HeldArchive::Owned(archive),
            about,
            written: time_of(crate::clock::now()),
        }
    }

    /// The bytes of the archive.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.archive {
            HeldArchive::Mapped {
                archive,
                start,
                len,
            } => {
                let bytes = archive.backing_cart().published(*start, *len);
                bytes.unwrap_or_default()
            }
            HeldArchive::Owned(archive) => archive.as_bytes(),
        }
    }

    /// A copy with memory of its own, which is checked again.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidData`] if the bytes are no archive any more: somebody broke the promise of
    /// [`Cache::open_mapped`].
    pub fn to_owned(&self) -> io::Result<OwnedArchive<T>> {
        OwnedArchive::from_bytes(self.as_bytes())
    }

    /// Whether the archive is borrowed from a mapping.
    pub fn is_mapped(&self) -> bool {
        matches!(self.archive, HeldArchive::Mapped { .. })
    }

    /// The bucket in which it was inserted.
    pub fn bucket(&self) -> u16 {
        self.about.bucket
    }

    /// When it was inserted, to the minute.
    pub fn written(&self) -> SystemTime {
        self.written
    }
}

impl<T: StoredArchive> Deref for ArchivedHit<T> {
    type Target = T::Archived;

    #[inline]
    fn deref(&self) -> &T::Archived {
        match &self.archive {
            HeldArchive::Mapped { archive, .. } => archive.get(),
            HeldArchive::Owned(archive) => archive,
        }
    }
}

impl<T: StoredArchive> fmt::Debug for ArchivedHit<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArchivedHit")
            .field("bytes", &self.as_bytes().len())
            .finish_non_exhaustive()
    }
}

/// The fingerprint of the archives of a type.
fn layout_of<T: StoredArchive>() -> u64 {
    let numbers = [
        T::FINGERPRINT,
        size_of::<T::Archived>() as u64,
        align_of::<T::Archived>() as u64,
        layout_of_sample(),
    ];
    check::of(numbers.map(u64::to_le_bytes).as_flattened())
}

/// What the rkyv of this program makes of a sample.
fn layout_of_sample() -> u64 {
    static LAYOUT: OnceLock<u64> = OnceLock::new();
    *LAYOUT.get_or_init(|| {
        let texts = ["short", "longer than what lies in the place itself"].map(str::to_owned);
        let sample = (
            (1u16, 2usize, 3u64, 4i128, 5.5f32, 'x'),
            texts,
            vec![Some(6u32), None],
            Some(Box::new(7u64)),
        );
        // Memory ends before this fails, and then the fingerprint is one that no other program has.
        let archive = rkyv::to_bytes::<Error>(&sample);
        archive.map_or(0, |bytes| check::of(&bytes))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_is_archived_as_it_always_was() {
        // If this fails, the rkyv of this build makes other archives than before. Then older entries are misses, which is
        // right: put in the new number.
        assert_eq!(format!("{:016x}", layout_of_sample()), "b943dde1855fc069");
    }
}
