use std::fmt;
use std::io;
use std::marker::PhantomData;

use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::{About, Cache, FlatTable, Hit, Layout, ValueParts};

/// A layout of values that a program can look at without a parse and without a copy.
///
/// A value that was inserted with another fingerprint is a miss, so older and newer programs share a directory.
/// [`FlatTable`](crate::FlatTable) is a layout to build on. Its fingerprint is that of its rows, which derive
/// [`Layout`](crate::Layout): a row with other fields, or with its fields in another order, is a miss.
///
/// # Example
///
/// ```
/// use brisk_cache::{Cache, CacheOptions, FlatTable, FlatTableBuilder, Layout, Text};
/// use zerocopy::little_endian::U64;
/// use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
///
/// #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Layout, Unaligned)]
/// #[repr(C)]
/// struct Version {
///     name: Text,
///     size: U64,
/// }
///
/// type Versions = FlatTable<'static, Version>;
///
/// # fn main() -> std::io::Result<()> {
/// # let home = tempfile::tempdir()?;
/// # let cache = Cache::open(&home.path().join("cache"), CacheOptions::new())?;
/// let mut table = FlatTableBuilder::new();
/// for (name, size) in [("1.0", 10), ("1.1", 11)] {
///     let name = table.text(name)?;
///     table.row(Version { name, size: size.into() })?;
/// }
/// cache.insert_stored::<Versions>(b"package", &table.finish_sorted(|row| row.name)?, 0)?;
/// let hit = cache.get_stored::<Versions>(b"package")?.expect("it was inserted");
/// let versions = hit.view()?;
/// let found = versions.find("1.1", |row| row.name)?.expect("it is there");
/// assert_eq!(found.size, 11);
/// # Ok(())
/// # }
/// ```
///
/// A layout of one's own, and a meaning that the types of the fields do not say:
///
/// ```
/// use brisk_cache::{FlatTable, Layout, Stored, fingerprint_of};
/// # use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
/// # #[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Layout, Unaligned)]
/// # #[repr(C)]
/// # struct Version { size: zerocopy::little_endian::U64 }
///
/// struct Versions;
///
/// impl Stored for Versions {
///     const FINGERPRINT: u64 = fingerprint_of::<FlatTable<Version>>("sizes in KiB");
///     type View<'a> = FlatTable<'a, Version>;
///
///     fn view(bytes: &[u8]) -> Option<Self::View<'_>> {
///         FlatTable::view(bytes.into()).ok()?
///     }
/// }
/// ```
pub trait Stored {
    /// A number that changes with the layout: see [`fingerprint_of`](crate::fingerprint_of), and [`fingerprint`](crate::fingerprint()) for bytes that
    /// are of no type.
    const FINGERPRINT: u64;

    /// A look at a value.
    type View<'a>;

    /// The view of a value. None if the bytes are no such value. It takes the same time for values of all lengths.
    fn view(bytes: &[u8]) -> Option<Self::View<'_>>;

    /// The view of a value that may not be checked yet. By default it is that of the whole value, which this checks.
    ///
    /// A layout of long values gives a view that asks for parts when it is looked at, as a
    /// [`FlatTable`](crate::FlatTable) does. Then a look checks only the chunks that it touches, and `view` is
    /// `Self::view_parts(bytes.into()).ok()?`.
    ///
    /// # Errors
    ///
    /// As [`Hit::part`].
    fn view_parts(value: ValueParts<'_>) -> io::Result<Option<Self::View<'_>>> {
        value.all().map(Self::view)
    }
}

impl<R> Stored for FlatTable<'static, R>
where
    R: FromBytes + Immutable + KnownLayout + Layout + Unaligned + 'static,
{
    const FINGERPRINT: u64 = Self::LAYOUT;
    type View<'a> = FlatTable<'a, R>;

    fn view(bytes: &[u8]) -> Option<FlatTable<'_, R>> {
        Self::view_parts(bytes.into()).ok()?
    }

    fn view_parts(value: ValueParts<'_>) -> io::Result<Option<FlatTable<'_, R>>> {
        FlatTable::view(value)
    }
}

/// A value of a known layout that was found.
pub struct StoredHit<T: Stored> {
    hit: Hit,
    layout: PhantomData<fn() -> T>,
}

impl<T: Stored> StoredHit<T> {
    /// A look at the value. A long value is checked as a whole when this is first called, unless its layout looks at
    /// [parts](Stored::view_parts).
    ///
    /// # Errors
    ///
    /// As [`Hit::part`], and [`io::ErrorKind::InvalidData`] if the bytes are no such value.
    pub fn view(&self) -> io::Result<T::View<'_>> {
        T::view_parts(self.hit.parts())?.ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "a cached value of {} bytes is not of the layout {:016x}, with which it was inserted; insert it again",
                    self.hit.len(),
                    T::FINGERPRINT
                ),
            )
        })
    }

    /// The bytes.
    pub fn hit(&self) -> &Hit {
        &self.hit
    }
}

