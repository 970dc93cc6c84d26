//! Who has shown that a registry lets them pull from a repository.
//!
//! What a digest names is kept once, if credentials have brought it. Whoever asks for it with credentials of their own gets
//! it when the registry has given them a manifest of the repository, or the head of what they ask for. The cache keeps a keyed digest of the
//! repository and the credentials, and when that was. So the proxies of one cache know it, and it is there with `--offline`.

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use brisk_cache::{About, Cache};
use http::{HeaderMap, HeaderValue};

use crate::secret::Secret;

/// For how long the registry is not asked again. Tokens live for about so long.
pub const CHECKED_FOR: Duration = Duration::from_secs(5 * 60);

/// What a grant is stored beside.
const FINGERPRINT: u64 = u64::from_be_bytes(*b"grant  1");

/// What identities have shown.
pub struct Grants {
    cache: Arc<Cache>,
    secret: Secret,
    stand_in: HeaderValue,
}

impl Grants {
    /// Those that this cache keeps.
    pub fn new(cache: Arc<Cache>, secret: Secret) -> Self {
        let signature = secret.sign("who may pull", "");
        let mut stand_in = HeaderValue::from_str(&signature).expect("it is hexadecimal");
        stand_in.set_sensitive(true);
        Self {
            cache,
            secret,
            stand_in,
        }
    }

    /// The visit of who has these credentials to a repository, by its URL. None: they are no credentials.
    pub fn visit(self: &Arc<Self>, repository: &str, credentials: &HeaderMap) -> Option<Visit> {
        let whose = self.secret.whose(credentials);
        (!whose.is_empty()).then(|| Visit {
            grants: Arc::clone(self),
            key: self
                .secret
                .sign("grant", &format!("{repository}\n{whose}"))
                .into(),
        })
    }

    /// What stands in place of credentials for blobs that some have brought. Nobody else can tell it.
    pub fn stand_in(&self) -> HeaderValue {
        self.stand_in.clone()
    }
}

/// What one identity shows of one repository.
#[derive(Clone)]
pub struct Visit {
    grants: Arc<Grants>,
    key: Arc<str>,
}

impl Visit {
    /// How long ago the registry let them pull. None: it has not, or the cache does not know any more.
    pub async fn age(&self) -> Option<Duration> {
        let found = self.work(|cache, key| {
            let hit = cache
                .get(key)?
                .filter(|hit| hit.fingerprint() == FINGERPRINT);
            Ok(hit.and_then(|hit| Some(u64::from_le_bytes(hit.bytes().ok()?.try_into().ok()?))))
        });
        let then = UNIX_EPOCH.checked_add(Duration::from_secs(found.await??))?;
        // A clock that was set back says nothing.
        SystemTime::now().duration_since(then).ok()
    }

    /// Notes that the registry lets them pull.
    pub async fn passed(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |now| now.as_secs()).to_le_bytes();
        let about = About {
            fingerprint: FINGERPRINT,
            bucket: 0,
        };
        // What is not noted is asked again.
        self.work(move |cache, key| cache.insert(key, &now, about))
            .await;
    }

    /// Notes that it does not.
    pub async fn refused(&self) {
        self.work(|cache, key| cache.remove(key)).await;
    }

    /// Works with the cache on a thread that may wait for the disk. None if that fails.
    async fn work<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Cache, &[u8]) -> io::Result<R> + Send + 'static,
    ) -> Option<R> {
        let (cache, key) = (
            Arc::clone(&self.grants.cache),
            format!("grant\0{}", self.key),
        );
        let working = tokio::task::spawn_blocking(move || work(&cache, key.as_bytes()));
        working.await.ok()?.ok()
    }
}
