//! How a URL becomes an image that is read.

use std::error::Error as StdError;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use brisk_image::verity::{RootHash, Verity};
use brisk_image::{Image, OpenOptions as ImageOptions};
use brisk_launch::sys::process::start_detached;
use brisk_launch::with_reasons;
use brisk_remote::{
    Arriving, Ask, Background, Choice, Content, Descriptor, Entry, Error, ErrorKind, Fetcher,
    FetcherPlace, OpenOptions, RegistryName, RemoteCache, RemoteUrl, Resolved, Result, WAIT,
    WaitingImage, is_tag, now,
};
use brisk_serve::{RemoteImage, open_arriving};

use crate::argument_names::ArgumentNames;
use crate::registry_login::login;
use crate::trust::{Trust, asks_cosign, judge};
use crate::trusted_keys::{TrustedKeys, untrusted};

/// A name is asked for anew beside a start, but not more often than this.
const ASK_AGAIN: u64 = 60;

/// So long a start has the disk and the processors for itself, before a fetcher is started only to ask that.
const ASK_LATER: Duration = Duration::from_secs(2);

/// How to open images on the network.
#[derive(Debug, Clone)]
pub struct RemoteOptions {
    /// Believes a server by plain HTTP, whoever is on the way.
    pub insecure: bool,
    /// Asks the server for the newest image of this name first, and not beside.
    pub refresh: bool,
    /// When the rest arrives.
    pub background: Background,
    /// At most so many bytes a second for what nobody waits for.
    pub limit_rate: Option<u64>,
    /// After so many seconds without any progress, a read fails.
    pub wait: u64,
    /// Is called when somebody has waited for a second.
    pub on_wait: fn(),
    /// Which image is wanted of several under one name in a registry. None: the first that can be read.
    pub variant: Option<String>,
    /// The codecs that can be read. None: all.
    pub codecs: Option<Vec<String>>,
    /// Of a hot pack only the list of pages is wanted, so nothing asks what its server says of the frames.
    pub is_list: bool,
    /// The process has threads, or may have some. So no copy of it asks what nobody waits for: this one tells the fetcher, and a thread
    /// waits where the fetcher may have to know who the user is.
    pub has_threads: bool,
    /// Gets what the user should know though the image is opened.
    pub warn: fn(&str),
    /// What messages call these.
    pub names: ArgumentNames,
    /// The fetcher that is started if none runs.
    pub program: PathBuf,
}

/// An image from the network that can be read.
pub struct OpenedRemote {
    /// Which one was asked for.
    pub url: RemoteUrl,
    /// Where it arrives.
    pub place: FetcherPlace,
    /// What the cache knows of it.
    pub entry: Entry,
    /// The image.
    pub image: Image,
    /// What it is read from.
    pub source: Arc<WaitingImage>,
}

impl OpenedRemote {
    /// The same image, for a session.
    pub fn remote(&self) -> RemoteImage {
        let cache = self.place.cache();
        RemoteImage::new(cache.path(), &*self.entry.key, self.place.program())
    }
}

/// Why an image on the network cannot be opened.
#[derive(Debug)]
pub enum OpenError {
    /// It does not come, or nobody vouches for it.
    Remote(Error),
    /// What comes is not an image that brisk can read.
    Image(brisk_image::Error),
}

impl OpenError {
    fn inner(&self) -> &(dyn StdError + 'static) {
        match self {
            Self::Remote(e) => e,
            Self::Image(e) => e,
        }
    }

    /// Whether the bytes are not those of the image.
    fn is_wrong(&self) -> bool {
        let is_invalid = |e: &io::Error| e.kind() == io::ErrorKind::InvalidData;
        let mut chain = std::iter::successors(Some(self.inner()), |&e| e.source());
        chain.any(|e| {
            e.downcast_ref().is_some_and(is_invalid)
                || e.downcast_ref::<brisk_image::Error>()
                    .is_some_and(|e| e.kind() == brisk_image::ErrorKind::Corrupt)
        })
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.inner(), f)
    }
}

impl StdError for OpenError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.inner().source()
    }
}

impl From<Error> for OpenError {
    fn from(error: Error) -> Self {
        Self::Remote(error)
    }
}

impl From<brisk_image::Error> for OpenError {
    fn from(error: brisk_image::Error) -> Self {
        Self::Image(error)
    }
}

impl RemoteOptions {
    /// By the fetcher `program`. Messages call arguments by these names.
    pub fn new(program: PathBuf, names: ArgumentNames) -> Self {
        Self {
            insecure: false,
            refresh: false,
            background: Background::default(),
            limit_rate: None,
            wait: WAIT,
            on_wait: || {},
            variant: None,
            codecs: None,
            is_list: false,
            has_threads: true,
            warn: |_| {},
            names,
            program,
        }
    }

