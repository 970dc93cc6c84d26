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
const CHECKED_FOR: Duration = Duration::from_secs(5 * 60);

/// What it is worth that a registry let somebody pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Worth {
    /// They may.
    Enough,
    /// They may while the registry fails.
    IfItFails,
    /// They may while no registry is asked at all.
    Offline,
    /// It has not let them.
    Nothing,
}

impl Worth {
    /// Of what was so long ago. `stale` is how long stored answers stand in for an upstream that fails.
    fn of(age: Option<Duration>, stale: Duration) -> Self {
        match age {
            Some(age) if age < CHECKED_FOR => Self::Enough,
            Some(age) if age < stale => Self::IfItFails,
            Some(_) => Self::Offline,
            None => Self::Nothing,
        }
    }

    /// Whether they may, if the registry cannot be asked. That a client wants no request does not make the proxy offline.
    pub fn suffices(self, is_offline: bool) -> bool {
        match self {
            Self::Enough => true,
            Self::IfItFails | Self::Offline => is_offline,
            Self::Nothing => false,
        }
    }
}

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
    /// What it is worth that the registry let them pull, as far as the cache still knows.
    pub async fn worth(&self, stale: Duration) -> Worth {
        Worth::of(self.age().await, stale)
    }

    async fn age(&self) -> Option<Duration> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_registry_said_is_worth_less_with_time() {
        let stale = Duration::from_secs(3600);
        for (age, expected) in [
            (Some(0), Worth::Enough),
            (Some(299), Worth::Enough),
            (Some(300), Worth::IfItFails),
            (Some(3599), Worth::IfItFails),
            (Some(3600), Worth::Offline),
            (None, Worth::Nothing),
        ] {
            let found = Worth::of(age.map(Duration::from_secs), stale);
            assert_eq!(found, expected, "{age:?}");
        }
        assert_eq!(
            Worth::of(Some(Duration::from_secs(1)), Duration::ZERO),
            Worth::Enough
        );
        for (worth, by_client, offline) in [
            (Worth::Enough, true, true),
            (Worth::IfItFails, false, true),
            (Worth::Offline, false, true),
            (Worth::Nothing, false, false),
        ] {
            let found = (worth.suffices(false), worth.suffices(true));
            assert_eq!(found, (by_client, offline), "{worth:?}");
        }
    }

    #[tokio::test]
    async fn one_identity_shows_nothing_of_others_or_elsewhere() {
        let home = tempfile::tempdir().unwrap();
        let secret = Secret::of_directory(home.path()).unwrap();
        let cache = Cache::open(
            &home.path().join("entries"),
            brisk_cache::CacheOptions::new(),
        );
        let grants = Arc::new(Grants::new(Arc::new(cache.unwrap()), secret));
        let visit = |repository: &str, token: Option<&'static str>| {
            let token = token.map(HeaderValue::from_static);
            let headers = token.map(|token| (http::header::AUTHORIZATION, token));
            grants.visit(repository, &headers.into_iter().collect())
        };
        let ann = visit("https://a/v2/x", Some("Bearer ann")).unwrap();
        ann.passed().await;
        let stale = Duration::from_secs(3600);
        for (repository, token, expected) in [
            ("https://a/v2/x", "Bearer ann", Worth::Enough),
            ("https://a/v2/x", "Bearer eve", Worth::Nothing),
            ("https://a/v2/y", "Bearer ann", Worth::Nothing),
            ("https://b/v2/x", "Bearer ann", Worth::Nothing),
        ] {
            let found = visit(repository, Some(token)).unwrap().worth(stale).await;
            assert_eq!(found, expected, "{repository} {token}");
        }
        assert!(visit("https://a/v2/x", None).is_none());
        ann.refused().await;
        assert_eq!(ann.worth(stale).await, Worth::Nothing);
    }
}
