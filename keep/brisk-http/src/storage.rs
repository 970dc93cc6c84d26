use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use brisk_cache::{About, Cache, Hit, Stored, fingerprint};
use smallvec::SmallVec;

use crate::body_name::BodyName;
use crate::target::Target;
use crate::variants::Variants;

/// Where an [`Engine`](crate::Engine) keeps policies and bodies.
///
/// Each call stands alone, and several processes may call at once. What is read may be older than what another one
/// wrote, but it is whole: an engine uses a body only with a policy that names it.
pub trait Storage {
    /// What was found.
    type Value: StoredBytes;

    /// The [`Variants`] of a URL.
    ///
    /// # Errors
    ///
    /// Those of the system. Damage is a miss.
    fn policies(&self, key: &str) -> io::Result<Option<Self::Value>>;

    /// Stores the [`Variants`] of a URL in place of those before.
    ///
    /// # Errors
    ///
    /// Those of the system.
    fn put_policies(&self, key: &str, variants: &[u8]) -> io::Result<()>;

    /// Like [`put_policies`](Self::put_policies), if those of the URL are still what was found `before`, or if it still has
    /// none. Returns whether they were. Between a look and this, nothing that another one stored is lost.
    ///
    /// # Errors
    ///
    /// Those of the system.
    fn replace_policies(
        &self,
        key: &str,
        before: Option<&Self::Value>,
        variants: &[u8],
    ) -> io::Result<bool>;

    /// Removes the [`Variants`] of a URL. When this returns, no process finds them any more.
    ///
    /// # Errors
    ///
    /// Those of the system.
    fn remove_policies(&self, key: &str) -> io::Result<()>;

    /// A body of a URL.
    ///
    /// # Errors
    ///
    /// Those of the system. Damage is a miss.
    fn body(&self, key: &str, name: &BodyName) -> io::Result<Option<Self::Value>>;

    /// Whether what [`body`](Self::body) has found can be the body of this name: by default, if it has as many bytes. A
    /// storage that has something in place of a body, which it was made of, knows better.
    fn fits(&self, found: &Self::Value, name: &BodyName) -> bool {
        found.len() as u64 == name.len()
    }

    /// Whether what [`body`](Self::body) has found may be damaged all the same, because its reader checks it part by part:
    /// by default, if it has more than 64 KiB. Other damage is a miss.
    fn is_checked_by_reader(&self, found: &Self::Value) -> bool {
        found.len() > CHECKED_AT_ONCE
    }

    /// Stores a body of a URL.
    ///
    /// # Errors
    ///
    /// Those of the system.
    fn put_body(&self, key: &str, name: &BodyName, body: &[u8]) -> io::Result<()>;

    /// Removes a body of a URL, which no policy names any more.
    ///
    /// # Errors
    ///
    /// Those of the system.
    fn remove_body(&self, key: &str, name: &BodyName) -> io::Result<()>;
}

/// Up to this length, a body that is damaged is a miss. A longer one is checked part by part, when it is read.
pub(crate) const CHECKED_AT_ONCE: usize = 64 * 1024;

