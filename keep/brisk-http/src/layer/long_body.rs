//! A body that is too long for memory. It goes to the cache's directory while it comes.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use brisk_cache::{Cache, Pending};
use bytes::Bytes;
use tokio::task::spawn_blocking;

/// So many bytes are written at a time, or a multiple. The kernel keeps what is written at once in large pages, and sends
/// those in a fraction of the time that many small ones take. Pieces come from a connection in any length.
const BATCH: usize = 256 * 1024;

fn lost() -> io::Error {
    io::Error::other("a thread that writes a body ended")
}

/// A value that is being written, by threads that may wait for the disk. Dropped, it leaves nothing.
pub(crate) struct LongBody {
    /// None while a thread writes, and after a failure: then the body cannot be stored any more.
    pending: Option<Pending>,
    /// What has come and is not written.
    batch: VecDeque<Bytes>,
    batched: usize,
}

impl LongBody {
    /// Begins with what has come so far.
    pub(crate) async fn begin(
        cache: Arc<Cache>,
        expected_len: Option<u64>,
        come: Vec<Bytes>,
    ) -> io::Result<Self> {
        let batched = come.iter().map(Bytes::len).sum();
        // Making room for it may evict.
        let making = spawn_blocking(move || cache.pending(expected_len));
        Ok(Self {
            pending: Some(making.await.map_err(|_| lost())??),
            batch: come.into(),
            batched,
        })
    }

    /// Adds bytes. If this is dropped while it waits, the body cannot be stored any more.
    pub(crate) async fn push(&mut self, bytes: Bytes) -> io::Result<()> {
        self.batched = self.batched.saturating_add(bytes.len());
        self.batch.push_back(bytes);
        match self.batched / BATCH {
            0 => Ok(()),
            batches => self.write(batches.saturating_mul(BATCH)).await,
        }
    }

    /// Takes so many bytes of what has come, in one piece.
    fn take(&mut self, len: usize) -> Vec<u8> {
        let mut taken = Vec::with_capacity(len);
        while let Some(first) = self.batch.front_mut() {
            let left = len.saturating_sub(taken.len());
            if first.len() > left {
                taken.extend_from_slice(&first.split_to(left));
                break;
            }
            taken.extend_from_slice(first);
            self.batch.pop_front();
        }
        self.batched = self.batched.saturating_sub(taken.len());
        taken
    }

    async fn write(&mut self, len: usize) -> io::Result<()> {
        let mut pending = self.pending.take().ok_or_else(lost)?;
        let bytes = self.take(len);
        let writing = spawn_blocking(move || {
            pending.write(&bytes)?;
            io::Result::Ok(pending)
        });
        self.pending = Some(writing.await.map_err(|_| lost())??);
        Ok(())
    }

    /// The whole value, which is found by nobody yet.
    pub(crate) async fn end(mut self) -> io::Result<Pending> {
        self.write(self.batched).await?;
        self.pending.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}
