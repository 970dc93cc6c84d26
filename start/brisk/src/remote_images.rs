//! Images on the network: how a URL becomes an image that is read.

use std::io::{self, IsTerminal, stderr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use brisk_image::hot_pack::HotPack;
use brisk_image::verity::{RootHash, Verity};
use brisk_image::{ErrorKind, Image, Limits, OpenOptions as ImageOptions, Work};
use brisk_launch::sys::process::start_detached;
use brisk_remote::{
    Arriving, Ask, Background, Choice, Class, Content, Descriptor, Entry, Fetcher, FetcherPlace,
    OpenOptions, RemoteCache, RemoteUrl, Resolved, WAIT, WaitingImage, is_tag, now,
};
use brisk_serve::{
    KernelSupport, RemoteImage, RemotePack, Support, open_arriving, open_arriving_pack,
};
use brisk_terminal::age::parse_linger;
use brisk_terminal::messages::{say, warn};
use brisk_terminal::names::shown;
use brisk_terminal::size::parse_size;

use crate::launcher::beside;
use crate::registry_job::warn_of_realm;
use crate::registry_login::login;
use crate::remote_trust::{Trust, asks_cosign, judge};
use crate::trusted_keys::TrustedKeys;

/// The program that asks the network.
pub const FETCH: &str = "brisk-fetch";

/// A name is asked for anew beside a start, but not more often than this.
const ASK_AGAIN: u64 = 60;

/// How long a read waits for a hot pack of its own without any progress, before it goes to the image.
const HOT_WAIT: Duration = Duration::from_secs(5);

/// Heading of these options.
const NETWORK: &str = "Images on the network";

/// How to read an image on the network.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct RemoteArgs {
    /// Reads an image by plain http:// from another machine though nobody vouches for it: everyone between here and there can
    /// change it.
    #[arg(long, help_heading = NETWORK)]
    insecure: bool,

    /// Asks the server for the newest image of this name before the start, and not only beside it.
    #[arg(long, help_heading = NETWORK)]
    refresh: bool,

    /// When the rest of the image arrives, which nothing has read yet: never, when no program has waited for two seconds (idle),
    /// or at once (full). Only a whole image starts without the network. [default: idle]
    #[arg(long, value_name = "WHEN", help_heading = NETWORK)]
    background: Option<When>,

    /// At most so many bytes a second for what no program waits for.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = NETWORK)]
    limit_rate: Option<u64>,

    /// How long a read waits without any progress before it fails. [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = parse_linger, help_heading = NETWORK)]
    wait: Option<Duration>,

    /// Which image is wanted of several under one name in a registry. [default: the first for this machine]
    #[arg(long, value_name = "NAME", value_parser = parse_variant, help_heading = NETWORK)]
    pub variant: Option<String>,

    /// The codecs that can be read. None: all.
    #[arg(skip)]
    pub codecs: Option<Vec<String>>,

    /// Of a hot pack only the list of pages is wanted, so nothing asks what its server says of the frames.
    #[arg(skip)]
    is_list: bool,
}

/// A [`Background`] as it is written.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum When {
    Never,
    Idle,
    Full,
}

/// An image from the network that can be read.
pub struct OpenedRemote {
    pub image: Image,
    pub remote: RemoteImage,
    pub entry: Entry,
    /// What the image is read from.
    pub source: Arc<WaitingImage>,
    /// Nothing beside it can be asked for.
    is_presigned: bool,
}

/// A hot pack on the network.
pub struct RemoteHot {
    /// How it is used.
    pub used: UsedHot,
    /// Keeps it in the cache.
    source: Arc<WaitingImage>,
}

impl RemoteHot {
    /// Waits until all of a pack is here from which pages come.
    pub fn fetch(&self) -> std::io::Result<()> {
        match self.used {
            UsedHot::Signed(_) => self
                .source
                .wait_for(0..self.source.arriving().len(), Class::Pack),
            UsedHot::List { .. } => Ok(()),
        }
    }
}

