//! A body that is too long for memory. It goes to the cache's directory while it comes.

use std::io;
use std::mem;

use brisk_cache::{Cache, Pending};
use bytes::Bytes;
use tokio::task::spawn_blocking;

/// So many bytes are written at a time.
const BATCH: usize = 256 * 1024;

/// A value that is being written, by threads that may wait for the disk. Dropped, it leaves nothing.
pub(crate) struct LongBody {
    /// None while a thread writes, and after a failure: then the body cannot be stored any more.
    pending: Option<Pending>,
    /// What has come and is not written.
    batch: Vec<Bytes>,
    batched: usize,
}

impl LongBody {
    /// Begins with what has come so far.
    pub(crate) fn begin(
        cache: &Cache,
        expected_len: Option<u64>,
        come: Vec<Bytes>,
    ) -> io::Result<Self> {
        let batched = come.iter().map(Bytes::len).sum();
        Ok(Self {
            pending: Some(cache.pending(expected_len)?),
            batch: come,
            batched,
        })
    }

    /// Adds bytes. If this is dropped while it waits, the body cannot be stored any more.
    pub(crate) async fn push(&mut self, bytes: Bytes) -> io::Result<()> {
        self.batched = self.batched.saturating_add(bytes.len());
        self.batch.push(bytes);
        match self.batched >= BATCH {
            true => self.write().await,
            false => Ok(()),
        }
    }

    async fn write(&mut self) -> io::Result<()> {
        let lost = || io::Error::other("a thread that writes a body ended");
        let mut pending = self.pending.take().ok_or_else(lost)?;
        let batch = mem::take(&mut self.batch);
        self.batched = 0;
        let writing = spawn_blocking(move || {
            for bytes in batch {
                pending.write(&bytes)?;
            }
            io::Result::Ok(pending)
        });
        self.pending = Some(writing.await.map_err(|_| lost())??);
        Ok(())
    }

    /// The whole value, which is found by nobody yet.
    pub(crate) async fn end(mut self) -> io::Result<Pending> {
        self.write().await?;
        self.pending.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}
