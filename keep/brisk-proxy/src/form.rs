//! The forms of index pages that clients get: how they are made, and where they are kept.
//!
//! A form is kept in the cache, so that a page is rewritten once and not for each answer. Pages are rewritten on threads
//! that serve nobody, one short page and one long page at a time.

use std::io::{self, Read};
use std::sync::Arc;

use brisk_cache::{About, Cache, Hit};
use brisk_http::{BodyHasher, BodyName, CacheBody};
use data_encoding::HEXLOWER;
use flate2::read::{GzDecoder, ZlibDecoder};
use http::StatusCode;
use http::header::{CONTENT_ENCODING, HeaderMap, HeaderValue};
use http_body_util::BodyExt;
use hyper::body::Body as _;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use twox_hash::XxHash3_128;
use url::Url;

use crate::body::{Body, full};
use crate::file_hosts::FileHosts;
use crate::map::{Map, Maps};
use crate::metrics::Metrics;
use crate::preset::{self, Links, MOST_PAGE_BYTES, PageKind};
use crate::problem::Problem;
use crate::secret::Secret;

/// A page of more bytes is long.
const LONG: usize = 4 << 20;

/// So many long pages are in memory at a time.
const LONG_PAGES: usize = 4;

/// What a form depends on beside the bytes of its page.
pub struct Rules {
    /// The map that the page is of.
    pub map: Map,
    /// All maps.
    pub maps: Arc<Maps>,
    /// Signs hosts that have no map.
    pub hosts: FileHosts,
    /// The URL of the page.
    pub page: Url,
    /// Its path at the proxy.
    pub path: String,
    /// The URL of the proxy, without a slash at its end.
    pub proxy: String,
    /// What the page is.
    pub kind: PageKind,
    /// How it comes.
    pub coding: Coding,
    /// For whom it is: see [`Forms::whose`].
    pub whose: String,
}

/// The coding of a page. Some servers send one that was not asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// The page as it is.
    Identity,
    /// gzip.
    Gzip,
    /// zlib.
    Deflate,
}

/// The form of a page, if the client does not have it.
pub enum Form {
    /// The client has it.
    Known,
    /// In the cache.
    Kept {
        hit: Hit,
        cache: Arc<Cache>,
        key: Vec<u8>,
    },
    /// Made now, and not kept.
    Made(Vec<u8>),
}

/// The bytes of a page.
enum Page {
    /// The cache has them.
    Stored(Body),
    /// They have come from the upstream.
    Come(Vec<u8>),
}

/// Where a form is kept.
struct Place {
    /// That of all forms of this page by these rules for the same credentials, so a new one takes the place of the one before.
    key: Vec<u8>,
    /// The entity tag of the form. It changes with the page and with the rules.
    tag: String,
    /// What is stored beside the form of this tag.
    form: u64,
    /// What is stored beside the reason why there is none.
    failure: u64,
}

/// Makes forms, and keeps them.
pub struct Forms {
    cache: Arc<Cache>,
    metrics: Arc<Metrics>,
    secret: Secret,
    /// Held while a page is rewritten: that of short pages, and that of long ones.
    turns: [Arc<Mutex<()>>; 2],
    /// Room for long pages.
    room: Arc<Semaphore>,
}

impl Forms {
    /// Forms that are kept in this cache.
    pub fn new(cache: Arc<Cache>, metrics: Arc<Metrics>, secret: Secret) -> Self {
        Self {
            cache,
            metrics,
            secret,
            turns: Default::default(),
            room: Arc::new(Semaphore::new(LONG_PAGES)),
        }
    }

    /// For whom the form of a page is: see [`Secret::whose`].
    ///
    /// The name of a page can be forged, so what one client's credentials bring must not lead to the form of another one's.
    pub fn whose(&self, headers: &HeaderMap) -> String {
        self.secret.whose(headers)
    }