    fn options(&self, root: Option<String>) -> OpenOptions {
        OpenOptions {
            root,
            background: self.background,
            limit_rate: self.limit_rate,
            wait: self.wait,
        }
    }

    /// The same URL, and which image is wanted.
    fn chosen(&self, url: &RemoteUrl) -> Result<RemoteUrl> {
        let choice = Choice {
            variant: self.variant.clone(),
            codecs: self.codecs.clone().filter(|_| url.registry().is_some()),
        };
        if choice == Choice::default() {
            return Ok(url.clone());
        }
        let name = self.names.variant;
        if let Some(variant) = choice.variant.as_deref().filter(|name| !is_tag(name)) {
            let text = format!(
                "{url}: {name} is {variant:?}, allowed are letters, digits and any of . _ -"
            );
            return Err(Error::new(ErrorKind::Name, text));
        }
        url.choosing(&choice).ok_or_else(|| {
            let text = format!(
                "{url}: only a registry has several images under one name; leave out {name}"
            );
            Error::new(ErrorKind::Name, text)
        })
    }

    /// The user's fetcher, which waits for servers as long as the user says, and logs in by what the user has.
    ///
    /// # Errors
    ///
    /// Those of [`RemoteCache::of_user`].
    pub fn place(&self) -> Result<FetcherPlace> {
        let cache = Arc::new(RemoteCache::of_user()?);
        let place = FetcherPlace::new(cache, &self.program).login(login);
        Ok(place.wait(self.wait, self.on_wait))
    }

    /// Opens the image of this URL. `trusted`: the keys of which one must have signed it. This starts no thread, unless
    /// [`has_threads`](Self::has_threads).
    ///
    /// # Errors
    ///
    /// The text says what to do.
    pub fn open(
        &self,
        url: &RemoteUrl,
        trusted: Option<&TrustedKeys>,
        options: &ImageOptions,
    ) -> Result<OpenedRemote, OpenError> {
        let url = self.chosen(url)?;
        let place = self.place()?;
        let mut anew = false;
        loop {
            let entry = self.entry(&url, &place, trusted, anew)?;
            match open_entry(&url, &entry, &place, options) {
                Ok((image, source)) => {
                    return Ok(OpenedRemote {
                        url,
                        place,
                        entry,
                        image,
                        source,
                    });
                }
                // A server may have said what was not so.
                Err(e) if !anew && is_doubtful(&e, &entry, place.cache()) => anew = true,
                Err(e) => return Err(e),
            }
        }
    }

    /// The entry of a URL. One that is known starts at once, unless it is in doubt, or `anew`.
    ///
    /// # Errors
    ///
    /// `Untrusted` if nobody vouches for it, and those of the server. The text says what to do.
    pub fn entry(
        &self,
        url: &RemoteUrl,
        place: &FetcherPlace,
        trusted: Option<&TrustedKeys>,
        anew: bool,
    ) -> Result<Entry> {
        // What a manifest says is known only when it is here.
        if trusted.is_none() && url.registry().is_none_or(|name| name.digest().is_none()) {
            // Before anybody is asked over a network that can be read.
            judge(
                url,
                &Resolved::default(),
                None,
                0,
                self.insecure,
                &self.names,
            )?;
        }
        let cache = place.cache();
        let is_newer = !url.is_fixed() && cache.takes_newer(url);
        let known = cache.known(url)?;
        let anew = anew || known.as_ref().is_some_and(|entry| entry.about.is_doubted);
        let asks = self.refresh || is_newer || anew;
        if let Some(entry) = known.as_ref().filter(|_| !asks)
            && let Some(entry) = self.known(url, place, trusted, entry)?
        {
            return Ok(entry);
        }
        let ask = || -> Result<(Fetcher, Resolved, Trust)> {
            let mut fetcher = Fetcher::at(place)?;
            // Nobody vouches for a list, and a registry has it under a digest.
            let mut resolved = match self.is_list && url.registry().is_none() {
                true => Resolved::default(),
                // What was said of an image that is not here may be of an earlier one.
                false => fetcher.resolve(url, asks || known.is_none())?,
            };
            if let (Some(name), Some(realm)) = (url.registry(), &resolved.realm)
                && cache.is_first_realm(name.host(), realm)
            {
                (self.warn)(&said_of_realm(&name, realm));
            }
            if trusted.is_some_and(|keys| asks_cosign(url, &resolved, keys))
                && let Some(subject) = digest_of_manifest(&resolved)
            {
                resolved.cosigned = fetcher.cosigned(url, subject)?;
            }
            let trust = self.trust(url, &resolved, trusted, cache)?;
            Ok((fetcher, resolved, trust))
        };
        let (mut fetcher, resolved, trust) = match (ask(), &known) {
            (Ok(asked), _) => asked,
            (Err(e), Some(entry)) if !self.refresh => {
                return self.known_instead(url, place, trusted, entry, e);
            }
            (Err(e), _) => return Err(e.about(format_args!("cannot get {url}"))),
        };
        if let Some(why) = resolved.stale.as_deref().filter(|_| self.refresh) {
            let text = format!(
                "{url}: the server cannot be asked for the newest image ({why}); leave out {} to start the one that is here",
                self.names.refresh
            );
            return Err(Error::new(ErrorKind::Server, text));
        }
        let mut options = self.options(trust.root.clone());
        if trust.whole.is_some() {
            options.background = Background::Full;
        }
        let opened = match (fetcher.open(url, &resolved, &options, anew), &known) {
            (Ok(opened), _) => opened,
            (Err(e), Some(entry)) if !self.refresh && !anew => {
                return self.known_instead(url, place, trusted, entry, e);
            }
            (Err(e), _) => return Err(e),
        };
        let entry = || {
            let removed = || {
                let text = format!("{url}: it was removed from the cache meanwhile");
                Error::new(ErrorKind::Place, text)
            };
            cache.entry(&opened.key)?.ok_or_else(removed)
        };
        let mut found = entry()?;
        if let Some(whole) = &trust.whole {
            let arriving = Arc::new(Arriving::open(&found)?);
            WaitingImage::new(arriving, place.clone())
                .wait_for_whole()
                .map_err(|e| e.about(format_args!("cannot get {url}")))?;
            found = entry()?;
            if !is_whole(&found, whole) {
                return Err(untrusted(format!(
                    "{url}: the whole image is not what was signed; get it again: brisk remote forget {url}"
                )));
            }
        }
        cache.remember(url, &opened.key, trust.serial)?;
        Ok(found)
    }

