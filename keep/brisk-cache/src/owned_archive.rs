use std::fmt;
use std::io;
use std::ops::Deref;

use rkyv::api::high::{HighDeserializer, HighSerializer, HighValidator};
use rkyv::bytecheck::CheckBytes;
use rkyv::rancor::Error;
use rkyv::ser::allocator::ArenaHandle;
use rkyv::util::AlignedVec;
use rkyv::{Archive, Deserialize, Portable, Serialize};
use yoke::Yoke;

/// A type whose archive, as the crate rkyv makes it, is a value of a cache.
///
/// Everything but the fingerprint comes from the derives of rkyv:
///
/// ```
/// use brisk_cache::{Layout, StoredArchive};
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
/// ```
pub trait StoredArchive:
    Archive<Archived: Portable + for<'a> CheckBytes<HighValidator<'a, Error>> + 'static>
    + for<'a> Serialize<HighSerializer<AlignedVec, ArenaHandle<'a>, Error>>
{
    /// A number that changes with the fields of the type and with what they mean: see [`Layout`](crate::Layout) and
    /// [`fingerprint_of`](crate::fingerprint_of). What else the layout depends on, the cache adds itself: see
    /// [`Archives`](crate::Archives).
    const FINGERPRINT: u64;
}

/// The largest alignment that the bytes of an archive have in memory.
const ALIGNMENT: usize = 16;

/// An archive with memory of its own, aligned, and checked once. It derefs to the archived type.
pub struct OwnedArchive<T: StoredArchive> {
    archive: Yoke<&'static T::Archived, Box<AlignedVec<ALIGNMENT>>>,
}

impl<T: StoredArchive> OwnedArchive<T> {
    /// The archive of a value.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] if the type refuses to be serialized.
    pub fn new(value: &T) -> io::Result<Self> {
        let bytes = rkyv::to_bytes::<Error>(value).map_err(|e| {
            let what = format!("a value cannot be archived: {e}; mend its type's Serialize");
            io::Error::new(io::ErrorKind::InvalidInput, what)
        })?;
        Self::of(bytes)
    }

    /// The archive that has these bytes, which are copied and checked.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidData`] if they are no archive of the type.
    pub fn from_bytes(bytes: &[u8]) -> io::Result<Self> {
        let mut aligned = AlignedVec::with_capacity(bytes.len());
        aligned.extend_from_slice(bytes);
        Self::of(aligned)
    }

    fn of(bytes: AlignedVec<ALIGNMENT>) -> io::Result<Self> {
        let archive = Yoke::try_attach_to_cart(Box::new(bytes), |bytes| access::<T>(bytes))?;
        Ok(Self { archive })
    }

    /// The bytes of the archive.
    pub fn as_bytes(&self) -> &[u8] {
        self.archive.backing_cart()
    }

    /// The value again.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidData`] if the type refuses what it is made of.
    pub fn to_value(&self) -> io::Result<T>
    where
        T::Archived: Deserialize<T, HighDeserializer<Error>>,
    {
        rkyv::deserialize::<T, Error>(&**self).map_err(|e| no_archive(self.as_bytes(), &e))
    }
}

/// The archive that is in these bytes, if all of it is right.
pub(crate) fn access<T: StoredArchive>(bytes: &[u8]) -> io::Result<&T::Archived> {
    const {
        assert!(
            align_of::<T::Archived>() <= ALIGNMENT,
            "the archived type has a larger alignment than 16"
        );
    }
    rkyv::access::<T::Archived, Error>(bytes).map_err(|e| no_archive(bytes, &e))
}

fn no_archive(bytes: &[u8], e: &Error) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!(
            "{} bytes are no archive of the wanted type: {e}; archive the value again",
            bytes.len()
        ),
    )
}

impl<T: StoredArchive> Deref for OwnedArchive<T> {
    type Target = T::Archived;

    #[inline]
    fn deref(&self) -> &T::Archived {
        self.archive.get()
    }
}

impl<T: StoredArchive> fmt::Debug for OwnedArchive<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedArchive")
            .field("bytes", &self.as_bytes().len())
            .finish_non_exhaustive()
    }
}