/// How a hot pack on the network is used.
pub enum UsedHot {
    /// A trusted key has signed it, so pages come from it.
    Signed(RemotePack),
    /// Only its list of pages.
    List {
        /// Its file. What has not arrived is zeros in it.
        path: PathBuf,
        /// Why no more.
        why: String,
    },
}

impl RemoteArgs {
    /// `background`: what counts if the user says nothing.
    fn options(&self, root: Option<String>, background: Option<Background>) -> OpenOptions {
        OpenOptions {
            root,
            background: match self.background {
                None => background.unwrap_or_default(),
                Some(When::Never) => Background::Never,
                Some(When::Idle) => Background::Idle,
                Some(When::Full) => Background::Full,
            },
            limit_rate: self.limit_rate,
            wait: self.wait.map_or(WAIT, |wait| wait.as_secs().max(1)),
        }
    }

    /// The same URL, and which image is wanted.
    fn chosen(&self, url: RemoteUrl) -> anyhow::Result<RemoteUrl> {
        let choice = Choice {
            variant: self.variant.clone(),
            codecs: self.codecs.clone().filter(|_| url.registry().is_some()),
        };
        match choice == Choice::default() {
            true => Ok(url),
            false => Ok(url.choosing(&choice)?),
        }
    }

    /// Fails if a variant is asked for of the file at `path`.
    pub fn refuse_variant(&self, path: &Path) -> anyhow::Result<()> {
        ensure!(
            self.variant.is_none(),
            "{}: only a name in a registry has variants; leave out --variant, or write URL#variant=NAME where it is meant",
            shown(path)
        );
        Ok(())
    }

    /// The user's fetcher, which waits for servers as long as the user says.
    fn place(&self) -> anyhow::Result<FetcherPlace> {
        let wait = self.options(None, None).wait;
        Ok(place()?.wait(wait, tell_wait))
    }

    /// Opens the image of the URL `name`. `trusted`: the keys of which one must have signed it. This starts no thread.
    ///
    /// # Errors
    ///
    /// The text says what to do.
    pub fn open(
        &self,
        name: &str,
        trusted: Option<&TrustedKeys>,
        options: &ImageOptions,
        background: Option<Background>,
    ) -> anyhow::Result<OpenedRemote> {
        let url = self.chosen(RemoteUrl::of_user(name)?)?;
        let place = self.place()?;
        let cache = place.cache();
        let mut anew = false;
        let (entry, (image, source)) = loop {
            let entry = self.entry(&url, &place, trusted, background, anew)?;
            match open_entry(&url, &entry, &place, options) {
                Ok(opened) => break (entry, opened),
                // A server may have said what was not so.
                Err(e) if !anew && is_doubtful(&e, &entry, cache) => anew = true,
                Err(e) => return Err(e),
            }
        };
        let remote = RemoteImage::new(cache.path(), &*entry.key, place.program());
        Ok(OpenedRemote {
            image,
            remote,
            entry,
            source,
            is_presigned: url.is_presigned(),
        })
    }

    /// A hot pack on the network: of the URL `named`, or else of `URL.hot` beside an image that has no pack itself. One of `keys` must
    /// have signed it, or else only its list of pages arrives: nobody vouches for its frames, and a wrong list costs time.
    ///
    /// # Errors
    ///
    /// If the user has named it.
    pub fn hot(
        &self,
        named: Option<&Path>,
        opened: Option<&OpenedRemote>,
        keys: impl FnOnce() -> anyhow::Result<TrustedKeys>,
    ) -> anyhow::Result<Option<RemoteHot>> {
        let arrives = opened.is_some_and(|opened| !opened.entry.about.is_complete);
        if let Some(named) = named {
            return match named
                .to_str()
                .filter(|_| RemoteUrl::is_url(named.as_os_str()))
            {
                Some(named) => self
                    .open_hot(&RemoteUrl::of_user(named)?, keys, true, arrives)
                    .map(Some),
                None => Ok(None),
            };
        }
        let has_none = |opened: &&OpenedRemote| matches!(opened.image.hot_pack_range(), Ok(None));
        let Some(opened) = opened.filter(|opened| !opened.is_presigned && has_none(opened)) else {
            return Ok(None);
        };
        let url = RemoteUrl::parse(&opened.entry.about.url)?;
        let beside = match url.registry() {
            None => Some(url.beside(".hot")),
            Some(name) => {
                let digest = pushed_pack(&url, &opened.entry, arrives).unwrap_or_default();
                digest.map(|digest| name.at_digest(&digest))
            }
        };
        let Some(beside) = beside else {
            return Ok(None);
        };
        let beside = RemoteUrl::parse(&beside)?;
        // A start of what is here needs no network, and one of another image no three round trips each time to hear that there is no
        // pack. What is not there is no fault.
        let is_absent = !self.refresh && place()?.cache().is_absent(&beside, now());
        let asks = arrives && !is_absent;
        Ok(self.open_hot(&beside, keys, asks, arrives).ok())
    }