    /// Who vouches for the image, of which the server says `resolved`.
    fn trust(
        &self,
        url: &RemoteUrl,
        resolved: &Resolved,
        trusted: Option<&TrustedKeys>,
        cache: &RemoteCache,
    ) -> Result<Trust> {
        let serial = cache.largest_serial(url)?;
        judge(url, resolved, trusted, serial, self.insecure, &self.names)
    }

    /// The entry that this URL had last, because its server cannot be asked: what the name meant is better than nothing.
    fn known_instead(
        &self,
        url: &RemoteUrl,
        place: &FetcherPlace,
        trusted: Option<&TrustedKeys>,
        entry: &Entry,
        error: Error,
    ) -> Result<Entry> {
        let known = self.known(url, place, trusted, entry);
        if !matches!(known, Ok(None)) {
            (self.warn)(&format!(
                "{}; brisk starts the image that it has under this name",
                with_reasons(&error)
            ));
        }
        known?.ok_or(error)
    }

    /// The entry that this URL had last, if it may be used as it is.
    fn known(
        &self,
        url: &RemoteUrl,
        place: &FetcherPlace,
        trusted: Option<&TrustedKeys>,
        entry: &Entry,
    ) -> Result<Option<Entry>> {
        let resolved = entry.described()?;
        let cache = place.cache();
        let trust = match self.trust(url, &resolved, trusted, cache) {
            // The registry may have a signature that nobody has asked for yet.
            Err(_) if trusted.is_some_and(|keys| asks_cosign(url, &resolved, keys)) => {
                return Ok(None);
            }
            trust => trust?,
        };
        let root = trust.root;
        if root.is_some() && root != entry.about.root
            || trust.whole.is_some_and(|whole| !is_whole(entry, &whole))
        {
            return Ok(None);
        }
        let mut entry = entry.clone();
        if entry.about.is_complete {
            // Nothing beside a presigned URL can be asked for.
            let asks =
                !url.is_fixed() && !url.is_presigned() && asks_again(entry.about.asked, now());
            entry.about.used = now();
            if asks {
                entry.about.asked = now();
            }
            // For who finds a part of it wrong.
            entry.about.options = self.options(root);
            // A full disk, or one that is only read, keeps no image from its start.
            entry.save().ok();
            if asks {
                self.ask_beside(url, place);
            }
            return Ok(Some(entry));
        }
        Fetcher::at(place)?.open(url, &resolved, &self.options(root), false)?;
        Ok(Some(entry))
    }

