//! The fetches that run in this process, one for each URL.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::fetch_error::FetchError;
use super::spool::Spool;
use crate::decision::Failure;
use crate::policy::Policy;
use crate::target::Target;

/// For how long nobody waits for the fetch of a URL whose response could not be shared.
const ALONE_FOR: Duration = Duration::from_secs(30);
/// The most URLs that are remembered so.
const MOST_ALONE: usize = 4096;

/// What came of a fetch, for the requests that wait for it.
#[derive(Debug, Clone)]
pub(crate) enum News {
    /// A response that is to be stored, and may answer others.
    Response(Arc<Fetched>),
    /// The answer is in the cache: look again.
    Stored,
    /// The response answers one request only.
    Alone,
    /// The origin failed. With an error, there is no response.
    Failed(Failure, Option<FetchError>),
}

/// A response whose body comes.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) policy: Policy,
    /// The length of the body, if its head says it.
    pub(crate) len: Option<u64>,
    pub(crate) spool: Arc<Spool>,
}

/// Keeps a fetch going, and hears what came of it. Without any, the fetch ends.
#[derive(Debug)]
pub(crate) struct Interest(watch::Receiver<Option<News>>);

impl Interest {
    /// Waits for what comes of the fetch. None: it ended without an answer.
    pub(crate) async fn news(&mut self) -> Option<News> {
        let news = self.0.wait_for(Option::is_some).await.ok()?;
        news.clone()
    }
}

/// A side of a fetch that tells its [`Interest`]s what came of it.
#[derive(Debug, Clone)]
pub(crate) struct Teller {
    news: watch::Sender<Option<News>>,
}

impl Teller {
    pub(crate) fn new() -> Self {
        Self {
            news: watch::Sender::new(None),
        }
    }

    pub(crate) fn interest(&self) -> Interest {
        Interest(self.news.subscribe())
    }

    pub(crate) fn tell(&self, news: News) {
        self.news.send_replace(Some(news));
    }

    /// Waits until nobody is interested.
    pub(crate) async fn abandoned(&self) {
        self.news.closed().await;
    }
}

/// A part in a fetch.
pub(crate) enum Part {
    /// To carry it out.
    Lead(Registered, Interest),
    /// To wait for it.
    Follow(Interest),
    /// None: this request fetches for itself.
    Alone,
}

#[derive(Debug)]
pub(crate) struct Fetches {
    running: Mutex<HashMap<String, Teller>>,
    alone: Mutex<HashMap<String, Instant>>,
    /// What has come whole and is being stored. For each URL, the one that came last.
    storing: Mutex<HashMap<String, watch::Receiver<()>>>,
    tasks: watch::Sender<usize>,
}