    /// `asks`: the server is asked, if nothing is known of it. `arrives`: the image is not whole here.
    fn open_hot(
        &self,
        url: &RemoteUrl,
        keys: impl FnOnce() -> anyhow::Result<TrustedKeys>,
        asks: bool,
        arrives: bool,
    ) -> anyhow::Result<RemoteHot> {
        let of_pack = Self {
            background: Some(When::Never),
            // The image has the pages, too.
            wait: Some(self.wait.unwrap_or(HOT_WAIT).min(HOT_WAIT)),
            ..self.clone()
        };
        match keys().and_then(|keys| of_pack.open_signed(url, &keys, asks, arrives)) {
            Ok(signed) => Ok(signed),
            Err(e) => of_pack.open_list(url, format!("{e:#}"), asks),
        }
    }

    fn open_signed(
        &self,
        url: &RemoteUrl,
        keys: &TrustedKeys,
        asks: bool,
        arrives: bool,
    ) -> anyhow::Result<RemoteHot> {
        // Without a key nothing is asked for.
        keys.check_any(&shown(url.as_str()))?;
        let place = self.place()?;
        let known = place.cache().known(url)?;
        let is_whole = |entry: &Entry| entry.about.is_complete;
        let not_here = "the image is here, and the pack is not";
        ensure!(asks || known.as_ref().is_some_and(is_whole), not_here);
        // A list arrives without what its server says of the pack, so that is asked for.
        let is_list = known.is_some_and(
            |entry| matches!(entry.described(), Ok(found) if found.descriptor.is_none()),
        );
        let asking = Self {
            refresh: self.refresh || is_list,
            ..self.clone()
        };
        let entry = asking.entry(url, &place, Some(keys), None, false)?;
        // Else each of its frames would come later than the same pages of the image.
        ensure!(arrives || is_whole(&entry), not_here);
        let root = entry.about.root.as_deref().map(str::parse::<RootHash>);
        let root = root.transpose()?.context("it has no root hash")?;
        let described = entry
            .described()?
            .descriptor
            .context("nothing is said of it")?;
        let tree = Descriptor::parse(&described)?.hash_tree;
        let tree = tree.context("it has no hash tree")?;
        let arriving = Arc::new(Arriving::open(&entry)?);
        let source = Arc::new(WaitingImage::new(arriving, place.clone()));
        let name = Path::new(url.as_str());
        let opened = open_arriving_pack(&source, name, root, tree);
        let opened = opened.map(drop).map_err(Into::into);
        let ((), source) = compared(opened, source, &entry, place.cache())?;
        let file = RemoteImage::new(place.cache().path(), &*entry.key, place.program());
        Ok(RemoteHot {
            used: UsedHot::Signed(RemotePack::new(name, file, Verity::new(root))),
            source,
        })
    }