/// Bytes that were found in a [`Storage`]. They stay as they are while this lives.
pub trait StoredBytes {
    /// Their number. It is known without a look at them.
    fn len(&self) -> usize;

    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidData`] if they are damaged. Otherwise those of the system.
    fn bytes(&self) -> io::Result<&[u8]>;
}

impl StoredBytes for Arc<[u8]> {
    fn len(&self) -> usize {
        <[u8]>::len(self)
    }

    fn bytes(&self) -> io::Result<&[u8]> {
        Ok(self)
    }
}

impl StoredBytes for Hit {
    fn len(&self) -> usize {
        Hit::len(self)
    }

    fn bytes(&self) -> io::Result<&[u8]> {
        Hit::bytes(self)
    }
}

/// A storage in the memory of this process, without a limit.
#[derive(Debug, Default)]
pub struct MemoryStorage {
    values: Mutex<HashMap<Vec<u8>, Arc<[u8]>>>,
}

impl MemoryStorage {
    fn values(&self) -> std::sync::MutexGuard<'_, HashMap<Vec<u8>, Arc<[u8]>>> {
        // Each change is one insertion or removal, so a panic leaves the map whole.
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.values().len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Storage for MemoryStorage {
    type Value = Arc<[u8]>;

    fn policies(&self, key: &str) -> io::Result<Option<Arc<[u8]>>> {
        Ok(self.values().get(&*policies_key(key)).cloned())
    }

    fn put_policies(&self, key: &str, variants: &[u8]) -> io::Result<()> {
        self.values()
            .insert(policies_key(key).into_vec(), variants.into());
        Ok(())
    }

    fn replace_policies(
        &self,
        key: &str,
        before: Option<&Arc<[u8]>>,
        variants: &[u8],
    ) -> io::Result<bool> {
        let key = policies_key(key);
        let mut values = self.values();
        let is_same = match (values.get(&*key), before) {
            (Some(there), Some(before)) => Arc::ptr_eq(there, before),
            (there, before) => there.is_none() && before.is_none(),
        };
        if is_same {
            values.insert(key.into_vec(), variants.into());
        }
        Ok(is_same)
    }

    fn remove_policies(&self, key: &str) -> io::Result<()> {
        self.values().remove(&*policies_key(key));
        Ok(())
    }

    fn body(&self, key: &str, name: &BodyName) -> io::Result<Option<Arc<[u8]>>> {
        Ok(self.values().get(&*body_key(key, name)).cloned())
    }

    fn put_body(&self, key: &str, name: &BodyName, body: &[u8]) -> io::Result<()> {
        self.values()
            .insert(body_key(key, name).into_vec(), body.into());
        Ok(())
    }

    fn remove_body(&self, key: &str, name: &BodyName) -> io::Result<()> {
        self.values().remove(&*body_key(key, name));
        Ok(())
    }
}

pub(crate) const BODY_FINGERPRINT: u64 = fingerprint("brisk-http body: bytes");

/// In a directory, for all processes. A hit borrows from it.
impl Storage for Cache {
    type Value = Hit;

    fn policies(&self, key: &str) -> io::Result<Option<Hit>> {
        let hit = self.get(&policies_key(key))?;
        Ok(hit.filter(|hit| hit.fingerprint() == Variants::FINGERPRINT))
    }

    fn put_policies(&self, key: &str, variants: &[u8]) -> io::Result<()> {
        self.insert_stored::<Variants<'static>>(&policies_key(key), variants, 0)
    }

    fn replace_policies(
        &self,
        key: &str,
        before: Option<&Hit>,
        variants: &[u8],
    ) -> io::Result<bool> {
        let about = About {
            fingerprint: Variants::FINGERPRINT,
            bucket: 0,
        };
        self.insert_if_unchanged(&policies_key(key), before, variants, about)
    }

    fn remove_policies(&self, key: &str) -> io::Result<()> {
        self.remove(&policies_key(key)).map(|_was_there| ())
    }

    fn body(&self, key: &str, name: &BodyName) -> io::Result<Option<Hit>> {
        let hit = self.get_unread(&body_key(key, name))?;
        Ok(hit.filter(|hit| hit.fingerprint() == BODY_FINGERPRINT))
    }

    fn put_body(&self, key: &str, name: &BodyName, body: &[u8]) -> io::Result<()> {
        let about = About {
            fingerprint: BODY_FINGERPRINT,
            bucket: 0,
        };
        self.insert(&body_key(key, name), body, about)
    }

    fn remove_body(&self, key: &str, name: &BodyName) -> io::Result<()> {
        self.remove(&body_key(key, name)).map(|_was_there| ())
    }
}

impl<S: Storage + ?Sized> Storage for Arc<S> {
    type Value = S::Value;

    fn policies(&self, key: &str) -> io::Result<Option<S::Value>> {
        (**self).policies(key)
    }

    fn put_policies(&self, key: &str, variants: &[u8]) -> io::Result<()> {
        (**self).put_policies(key, variants)
    }

    fn replace_policies(
        &self,
        key: &str,
        before: Option<&S::Value>,
        variants: &[u8],
    ) -> io::Result<bool> {
        (**self).replace_policies(key, before, variants)
    }

    fn remove_policies(&self, key: &str) -> io::Result<()> {
        (**self).remove_policies(key)
    }

    fn body(&self, key: &str, name: &BodyName) -> io::Result<Option<S::Value>> {
        (**self).body(key, name)
    }

    fn fits(&self, found: &S::Value, name: &BodyName) -> bool {
        (**self).fits(found, name)
    }

    fn is_checked_by_reader(&self, found: &S::Value) -> bool {
        (**self).is_checked_by_reader(found)
    }

    fn put_body(&self, key: &str, name: &BodyName, body: &[u8]) -> io::Result<()> {
        (**self).put_body(key, name, body)
    }

    fn remove_body(&self, key: &str, name: &BodyName) -> io::Result<()> {
        (**self).remove_body(key, name)
    }
}

/// The key under which a cache has the [`Variants`] of a URL, and that of one of its bodies. None if it is no URL of `http`
/// or `https`.
///
/// For tools that look into a cache. Programs ask an [`Engine`](crate::Engine).
pub fn stored_keys(url: &str, body: &BodyName) -> Option<(Vec<u8>, Vec<u8>)> {
    let target = Target::parse(url)?;
    Some((
        policies_key(target.as_str()).into_vec(),
        body_key(target.as_str(), body).into_vec(),
    ))
}

/// A key, on the stack unless it is long.
pub(crate) type Key = SmallVec<[u8; 256]>;

pub(crate) fn key_of_parts(parts: &[&[u8]]) -> Key {
    let mut key = Key::new();
    parts.iter().for_each(|part| key.extend_from_slice(part));
    key
}

/// URLs have no zero byte, so no key is that of another value.
pub(crate) fn policies_key(key: &str) -> Key {
    key_of_parts(&[b"http\0", key.as_bytes()])
}

pub(crate) fn body_key(key: &str, name: &BodyName) -> Key {
    key_of_parts(&[b"body\0", key.as_bytes(), b"\0", &name.to_bytes()])
}