    /// The form of a page, and its entity tag. It is kept if `keeps`, or if the cache has the page.
    pub async fn form(
        self: &Arc<Self>,
        rules: Rules,
        page: Body,
        keeps: bool,
        is_known: impl Fn(&str) -> bool,
    ) -> Result<(Form, String), Problem> {
        let (name, page, room) = match page.name() {
            Some(name) => (name, Page::Stored(page), None),
            None => {
                let (page, name, room) = self.whole(page).await?;
                (name, Page::Come(page), room)
            }
        };
        let place = Place::new(&rules, &name);
        let tag = place.tag.clone();
        if is_known(&tag) {
            return Ok((Form::Known, tag));
        }
        let place = Arc::new(place);
        let found = match self.cache.get_unread_at_once(&place.key) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                let (forms, place) = (Arc::clone(self), Arc::clone(&place));
                elsewhere(move || forms.find(&place)).await?
            }
            looked => self.found(&place, looked),
        };
        let form = match found {
            Some(found) => found?,
            None => {
                let keeps = keeps || matches!(page, Page::Stored(_));
                self.make(rules, place, page, room, keeps).await?
            }
        };
        Ok((form, tag))
    }

    /// All bytes of a page that comes, and room for them if it is long.
    async fn whole(
        &self,
        mut body: Body,
    ) -> Result<(Vec<u8>, BodyName, Option<OwnedSemaphorePermit>), Problem> {
        let (mut page, mut hasher, mut room) = (Vec::new(), BodyHasher::default(), None);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|e| {
                Problem::new(
                    StatusCode::BAD_GATEWAY,
                    format!("the index page broke off: {e}"),
                )
            })?;
            let piece = frame.data_ref().map_or(&[][..], |piece| piece);
            page.extend_from_slice(piece);
            hasher.update(piece);
            if page.len() > MOST_PAGE_BYTES {
                return Err(Problem::new(StatusCode::BAD_GATEWAY, TOO_LONG));
            }
            if room.is_none() && page.len() > LONG {
                room = self.room().await;
            }
        }
        Ok((page, hasher.finish(), room))
    }

    async fn room(&self) -> Option<OwnedSemaphorePermit> {
        // It is never closed.
        Arc::clone(&self.room).acquire_owned().await.ok()
    }

    /// Makes a form when it is its turn, on a thread that may take its time. Then nobody else makes the same one.
    async fn make(
        self: &Arc<Self>,
        rules: Rules,
        place: Arc<Place>,
        page: Page,
        mut room: Option<OwnedSemaphorePermit>,
        keeps: bool,
    ) -> Result<Form, Problem> {
        let len = match &page {
            Page::Stored(body) => body.size_hint().exact(),
            Page::Come(page) => u64::try_from(page.len()).ok(),
        };
        let is_long = len.is_none_or(|len| len > LONG as u64);
        if is_long && room.is_none() {
            room = self.room().await;
        }
        let [short, long] = &self.turns;
        let turn = Arc::clone(if is_long { long } else { short });
        let turn = turn.lock_owned().await;
        let (forms, runtime) = (Arc::clone(self), Handle::current());
        elsewhere(move || {
            let _held = (room, turn);
            if let Some(found) = forms.find(&place) {
                return found;
            }
            let page = match page {
                // It is there, so this waits for nobody but the disk. It has its room.
                Page::Stored(body) => runtime.block_on(body.collect()).map_or_else(
                    |e| {
                        let reason = format!("the index page cannot be read: {e}");
                        Err(Problem::new(StatusCode::BAD_GATEWAY, reason))
                    },
                    |page| Ok(page.to_bytes()),
                )?,
                Page::Come(page) => page.into(),
            };
            forms.metrics.rewrote_page();
            let made = rules.rewrite(&page);
            drop(page);
            forms.keep(&place, made, keeps)
        })
        .await?
    }

    /// Keeps a form, or why there is none.
    fn keep(
        &self,
        place: &Place,
        made: Result<Vec<u8>, String>,
        keeps: bool,
    ) -> Result<Form, Problem> {
        let (value, fingerprint) = match &made {
            Ok(form) => (form.as_slice(), place.form),
            Err(reason) => (reason.as_bytes(), place.failure),
        };
        let about = About {
            fingerprint,
            bucket: 0,
        };
        // What cannot be kept is made again. What is kept is no longer in memory.
        if keeps
            && self.cache.insert(&place.key, value, about).is_ok()
            && let Some(found) = self.find(place)
        {
            return found;
        }
        match made {
            Ok(form) => Ok(Form::Made(form)),
            Err(reason) => Err(Problem::new(StatusCode::BAD_GATEWAY, reason)),
        }
    }

    /// What was made before. It may wait for the disk.
    fn find(&self, place: &Place) -> Option<Result<Form, Problem>> {
        self.found(place, self.cache.get_unread(&place.key))
    }

    fn found(
        &self,
        place: &Place,
        looked: io::Result<Option<Hit>>,
    ) -> Option<Result<Form, Problem>> {
        let hit = looked.ok()??;
        if hit.fingerprint() == place.failure {
            let reason = String::from_utf8_lossy(hit.bytes().ok()?).into_owned();
            return Some(Err(Problem::new(StatusCode::BAD_GATEWAY, reason)));
        }
        (hit.fingerprint() == place.form).then(|| {
            Ok(Form::Kept {
                hit,
                cache: Arc::clone(&self.cache),
                key: place.key.clone(),
            })
        })
    }
}