impl Fetches {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            running: Mutex::default(),
            alone: Mutex::default(),
            storing: Mutex::default(),
            tasks: watch::Sender::new(0),
        })
    }

    fn running(&self) -> MutexGuard<'_, HashMap<String, Teller>> {
        // Each change is one insertion or removal.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the fetch of a URL, or begins one.
    pub(crate) fn join(self: &Arc<Self>, key: &str) -> Part {
        let mut running = self.running();
        if let Some(teller) = running.get(key) {
            return Part::Follow(teller.interest());
        }
        if self.is_alone(key) {
            return Part::Alone;
        }
        let registered = self.register(&mut running, key);
        let interest = registered.teller.interest();
        Part::Lead(registered, interest)
    }

    fn storing(&self) -> MutexGuard<'_, HashMap<String, watch::Receiver<()>>> {
        // Each change is one insertion or removal.
        self.storing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that a response of a URL has come and is being stored. To be called before anybody gets the last of its body, so
    /// that a client that has read it finds it stored.
    pub(crate) fn begin_storing(self: &Arc<Self>, key: &str) -> Storing {
        let (end, ended) = watch::channel(());
        self.storing().insert(key.to_owned(), ended);
        Storing {
            fetches: Arc::clone(self),
            key: key.to_owned(),
            end,
        }
    }

    /// What waits until a response that has come is stored. None: none of this URL is being stored.
    pub(crate) fn stored(&self, url: &str) -> Option<impl Future<Output = ()> + Send + use<>> {
        let mut ended = {
            let storing = self.storing();
            if storing.is_empty() {
                return None;
            }
            storing.get(Target::parse(url)?.as_str())?.clone()
        };
        Some(async move { while ended.changed().await.is_ok() {} })
    }

    /// Begins a fetch of a URL, unless one is running.
    pub(crate) fn begin(self: &Arc<Self>, key: &str) -> Option<Registered> {
        let mut running = self.running();
        match running.contains_key(key) {
            true => None,
            false => Some(self.register(&mut running, key)),
        }
    }

    fn register(self: &Arc<Self>, running: &mut HashMap<String, Teller>, key: &str) -> Registered {
        let teller = Teller::new();
        running.insert(key.to_owned(), teller.clone());
        Registered {
            fetches: Arc::clone(self),
            key: key.to_owned(),
            teller,
        }
    }

    fn is_alone(&self, key: &str) -> bool {
        let alone = self.alone.lock().unwrap_or_else(PoisonError::into_inner);
        alone
            .get(key)
            .is_some_and(|since| since.elapsed() < ALONE_FOR)
    }

    /// Remembers that it is not worth waiting for the fetch of this URL.
    pub(crate) fn remember_alone(&self, key: &str) {
        let mut alone = self.alone.lock().unwrap_or_else(PoisonError::into_inner);
        if alone.len() >= MOST_ALONE {
            alone.retain(|_, since| since.elapsed() < ALONE_FOR);
        }
        if alone.len() >= MOST_ALONE {
            alone.clear();
        }
        alone.insert(key.to_owned(), Instant::now());
    }

    /// Forgets it again: the response turned out to be one that others can use.
    pub(crate) fn forget_alone(&self, key: &str) {
        let mut alone = self.alone.lock().unwrap_or_else(PoisonError::into_inner);
        alone.remove(key);
    }

    /// Spawns a task that [`Fetches::idle`] waits for.
    pub(crate) fn spawn(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        let counted = Counted::new(self);
        tokio::spawn(async move {
            let _counted = counted;
            task.await;
        });
    }

    /// Waits until no task runs.
    pub(crate) async fn idle(&self) {
        let mut tasks = self.tasks.subscribe();
        // The sender is here, so this only fails if it is not.
        let _count = tasks.wait_for(|count| *count == 0).await;
    }
}

/// A task that runs.
struct Counted(Arc<Fetches>);

impl Counted {
    fn new(fetches: &Arc<Fetches>) -> Self {
        fetches.tasks.send_modify(|count| *count += 1);
        Self(Arc::clone(fetches))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.tasks.send_modify(|count| *count -= 1);
    }
}

/// A response that is being stored, until this is dropped.
pub(crate) struct Storing {
    fetches: Arc<Fetches>,
    key: String,
    end: watch::Sender<()>,
}

impl Drop for Storing {
    fn drop(&mut self) {
        let mut storing = self.fetches.storing();
        let is_this = storing
            .get(&self.key)
            .is_some_and(|ended| self.end.subscribe().same_channel(ended));
        if is_this {
            storing.remove(&self.key);
        }
    }
}

/// The fetch of a URL that all others wait for. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Registered {
    fetches: Arc<Fetches>,
    pub(crate) key: String,
    pub(crate) teller: Teller,
}

impl Registered {
    /// Waits until nobody is interested any more, and takes care that nobody can be.
    pub(crate) async fn abandoned(&self) {
        loop {
            self.teller.abandoned().await;
            // Interest is only got while the map is locked.
            let mut running = self.fetches.running();
            if self.teller.news.receiver_count() == 0 {
                self.remove(&mut running);
                return;
            }
        }
    }

    /// From now on, requests for this URL fetch by themselves.
    pub(crate) fn close(&self) {
        self.remove(&mut self.fetches.running());
    }

    fn remove(&self, running: &mut HashMap<String, Teller>) {
        let is_this = running
            .get(&self.key)
            .is_some_and(|teller| teller.news.same_channel(&self.teller.news));
        if is_this {
            running.remove(&self.key);
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.close();
    }
}
