//! The cache's directory as a [`Storage`] whose failures never fail a request.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use brisk_cache::{About, Cache, Hit, Pending};

use crate::body_name::BodyName;
use crate::storage::{
    BODY_FINGERPRINT, CHECKED_AT_ONCE, Key, Storage, body_key, key_of_parts, policies_key,
};
use crate::variants::Variants;

/// What is stored beside a body.
const BODY: About = About {
    fingerprint: BODY_FINGERPRINT,
    bucket: 0,
};

/// How long one warning lasts.
const QUIET: Duration = Duration::from_secs(60);

/// Failures of the directory: they are counted, and told once a minute.
pub(crate) struct Troubles {
    count: AtomicU64,
    told: Mutex<Option<Instant>>,
    tell: Box<dyn Fn(&io::Error) + Send + Sync>,
}

impl Troubles {
    pub(crate) fn new(tell: Box<dyn Fn(&io::Error) + Send + Sync>) -> Self {
        Self {
            count: AtomicU64::new(0),
            told: Mutex::new(None),
            tell,
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    pub(crate) fn note(&self, error: &io::Error) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_none_or(|told| told.elapsed() >= QUIET) {
            *told = Some(Instant::now());
            drop(told);
            (self.tell)(error);
        }
    }
}

impl fmt::Debug for Troubles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Troubles").field(&self.count()).finish()
    }
}

/// A directory that misses what it cannot read, and keeps no more than it can write.
#[derive(Debug, Clone)]
pub(crate) struct Directory {
    pub(crate) cache: Arc<Cache>,
    pub(crate) troubles: Arc<Troubles>,
    /// Whether reading ends with [`io::ErrorKind::WouldBlock`] where it would have to wait.
    pub(crate) at_once: bool,
    /// The layout of the tables that are found in place of the bodies that they were made of.
    pub(crate) table: Option<u64>,
}

impl Directory {
    /// What was found, if it has this fingerprint.
    fn found(&self, found: io::Result<Option<Hit>>, fingerprint: u64) -> io::Result<Option<Hit>> {
        match found {
            Ok(hit) => Ok(hit.filter(|hit| hit.fingerprint() == fingerprint)),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(e),
            Err(e) => {
                self.troubles.note(&e);
                Ok(None)
            }
        }
    }

    /// Stores a body that was written while it came. As for [`Storage::put_body`], a failure is returned.
    pub(crate) fn finish_body(
        &self,
        pending: Pending,
        key: &str,
        name: &BodyName,
    ) -> io::Result<()> {
        pending.finish(&body_key(key, name), BODY)
    }

    /// The same directory, with tables of this layout in place of the bodies that they were made of.
    pub(crate) fn with_tables(&self, fingerprint: u64) -> Self {
        Self {
            table: Some(fingerprint),
            ..self.clone()
        }
    }

    /// The table of this directory's layout that was made of a body.
    pub(crate) fn table(&self, key: &str, name: &BodyName) -> io::Result<Option<Hit>> {
        match self.table {
            Some(fingerprint) => {
                let key = table_key(key, name, fingerprint);
                let found = match self.at_once {
                    true => self.cache.get_at_once(&key),
                    false => self.cache.get(&key),
                };
                self.found(found, fingerprint)
            }
            None => Ok(None),
        }
    }

    /// Stores a table that was made of a body.
    pub(crate) fn put_table(&self, key: &str, name: &BodyName, table: &[u8]) -> io::Result<()> {
        let Some(fingerprint) = self.table else {
            return Ok(());
        };
        let about = About {
            fingerprint,
            bucket: 0,
        };
        self.cache
            .insert(&table_key(key, name, fingerprint), table, about)
    }

    fn noted(&self, done: io::Result<()>) {
        if let Err(e) = done {
            self.troubles.note(&e);
        }
    }
}

impl Storage for Directory {
    type Value = Hit;

    fn policies(&self, key: &str) -> io::Result<Option<Hit>> {
        let key = policies_key(key);
        let found = match self.at_once {
            true => self.cache.get_at_once(&key),
            false => self.cache.get(&key),
        };
        self.found(found, <Variants<'_> as brisk_cache::Stored>::FINGERPRINT)
    }

    fn put_policies(&self, key: &str, variants: &[u8]) -> io::Result<()> {
        self.noted(self.cache.put_policies(key, variants));
        Ok(())
    }

    fn replace_policies(
        &self,
        key: &str,
        before: Option<&Hit>,
        variants: &[u8],
    ) -> io::Result<bool> {
        match self.cache.replace_policies(key, before, variants) {
            Err(e) => {
                self.troubles.note(&e);
                Ok(true)
            }
            replaced => replaced,
        }
    }

    fn remove_policies(&self, key: &str) -> io::Result<()> {
        self.noted(self.cache.remove_policies(key));
        Ok(())
    }

    fn body(&self, key: &str, name: &BodyName) -> io::Result<Option<Hit>> {
        if let Some(table) = self.table(key, name)? {
            return Ok(Some(table));
        }
        let key = body_key(key, name);
        // A long one is read piece by piece, when the client takes it.
        let found = match self.at_once {
            true => self.cache.get_unread_at_once(&key),
            false => self.cache.get_unread(&key),
        };
        self.found(found, BODY_FINGERPRINT)
    }

    fn fits(&self, found: &Hit, name: &BodyName) -> bool {
        self.table == Some(found.fingerprint()) || found.len() as u64 == name.len()
    }

    /// The view of a table asks for the parts that it looks at.
    fn is_checked_by_reader(&self, found: &Hit) -> bool {
        self.table == Some(found.fingerprint()) || found.len() > CHECKED_AT_ONCE
    }

    /// The one failure that is returned, so that no policy is written that names what is not there.
    fn put_body(&self, key: &str, name: &BodyName, body: &[u8]) -> io::Result<()> {
        self.cache.insert(&body_key(key, name), body, BODY)
    }

    fn remove_body(&self, key: &str, name: &BodyName) -> io::Result<()> {
        self.noted(self.cache.remove_body(key, name));
        if let Some(fingerprint) = self.table {
            let removed = self.cache.remove(&table_key(key, name, fingerprint));
            self.noted(removed.map(|_was_there| ()));
        }
        Ok(())
    }
}

/// The key of a table of a layout that was made of a body.
fn table_key(key: &str, name: &BodyName, fingerprint: u64) -> Key {
    key_of_parts(&[
        b"table\0",
        key.as_bytes(),
        b"\0",
        &name.to_bytes(),
        &fingerprint.to_le_bytes(),
    ])
}