impl<T: Stored> fmt::Debug for StoredHit<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StoredHit").field(&self.hit).finish()
    }
}

impl Cache {
    /// Looks for a value of a layout. One of another layout is a miss, and [counted](crate::CacheCounts::unknown).
    ///
    /// # Errors
    ///
    /// As [`Cache::get`].
    pub fn get_stored<T: Stored>(&self, key: &[u8]) -> io::Result<Option<StoredHit<T>>> {
        let Some(hit) = self.get(key)? else {
            return Ok(None);
        };
        if hit.fingerprint() != T::FINGERPRINT {
            self.store.counters.unknown.add(1);
            return Ok(None);
        }
        Ok(Some(StoredHit {
            hit,
            layout: PhantomData,
        }))
    }

    /// Stores a value of a layout.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] if the bytes are no such value. Otherwise as [`Cache::insert`].
    pub fn insert_stored<T: Stored>(
        &self,
        key: &[u8],
        value: &[u8],
        bucket: u16,
    ) -> io::Result<()> {
        if T::view(value).is_none() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "the value of {} bytes is not of the layout {:016x}; build it as that layout says",
                    value.len(),
                    T::FINGERPRINT
                ),
            ));
        }
        let about = About {
            fingerprint: T::FINGERPRINT,
            bucket,
        };
        self.insert(key, value, about)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CacheOptions, fingerprint};

    struct Old;
    struct New;

    impl Stored for Old {
        const FINGERPRINT: u64 = fingerprint("one byte");
        type View<'a> = u8;
        fn view(bytes: &[u8]) -> Option<u8> {
            bytes.first().copied()
        }
    }

    impl Stored for New {
        const FINGERPRINT: u64 = fingerprint("eight bytes");
        type View<'a> = u64;
        fn view(bytes: &[u8]) -> Option<u64> {
            bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
        }
    }

    /// Only the names say which number is which.
    #[test]
    fn a_table_whose_rows_have_their_fields_in_another_order_is_a_miss() {
        use crate::FlatTableBuilder;
        use zerocopy::IntoBytes;
        use zerocopy::little_endian::U32;

        #[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Layout, Unaligned)]
        #[repr(C)]
        struct Before {
            width: U32,
            height: U32,
        }

        #[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Layout, Unaligned)]
        #[repr(C)]
        struct After {
            height: U32,
            width: U32,
        }

        let home = tempfile::tempdir().unwrap();
        let cache = Cache::open(home.path(), CacheOptions::new()).unwrap();
        let mut table = FlatTableBuilder::new();
        let (width, height) = (2.into(), 3.into());
        table.row(Before { width, height }).unwrap();
        cache
            .insert_stored::<FlatTable<Before>>(b"key", &table.finish(), 0)
            .unwrap();
        let found = cache.get_stored::<FlatTable<Before>>(b"key").unwrap();
        let found = found.unwrap();
        let row = found.view().unwrap().row(0).unwrap().unwrap();
        assert_eq!((row.width.get(), row.height.get()), (2, 3));
        assert!(
            cache
                .get_stored::<FlatTable<After>>(b"key")
                .unwrap()
                .is_none()
        );
        assert_eq!(cache.counts().unknown, 1);
    }

    #[test]
    fn a_value_of_another_layout_is_a_counted_miss() {
        let home = tempfile::tempdir().unwrap();
        let cache = Cache::open(home.path(), CacheOptions::new()).unwrap();
        cache.insert_stored::<Old>(b"key", &[7], 0).unwrap();
        assert!(cache.get_stored::<New>(b"key").unwrap().is_none());
        assert_eq!(cache.counts().unknown, 1);
        assert_eq!(
            cache
                .get_stored::<Old>(b"key")
                .unwrap()
                .unwrap()
                .view()
                .unwrap(),
            7
        );
        let e = cache.insert_stored::<New>(b"key", &[7], 0).unwrap_err();
        assert_eq!(
            e.to_string(),
            format!(
                "the value of 1 bytes is not of the layout {:016x}; build it as that layout says",
                New::FINGERPRINT
            )
        );
        // Inserted by hand under the fingerprint of another layout.
        let about = About {
            fingerprint: New::FINGERPRINT,
            bucket: 0,
        };
        cache.insert(b"key", &[7], about).unwrap();
        let hit = cache.get_stored::<New>(b"key").unwrap().unwrap();
        assert_eq!(hit.view().unwrap_err().kind(), io::ErrorKind::InvalidData);
        // The number is that of the published algorithm.
        assert_eq!(fingerprint("a"), 0xaf63_dc4c_8601_ec8c);
    }
}
