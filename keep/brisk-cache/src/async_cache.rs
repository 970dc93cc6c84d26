use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::spawn_blocking;

use crate::flight::{self, Flight, Inside, Queued};
use crate::lookup::Patience;
use crate::{About, Cache, Hit, Pending};

/// The longest pause between two looks whether another has finished its fetch.
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

/// A cache for programs that run on tokio.
///
/// A hit is answered at once, by the task that asks. Only what may wait goes to a thread that may wait: opening a file
/// for the first time, writing, and whatever needs a lock. A task that waits for another's fetch sleeps, and keeps no thread.
///
/// A copy of this is cheap, and all are one cache. It needs a runtime with a timer.
///
/// # Example
///
/// ```
/// use brisk_cache::{About, AsyncCache, Cache, CacheOptions};
///
/// # async fn download(_: &str) -> std::io::Result<Vec<u8>> { Ok(b"a page".to_vec()) }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// # let home = tempfile::tempdir()?;
/// # let directory = home.path().join("pages");
/// let cache = Cache::open(&directory, CacheOptions::new())?;
/// let cache = AsyncCache::new(cache);
/// let url = "https://example.org/";
/// let hit = cache.get_or_insert_with(url.as_bytes(), About::default(), || download(url)).await?;
/// assert_eq!(hit.bytes()?, b"a page");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct AsyncCache {
    cache: Arc<Cache>,
}

/// A task that waits for another's fetch.
struct Waiting {
    queued: Queued,
    started: Instant,
    pause: Duration,
}

impl AsyncCache {
    /// The same cache, for tasks.
    pub fn new(cache: impl Into<Arc<Cache>>) -> Self {
        Self {
            cache: cache.into(),
        }
    }