    fn open_list(&self, url: &RemoteUrl, why: String, asks: bool) -> anyhow::Result<RemoteHot> {
        let place = self.place()?;
        let any = Self {
            insecure: true,
            is_list: true,
            ..self.clone()
        };
        let entry = match asks {
            true => any.entry(url, &place, None, None, false)?,
            false => place
                .cache()
                .known(url)?
                .context("nothing is known of it")?,
        };
        let arriving = Arc::new(Arriving::open(&entry)?);
        let source = Arc::new(WaitingImage::new(arriving, place));
        let pack = HotPack::from_source(Arc::clone(&source), &Limits::default());
        pack.with_context(|| format!("{url} is no hot pack that brisk can use"))?;
        Ok(RemoteHot {
            used: UsedHot::List {
                path: entry.image_path(),
                why,
            },
            source,
        })
    }

    /// The entry of a URL. One that is known starts at once, unless it is in doubt, or `anew`.
    fn entry(
        &self,
        url: &RemoteUrl,
        place: &FetcherPlace,
        trusted: Option<&TrustedKeys>,
        background: Option<Background>,
        anew: bool,
    ) -> anyhow::Result<Entry> {
        // What a manifest says is known only when it is here.
        if trusted.is_none() && url.registry().is_none_or(|name| name.digest().is_none()) {
            // Before anybody is asked over a network that can be read.
            judge(url, &Resolved::default(), None, 0, self.insecure)?;
        }
        let cache = place.cache();
        let is_newer = !url.is_fixed() && cache.takes_newer(url);
        let known = cache.known(url)?;
        let anew = anew || known.as_ref().is_some_and(|entry| entry.about.is_doubted);
        let asks = self.refresh || is_newer || anew;
        if let Some(entry) = known.as_ref().filter(|_| !asks)
            && let Some(entry) = self.known(url, place, trusted, entry, background)?
        {
            return Ok(entry);
        }
        let asked = Fetcher::at(place)
            .map_err(anyhow::Error::from)
            .and_then(|mut fetcher| {
                // Nobody vouches for a list, and a registry has it under a digest.
                let mut resolved = match self.is_list && url.registry().is_none() {
                    true => Resolved::default(),
                    // What was said of an image that is not here may be of an earlier one.
                    false => fetcher.resolve(url, asks || known.is_none())?,
                };
                name_realm(url, &resolved, cache);
                if trusted.is_some_and(|keys| asks_cosign(url, &resolved, keys))
                    && let Some(subject) = digest_of_manifest(&resolved)
                {
                    resolved.cosigned = fetcher.cosigned(url, subject)?;
                }
                let trust = self.trust(url, &resolved, trusted, cache)?;
                Ok((fetcher, resolved, trust))
            });
        let (mut fetcher, resolved, trust) = match (asked, &known) {
            (Ok(asked), _) => asked,
            // The name is known, and what it meant is better than nothing.
            (Err(e), Some(entry)) if !self.refresh => {
                let known = self.known(url, place, trusted, entry, background);
                if !matches!(known, Ok(None)) {
                    warn(&format!(
                        "{e:#}; brisk starts the image that it has under this name"
                    ));
                }
                return known?.ok_or(e);
            }
            (Err(e), _) => return Err(e.context(format!("cannot get {url}"))),
        };
        if let Some(why) = resolved.stale.as_deref().filter(|_| self.refresh) {
            bail!(
                "{url}: the server cannot be asked for the newest image ({why}); leave out --refresh to start the one that is here"
            );
        }
        let mut options = self.options(trust.root.clone(), background);
        if trust.whole.is_some() {
            options.background = Background::Full;
        }
        let opened = fetcher.open(url, &resolved, &options, anew)?;
        let entry = || -> anyhow::Result<Entry> {
            let entry = cache.entry(&opened.key)?;
            entry.with_context(|| format!("{url}: it was removed from the cache meanwhile"))
        };
        let mut found = entry()?;
        if let Some(whole) = &trust.whole {
            let arriving = Arc::new(Arriving::open(&found)?);
            WaitingImage::new(arriving, place.clone())
                .wait_for_whole()
                .with_context(|| format!("cannot get {url}"))?;
            found = entry()?;
            ensure!(
                is_whole(&found, whole),
                "{url}: the whole image is not what was signed; get it again: brisk remote forget {url}"
            );
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
    ) -> anyhow::Result<Trust> {
        let serial = cache.largest_serial(url)?;
        judge(url, resolved, trusted, serial, self.insecure)
    }

    /// The entry that this URL had last, if it may be used as it is.
    fn known(
        &self,
        url: &RemoteUrl,
        place: &FetcherPlace,
        trusted: Option<&TrustedKeys>,
        entry: &Entry,
        background: Option<Background>,
    ) -> anyhow::Result<Option<Entry>> {
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
            entry.about.options = self.options(root, background);
            // A full disk, or one that is only read, keeps no image from its start.
            entry.save().ok();
            if asks {
                ask_beside(url, place);
            }
            return Ok(Some(entry));
        }
        Fetcher::at(place)?.open(url, &resolved, &self.options(root, background), false)?;
        Ok(Some(entry))
    }
}