    /// Asks whether there is a newer image, for the next start. Nobody waits for what its server says.
    fn ask_beside(&self, url: &RemoteUrl, place: &FetcherPlace) {
        let url = url.clone();
        // A fetcher that was started since does not know who the user is.
        let logs_in = url.registry().is_some() || url.object().is_some();
        let ask = move |mut fetcher: Fetcher| {
            if logs_in {
                fetcher.resolve(&url, false)?;
            }
            fetcher.send(&Ask::Refresh {
                url: url.as_str().to_owned(),
            })
        };
        // Without it the image stays as it is.
        if !self.has_threads {
            let ask = || {
                thread::sleep(ASK_LATER);
                i32::from(Fetcher::at(place).and_then(ask).is_err())
            };
            if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
                start_detached(&[place.cache().fd().as_raw_fd()], null.as_fd(), ask).ok();
            }
        } else if let Ok(fetcher) = Fetcher::at(place) {
            if logs_in {
                thread::Builder::new().spawn(move || ask(fetcher)).ok();
            } else {
                ask(fetcher).ok();
            }
        }
    }
}

/// What a user should know if another host gives tokens for a registry.
pub fn said_of_realm(name: &RegistryName, realm: &str) -> String {
    format!(
        "{} takes tokens of {realm}, which has seen your credentials if you have some",
        name.host()
    )
}

/// The digest of the manifest that a registry has sent, with `sha256:`.
pub fn digest_of_manifest(resolved: &Resolved) -> Option<String> {
    let text = resolved.manifest.as_deref()?;
    Some(Content::of(text.as_bytes(), "").digest)
}

/// Whether all of an image is here, and was compared with this SHA-256.
fn is_whole(entry: &Entry, sha256: &str) -> bool {
    entry.about.is_complete && entry.about.sha256.as_deref() == Some(sha256)
}

/// Opens what is here of an image, and waits for what is not.
///
/// # Errors
///
/// Those of [`open_arriving`].
pub fn open_entry(
    url: &RemoteUrl,
    entry: &Entry,
    place: &FetcherPlace,
    options: &ImageOptions,
) -> Result<(Image, Arc<WaitingImage>), OpenError> {
    let arriving = Arc::new(Arriving::open(entry)?);
    let source = Arc::new(WaitingImage::new(arriving, place.clone()));
    let text = entry.described()?.descriptor;
    let described = text.and_then(|text| Descriptor::parse(&text).ok());
    let root = entry.about.root.as_deref();
    let root = root.map(str::parse::<RootHash>).transpose()?;
    let path = Path::new(url.as_str());
    let opened = open_arriving(
        Arc::clone(&source),
        path,
        root.map(Verity::new),
        described.as_ref(),
        options,
    );
    compared(
        opened.map_err(|e| e.with_path(path)),
        source,
        entry,
        place.cache(),
    )
}

/// Remembers that the image that was opened has its root hash. One that never had it is another file, and is not kept under that
/// hash.
///
/// # Errors
///
/// That of `opened`.
pub fn compared<T>(
    opened: Result<T, brisk_image::Error>,
    source: Arc<WaitingImage>,
    entry: &Entry,
    cache: &RemoteCache,
) -> Result<(T, Arc<WaitingImage>), OpenError> {
    match opened.map_err(OpenError::Image) {
        Ok(opened) => {
            if entry.about.root.is_some() {
                // What cannot be written now, the next start writes.
                entry.note_compared().ok();
            }
            Ok((opened, source))
        }
        Err(e) => {
            // What is open stays.
            drop(source);
            if entry.about.is_vouched && e.is_wrong() && !entry.is_compared() {
                // What cannot be removed now, the next start finds wrong again.
                cache.remove(entry).ok();
            }
            Err(e)
        }
    }
}

/// Whether an image cannot be opened because of what a server has said of it, though somebody else vouches for it.
fn is_doubtful(error: &OpenError, entry: &Entry, cache: &RemoteCache) -> bool {
    let is_doubted = || {
        let now = cache.entry(&entry.key).ok().flatten();
        now.is_some_and(|now| now.about.is_doubted)
    };
    entry.about.is_vouched && (error.is_wrong() || is_doubted())
}

/// Whether a server that was asked at `asked` is asked again at `now`, in seconds. A clock that was put back asks.
fn asks_again(asked: u64, now: u64) -> bool {
    now.checked_sub(asked)
        .is_none_or(|since| since >= ASK_AGAIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However often it starts.
    #[test]
    fn a_server_is_asked_anew_at_most_once_a_minute() {
        let mut asked = 0;
        let asks = (1_000_000..1_000_600).step_by(7).filter(|now| {
            let asks = asks_again(asked, *now);
            asked = if asks { *now } else { asked };
            asks
        });
        let times: Vec<u64> = asks.collect();
        assert!(times.windows(2).all(|two| two[1] - two[0] >= ASK_AGAIN));
        assert_eq!(times.len(), 10);
        assert!(asks_again(2_000_000, 1_000_000));
    }
}