    /// The cache, for calls that may wait.
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// Looks for the value of a key: see [`Cache::get`].
    ///
    /// # Errors
    ///
    /// As [`Cache::get`].
    pub async fn get(&self, key: &[u8]) -> io::Result<Option<Hit>> {
        match self.cache.get_at_once(key) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                let key = key.to_vec();
                self.wait_for(move |cache| {
                    // The next one is to be answered at once.
                    cache.store.process()?;
                    cache.get(&key)
                })
                .await
            }
            answer => answer,
        }
    }

    /// Stores a value under a key: see [`Cache::insert`].
    ///
    /// The value is stored even if the future is dropped, once it was polled.
    ///
    /// # Errors
    ///
    /// As [`Cache::insert`].
    pub async fn insert(
        &self,
        key: &[u8],
        value: impl AsRef<[u8]> + Send + 'static,
        about: About,
    ) -> io::Result<()> {
        let key = key.to_vec();
        self.wait_for(move |cache| cache.insert(&key, value.as_ref(), about))
            .await
    }

    /// Begins a value that is stored while it arrives: see [`Cache::pending`].
    ///
    /// A task may call [`Pending::write`](crate::Pending::write) itself: it copies the bytes to the kernel, and opens one
    /// file when the value has got longer than 64 KiB. Only if the disk is slower than what arrives, the kernel lets it
    /// wait. On filesystems whose files always have names, it waits for the lock of the cache, too, when it opens the file.
    ///
    /// # Errors
    ///
    /// As [`Cache::pending`].
    pub async fn pending(&self, expected_len: Option<u64>) -> io::Result<Pending> {
        match expected_len {
            None => self.cache.pending(None),
            some => self.wait_for(move |cache| cache.pending(some)).await,
        }
    }

    /// Stores a value that has arrived: see [`Pending::finish`](crate::Pending::finish). It may have come from another
    /// handle.
    ///
    /// The value is stored even if the future is dropped, once it was polled.
    ///
    /// # Errors
    ///
    /// As [`Pending::finish`](crate::Pending::finish).
    pub async fn finish(&self, pending: Pending, key: &[u8], about: About) -> io::Result<()> {
        let key = key.to_vec();
        self.wait_for(move |_| pending.finish(&key, about)).await
    }

    /// Removes the value of a key: see [`Cache::remove`].
    ///
    /// # Errors
    ///
    /// As [`Cache::remove`].
    pub async fn remove(&self, key: &[u8]) -> io::Result<bool> {
        let key = key.to_vec();
        self.wait_for(move |cache| cache.remove(&key)).await
    }

    /// Looks for the value of a key. If there is none, `fetch` makes one, and it is stored: see
    /// [`Cache::get_or_insert_with`].
    ///
    /// If the future is dropped during the fetch, the fetch ends, and the next one goes on at once. If it is dropped
    /// later, the value is stored all the same.
    ///
    /// # Errors
    ///
    /// Those of `fetch`, and of [`Cache::get`].
    pub async fn get_or_insert_with<F, E>(
        &self,
        key: &[u8],
        about: About,
        fetch: impl FnOnce() -> F,
    ) -> Result<Hit, E>
    where
        F: Future<Output = Result<Vec<u8>, E>>,
        E: From<io::Error>,
    {
        if let Some(hit) = self.get(key).await? {
            return Ok(hit);
        }
        let mut turn = self.queue(key).await?;
        let flight = loop {
            let waiting = match turn {
                Ok(flight) => break flight,
                Err(waiting) => waiting,
            };
            turn = self.wait(key, waiting, true).await?;
            if turn.is_err()
                && let Some(hit) = self.get(key).await?
            {
                return Ok(hit);
            }
        };
        // Another may have fetched it just before this one's turn.
        if let Some(hit) = self.get(key).await? {
            return Ok(hit);
        }
        let value = inside(fetch()).await?;
        let key = key.to_vec();
        let store = move |cache: &Cache| Ok(cache.store_fetched(&key, value, about, flight));
        Ok(self.wait_for(store).await?)
    }

    /// The right to fetch a key, for callers that store what they fetch by themselves. None if another has it, and
    /// `wait` is false. With `wait`, this waits as [`AsyncCache::get_or_insert_with`] does, at most
    /// [`CacheOptions::fetch_wait`](crate::CacheOptions::fetch_wait): then the caller may fetch, though another does, too.
    /// A value that appears does not end this wait, because the caller says what it stores where.
    ///
    /// Another may have fetched it just before. So look again first.
    ///
    /// # Errors
    ///
    /// As [`Cache::get`].
    pub async fn flight(&self, key: &[u8], wait: bool) -> io::Result<Option<Flight>> {
        let mut turn = self.queue(key).await?;
        loop {
            match turn {
                Ok(flight) => return Ok(Some(flight)),
                Err(_) if !wait => return Ok(None),
                Err(waiting) => turn = self.wait(key, waiting, false).await?,
            }
        }
    }

    /// Takes the right to fetch a key, if nobody has it.
    async fn queue(&self, key: &[u8]) -> io::Result<Result<Flight, Waiting>> {
        let key = key.to_vec();
        let turn = self.wait_for(move |cache| {
            let queued = flight::queue(&cache.store, &key)?;
            Ok(queued.try_lock(&cache.store))
        });
        Ok(turn.await?.map_err(|queued| Waiting {
            queued,
            started: Instant::now(),
            pause: Duration::from_micros(100),
        }))
    }

    /// Waits for the right to fetch a key, without a thread. Ends without it when the key has another record, if that
    /// `is_news`.
    async fn wait(
        &self,
        key: &[u8],
        mut waiting: Waiting,
        is_news: bool,
    ) -> io::Result<Result<Flight, Waiting>> {
        loop {
            if is_news {
                let has_news;
                (waiting.queued, has_news) = self.look_for_news(waiting.queued, key).await?;
                if has_news {
                    return Ok(Err(waiting));
                }
            }
            let longest = self.cache.store.options.fetch_wait;
            if Inside::is() || waiting.started.elapsed() >= longest {
                return Ok(Ok(Flight::unasked(&self.cache.store)));
            }
            tokio::time::sleep(waiting.pause).await;
            waiting.pause = (waiting.pause * 2).min(LONGEST_PAUSE);
            // One call that does not wait.
            waiting.queued = match waiting.queued.try_lock(&self.cache.store) {
                Ok(flight) => return Ok(Ok(flight)),
                Err(queued) => queued,
            };
        }
    }

    /// Whether the key has another record than when this was last asked.
    async fn look_for_news(&self, mut queued: Queued, key: &[u8]) -> io::Result<(Queued, bool)> {
        match queued.has_news(&self.cache.store, key, Patience::AtOnce) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                let key = key.to_vec();
                self.wait_for(move |cache| {
                    let news = queued.has_news(&cache.store, &key, Patience::Wait)?;
                    Ok((queued, news))
                })
                .await
            }
            news => Ok((queued, news?)),
        }
    }

    /// Runs what may wait, on a thread that may.
    async fn wait_for<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Cache) -> io::Result<R> + Send + 'static,
    ) -> io::Result<R> {
        let cache = Arc::clone(&self.cache);
        match spawn_blocking(move || work(&cache)).await {
            Ok(done) => done,
            Err(e) => match e.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime is ending.
                Err(e) => Err(io::Error::new(io::ErrorKind::Interrupted, e)),
            },
        }
    }
}

/// A fetch: as long as it runs, the fetches that it makes do not wait for others.
async fn inside<F: Future>(fetch: F) -> F::Output {
    let mut fetch = pin!(fetch);
    poll_fn(|context| {
        let _inside = Inside::enter();
        fetch.as_mut().poll(context)
    })
    .await
}