/// The codecs that the kernel can decode, if there is one that it cannot.
pub fn kernel_codecs() -> Option<Vec<String>> {
    codecs_of(&KernelSupport::probe().codecs)
}

/// Those that may be supported, if one is not.
fn codecs_of(kernel: &[(&str, Support)]) -> Option<Vec<String>> {
    let can = |support: &Support| *support != Support::No;
    let all = kernel.iter().filter(|(_, support)| can(support));
    let mut names: Vec<_> = all.map(|(name, _)| (*name).to_owned()).collect();
    let lacks = names.len() < kernel.len();
    names.push("none".to_owned());
    names.sort();
    lacks.then_some(names)
}

fn parse_variant(text: &str) -> Result<String, String> {
    match is_tag(text) {
        true => Ok(text.to_owned()),
        false => Err("allowed are letters, digits and any of . _ -".into()),
    }
}

/// `path`, or if it is a URL, its last part: what is made of an image lies beside it, or else here.
pub fn local_name(path: &Path) -> PathBuf {
    let url = path
        .to_str()
        .filter(|_| RemoteUrl::is_url(path.as_os_str()));
    match url.map(RemoteUrl::parse) {
        Some(Ok(url)) => url.file_name().into(),
        _ => path.to_owned(),
    }
}

/// Where the user's fetcher is, or can be started.
fn place() -> anyhow::Result<FetcherPlace> {
    let cache = Arc::new(RemoteCache::of_user()?);
    let program = beside(FETCH).context("cannot find brisk's own file")?;
    Ok(FetcherPlace::new(cache, &program).login(login))
}

/// Says once which other host gives tokens for a registry.
fn name_realm(url: &RemoteUrl, resolved: &Resolved, cache: &RemoteCache) {
    if let (Some(name), Some(realm)) = (url.registry(), &resolved.realm)
        && cache.is_first_realm(name.host(), realm)
    {
        warn_of_realm(&name, realm);
    }
}

/// The digest of the manifest of the hot pack that somebody has pushed for an image. `asks`: the registry is asked, if none is known.
fn pushed_pack(url: &RemoteUrl, entry: &Entry, asks: bool) -> anyhow::Result<Option<String>> {
    let known = entry.pack()?;
    if known.is_some() || !asks {
        return Ok(known);
    }
    let Some(subject) = digest_of_manifest(&entry.described()?) else {
        return Ok(None);
    };
    let digest = Fetcher::at(&place()?)?.referrer(url, subject)?;
    entry.note_pack(&digest)?;
    Ok(Some(digest))
}

fn digest_of_manifest(resolved: &Resolved) -> Option<String> {
    let text = resolved.manifest.as_deref()?;
    Some(Content::of(text.as_bytes(), "").digest)
}

/// Whether all of an image is here, and was compared with this SHA-256.
fn is_whole(entry: &Entry, sha256: &str) -> bool {
    entry.about.is_complete && entry.about.sha256.as_deref() == Some(sha256)
}

/// Opens what is here of an image, and waits for what is not.
fn open_entry(
    url: &RemoteUrl,
    entry: &Entry,
    place: &FetcherPlace,
    options: &ImageOptions,
) -> anyhow::Result<(Image, Arc<WaitingImage>)> {
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
    let opened = opened.map_err(|e| e.with_path(path).into());
    compared(opened, source, entry, place.cache())
}