/// What comes of work on a thread that may take its time.
async fn elsewhere<R: Send + 'static>(
    work: impl FnOnce() -> R + Send + 'static,
) -> Result<R, Problem> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => Ok(done),
        Err(e) => match e.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(e) => Err(Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                format!("the proxy ends: {e}"),
            )),
        },
    }
}

const TOO_LONG: &str =
    "the index page has more than 128 MiB, and cannot be rewritten; map its URL without a kind";

impl Rules {
    /// The form of a page, or why there is none.
    fn rewrite(&self, page: &[u8]) -> Result<Vec<u8>, String> {
        let plain = self.coding.decoded(page)?;
        let links = Links {
            map: &self.map,
            maps: &self.maps,
            hosts: &self.hosts,
            page: self.page.clone(),
            path: &self.path,
            proxy: &self.proxy,
        };
        preset::rewrite(&links, self.kind, plain.as_deref().unwrap_or(page))
            .map_err(|e| {
                format!(
                    "the index page {} cannot be rewritten, because {}; look at it, or map its URL without a kind",
                    self.page, e.0
                )
            })
    }

    /// Everything that a form depends on beside its page.
    fn digest(&self) -> u128 {
        // Links to files of Python are paths, so all names of the proxy have one form.
        let proxy = match self.kind {
            PageKind::PythonHtml | PageKind::PythonJson | PageKind::PythonUntyped => "",
            PageKind::Npm | PageKind::NpmUntyped | PageKind::Cargo => &self.proxy,
        };
        let mut text = format!(
            "{}\n{}\n{}\n{proxy}\n{:?}\n{:?}\n",
            preset::VERSION,
            self.page,
            self.path,
            self.kind,
            self.coding
        );
        for map in self.maps.iter() {
            text.push_str(&format!("{}\n", map.argument()));
        }
        text.push_str(&self.hosts.fingerprint());
        XxHash3_128::oneshot(text.as_bytes())
    }
}

impl Place {
    fn new(rules: &Rules, page: &BodyName) -> Self {
        let rules_digest = rules.digest();
        let key = [
            b"form\0",
            rules.page.as_str().as_bytes(),
            b"\0",
            &rules_digest.to_be_bytes(),
            rules.whose.as_bytes(),
        ];
        // Its digest and its length. For whom it is, the key says.
        let content = page.content();
        let digest = HEXLOWER.encode(&content);
        let tag = format!("\"{digest}-{rules_digest:032x}\"");
        // Half of the digest is enough beside a key with the URL.
        let form = u64::try_from(XxHash3_128::oneshot(tag.as_bytes()) >> 64).unwrap_or_default();
        Self {
            key: key.concat(),
            tag,
            form,
            failure: !form,
        }
    }
}

impl Coding {
    /// What the fields of a page say.
    pub fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        let coding = headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes);
        match coding.map(<[u8]>::to_ascii_lowercase).as_deref() {
            None | Some(b"" | b"identity") => Ok(Self::Identity),
            Some(b"gzip" | b"x-gzip") => Ok(Self::Gzip),
            Some(b"deflate") => Ok(Self::Deflate),
            Some(other) => Err(Problem::new(
                StatusCode::BAD_GATEWAY,
                format!(
                    "the index page comes in the coding {:?} although none was asked for; known are gzip and deflate",
                    String::from_utf8_lossy(other)
                ),
            )),
        }
    }

    /// The page without its coding. None: it has none.
    fn decoded(self, page: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let decoder: Box<dyn Read> = match self {
            Self::Identity => return Ok(None),
            Self::Gzip => Box::new(GzDecoder::new(page)),
            Self::Deflate => Box::new(ZlibDecoder::new(page)),
        };
        let mut plain = Vec::new();
        let most = u64::try_from(MOST_PAGE_BYTES).unwrap_or(u64::MAX);
        // One more byte shows that there are too many.
        let read = decoder.take(most.saturating_add(1)).read_to_end(&mut plain);
        match read {
            Ok(_) if plain.len() > MOST_PAGE_BYTES => Err(TOO_LONG.to_owned()),
            Ok(_) => Ok(Some(plain)),
            Err(e) => Err(format!("the index page cannot be decoded: {e}")),
        }
    }
}

