use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use brisk_io::UnsharedFile;
use rustix::fs::{FlockOperation, flock};

use crate::directory::unfinished_name;
use crate::lock::{Wait, with_lock};
use crate::random;
use crate::store::Store;

/// A file that is being written, without its final name. It goes when this is dropped, and when its writer is killed.
#[derive(Debug)]
pub(crate) struct Unfinished {
    store: Arc<Store>,
    /// A forked child has it no longer, so it neither writes there nor keeps the lock.
    file: Arc<UnsharedFile>,
    /// None on filesystems whose files have no names until they get one: such a file goes with its writer. Otherwise the
    /// lock of the file says that somebody is still writing.
    name: Option<String>,
}

impl Unfinished {
    /// Makes a file. `number` is that of its name until it is finished.
    pub(crate) fn create(store: &Arc<Store>, number: u64) -> io::Result<Self> {
        let of = |file, name| {
            io::Result::Ok(Self {
                store: Arc::clone(store),
                file: Arc::new(UnsharedFile::new(file)?),
                name,
            })
        };
        if let Some(file) = store.disk.create_unnamed(&store.directory)? {
            return of(file, None);
        }
        with_lock(store, Wait::Bounded, |_| {
            let name = unfinished_name(number);
            let file = store.disk.create(&store.directory, &name)?;
            let made = of(file, Some(name))?;
            // Who removes what was left has the lock on the ledger, so the file is locked before anybody looks.
            flock(made.fd()?, FlockOperation::NonBlockingLockExclusive)?;
            Ok(made)
        })
    }

    pub(crate) fn fd(&self) -> io::Result<BorrowedFd<'_>> {
        self.file
            .get()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// The file, to be read also when this is gone.
    pub(crate) fn file(&self) -> &Arc<UnsharedFile> {
        &self.file
    }

    /// Gives the file its final name.
    pub(crate) fn rename(&mut self, to: &str) -> io::Result<()> {
        let (disk, directory) = (&self.store.disk, &self.store.directory);
        match &self.name {
            Some(name) => disk.rename(directory, name, to)?,
            None => disk.link(directory, self.fd()?, to)?,
        }
        self.name = None;
        Ok(())
    }

    /// Gives the file a name that another file may have, which loses it.
    pub(crate) fn replace(&mut self, to: &str) -> io::Result<()> {
        let store = Arc::clone(&self.store);
        let (disk, directory) = (&store.disk, &store.directory);
        let name = match &self.name {
            Some(name) => name,
            None => {
                // A link cannot take a name from a file.
                let name = unfinished_name(random::number()?);
                disk.link(directory, self.fd()?, &name)?;
                self.name.insert(name)
            }
        };
        disk.rename(directory, name, to)?;
        self.name = None;
        Ok(())
    }

    /// Says which file an error is about.
    pub(crate) fn told(&self, e: io::Error) -> io::Error {
        let name = self.name.as_deref();
        self.store.directory.told(name.unwrap_or("."), e)
    }

    pub(crate) fn reserve(&self, from: u64, to: u64) -> io::Result<()> {
        let reserved = self.store.disk.reserve(self.fd()?, from, to);
        reserved.map_err(|e| self.told(e))
    }

    pub(crate) fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let written = self.store.disk.write(self.fd()?, at, bytes);
        written.map_err(|e| self.told(e))
    }

    /// Copies a range of another one.
    pub(crate) fn copy(&self, from: &Self, range: Range<u64>, at: u64) -> io::Result<()> {
        let copied = self.store.disk.copy(from.fd()?, range, self.fd()?, at);
        copied.map_err(|e| self.told(e))
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        let synced = self.store.disk.sync(self.fd()?);
        synced.map_err(|e| self.told(e))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(name) = &self.name
            && self.file.get().is_some()
        {
            // If this fails, the next one who counts the files removes it.
            self.store.disk.remove(&self.store.directory, name).ok();
        }
    }
}