/// Remembers that the image that was opened has its root hash. One that never had it is another file, and is not kept under that
/// hash.
fn compared<T>(
    opened: anyhow::Result<T>,
    source: Arc<WaitingImage>,
    entry: &Entry,
    cache: &RemoteCache,
) -> anyhow::Result<(T, Arc<WaitingImage>)> {
    match opened {
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
            if entry.about.is_vouched && is_wrong(&e) && !entry.is_compared() {
                cache.remove(entry)?;
            }
            Err(e)
        }
    }
}

/// Whether an image cannot be opened because of what a server has said of it, though somebody else vouches for it.
fn is_doubtful(error: &anyhow::Error, entry: &Entry, cache: &RemoteCache) -> bool {
    let is_doubted = || {
        let now = cache.entry(&entry.key).ok().flatten();
        now.is_some_and(|now| now.about.is_doubted)
    };
    entry.about.is_vouched && (is_wrong(error) || is_doubted())
}

/// Whether the bytes are not those of the image.
fn is_wrong(error: &anyhow::Error) -> bool {
    let is_invalid = |e: &io::Error| e.kind() == io::ErrorKind::InvalidData;
    error.chain().any(|e| {
        e.downcast_ref().is_some_and(is_invalid)
            || e.downcast_ref::<brisk_image::Error>()
                .is_some_and(|e| e.kind() == ErrorKind::Corrupt)
    })
}

/// Whether a server that was asked at `asked` is asked again at `now`, in seconds. A clock that was put back asks.
fn asks_again(asked: u64, now: u64) -> bool {
    now.checked_sub(asked)
        .is_none_or(|since| since >= ASK_AGAIN)
}

/// Asks whether there is a newer image, for the next start. Nobody waits for that.
fn ask_beside(url: &RemoteUrl, place: &FetcherPlace) {
    use std::os::fd::{AsFd, AsRawFd};
    let ask = || {
        let refresh = Ask::Refresh {
            url: url.as_str().to_owned(),
        };
        let asked = Fetcher::at(place).and_then(|mut fetcher| {
            if url.registry().is_some() || url.object().is_some() {
                // A fetcher that was started since does not know who the user is.
                fetcher.resolve(url, false)?;
            }
            fetcher.send(&refresh)
        });
        i32::from(asked.is_err())
    };
    // Without it the image stays as it is.
    if let Ok(null) = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
    {
        start_detached(&[place.cache().fd().as_raw_fd()], null.as_fd(), ask).ok();
    }
}

/// Somebody has waited for a second.
fn tell_wait() {
    if stderr().is_terminal() {
        say("waiting for the network …");
    }
}

/// The path of an image that is complete in the cache, for what only reads files. All of it is compared with its hash tree now,
/// because nobody does that later.
pub fn whole_file(opened: &OpenedRemote) -> anyhow::Result<std::path::PathBuf> {
    if !opened.entry.about.is_complete {
        bail!(
            "{}: the image has not arrived whole, and the kernel reads only whole files; brisk remote fetch {} fetches it",
            opened.entry.about.url,
            opened.entry.about.url
        );
    }
    if let Some(verified) = opened.image.verified() {
        verified.check_all(&Work::new())?;
    }
    Ok(opened.entry.image_path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_lacks_a_codec_gets_no_image_of_it() {
        let of = |zstd, xz| codecs_of(&[("zstd", zstd), ("xz", xz), ("gzip", Support::Module)]);
        for (zstd, xz, codecs) in [
            (Support::Yes, Support::Yes, None),
            (Support::Unknown, Support::Unknown, None),
            (Support::No, Support::Yes, Some("gzip+none+xz")),
            (Support::No, Support::No, Some("gzip+none")),
        ] {
            assert_eq!(of(zstd, xz).map(|names| names.join("+")).as_deref(), codecs);
        }
    }

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