impl Form {
    /// The number of its bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Known => 0,
            Self::Kept { hit, .. } => hit.len(),
            Self::Made(form) => form.len(),
        }
    }

    /// The body of an answer.
    pub fn into_body(self) -> Body {
        match self {
            Self::Known => full(Vec::new()),
            Self::Kept { hit, cache, key } => Body::Cached(CacheBody::of_value(hit, move || {
                // A form that stays is damaged for the next answer, too, and that one tries again.
                cache.remove(&key).ok();
            })),
            Self::Made(form) => full(form),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::pin::pin;
    use std::sync::mpsc;
    use std::task::Poll;

    use brisk_cache::CacheOptions;

    fn rules(directory: &std::path::Path) -> Rules {
        let map = Map::parse("/py=python:https://index.example/simple").unwrap();
        Rules {
            maps: Arc::new(Maps::new(vec![map.clone()]).unwrap()),
            map,
            hosts: FileHosts::new(Secret::of_directory(directory).unwrap()),
            page: Url::parse("https://index.example/simple/six/").unwrap(),
            path: "/py/six/".to_owned(),
            proxy: "http://proxy.example".to_owned(),
            kind: PageKind::PythonHtml,
            coding: Coding::Identity,
            whose: String::new(),
        }
    }

    fn forms(directory: &std::path::Path) -> Arc<Forms> {
        let cache = Cache::open(&directory.join("cache"), CacheOptions::new()).unwrap();
        let secret = Secret::of_directory(directory).unwrap();
        Arc::new(Forms::new(Arc::new(cache), Arc::default(), secret))
    }

    /// What one poll comes to.
    async fn polled<F: Future>(mut future: std::pin::Pin<&mut F>) -> Option<F::Output> {
        poll_fn(|cx| {
            Poll::Ready(match future.as_mut().poll(cx) {
                Poll::Ready(output) => Some(output),
                Poll::Pending => None,
            })
        })
        .await
    }

    #[test]
    fn threads_that_serve_rewrite_nothing() {
        let home = tempfile::tempdir().unwrap();
        let forms = forms(home.path());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .build()
            .unwrap();
        runtime.block_on(async {
            // While no other thread is free, nothing is rewritten.
            let (free, taken) = mpsc::channel::<()>();
            let taking = tokio::task::spawn_blocking(move || taken.recv().ok());
            let page = "<a href=\"https://files.example/six-1.zip\">";
            let mut form = pin!(forms.form(rules(home.path()), full(page), true, |_| false));
            for _ in 0..100 {
                assert!(polled(form.as_mut()).await.is_none());
                tokio::task::yield_now().await;
            }
            drop(free);
            taking.await.unwrap();
            let (form, tag) = form.await.unwrap();
            assert!(matches!(form, Form::Kept { .. }) && form.len() > page.len());
            // The tag says that a client has it, and no thread is needed.
            let known =
                pin!(forms.form(rules(home.path()), full(page), true, |known| known == tag));
            let (known, _) = polled(known).await.unwrap().unwrap();
            assert!(matches!(known, Form::Known));
        });
    }

    #[test]
    fn long_pages_wait_for_room_and_short_ones_do_not() {
        let home = tempfile::tempdir().unwrap();
        let forms = forms(home.path());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            let page = |bytes: usize| full(vec![b' '; bytes]);
            let form = |page| forms.form(rules(home.path()), page, false, |_| false);
            let mut room = Vec::new();
            for _ in 0..LONG_PAGES {
                room.push(forms.room().await.unwrap());
            }
            let mut long = pin!(form(page(LONG + 1)));
            for _ in 0..100 {
                assert!(polled(long.as_mut()).await.is_none());
                tokio::task::yield_now().await;
            }
            assert_eq!(form(page(LONG)).await.unwrap().0.len(), LONG);
            room.pop();
            assert_eq!(long.await.unwrap().0.len(), LONG + 1);
            // It has given its room back.
            assert_eq!(forms.room.available_permits(), 1);
        });
    }
}
