//! The options of images on the network, and hot packs there.

use std::io::{IsTerminal, stderr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use brisk_image::hot_pack::HotPack;
use brisk_image::verity::{RootHash, Verity};
use brisk_image::{Limits, OpenOptions as ImageOptions, Work};
use brisk_remote::{
    Arriving, Background, Class, Descriptor, Entry, Fetcher, RemoteUrl, WAIT, WaitingImage, is_tag,
    now,
};
use brisk_serve::{KernelSupport, RemoteImage, RemotePack, Support, open_arriving_pack};
use brisk_terminal::age::parse_linger;
use brisk_terminal::messages::{say, warn};
use brisk_terminal::names::shown;
use brisk_terminal::size::parse_size;
use brisk_trust::{
    ArgumentNames, OpenError, OpenedRemote, RemoteOptions, TrustedKeys, compared,
    digest_of_manifest,
};

use crate::launcher::beside;

/// The program that asks the network.
pub const FETCH: &str = "brisk-fetch";

/// What messages call the arguments of these commands.
pub const NAMES: ArgumentNames = ArgumentNames {
    trust: "--trust",
    trust_key: "--trust KEY.pub",
    insecure: "--insecure",
    refresh: "--refresh",
    variant: "--variant",
};

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
}

/// A [`Background`] as it is written.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum When {
    Never,
    Idle,
    Full,
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
    fn options(&self, background: Option<Background>) -> anyhow::Result<RemoteOptions> {
        let program = beside(FETCH).context("cannot find brisk's own file")?;
        Ok(RemoteOptions {
            insecure: self.insecure,
            refresh: self.refresh,
            background: match self.background {
                None => background.unwrap_or_default(),
                Some(When::Never) => Background::Never,
                Some(When::Idle) => Background::Idle,
                Some(When::Full) => Background::Full,
            },
            limit_rate: self.limit_rate,
            wait: self.wait.map_or(WAIT, |wait| wait.as_secs().max(1)),
            on_wait: tell_wait,
            variant: self.variant.clone(),
            codecs: self.codecs.clone(),
            has_threads: false,
            warn,
            ..RemoteOptions::new(program, NAMES)
        })
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
        let url = RemoteUrl::of_user(name)?;
        let opened = self.options(background)?.open(&url, trusted, options);
        opened.map_err(plain)
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
        let Some(opened) = opened.filter(|opened| !opened.url.is_presigned() && has_none(opened))
        else {
            return Ok(None);
        };
        let url = RemoteUrl::parse(&opened.entry.about.url)?;
        let beside = match url.registry() {
            None => Some(url.beside(".hot")),
            Some(name) => {
                let digest = pushed_pack(&url, opened, arrives).unwrap_or_default();
                digest.map(|digest| name.at_digest(&digest))
            }
        };
        let Some(beside) = beside else {
            return Ok(None);
        };
        let beside = RemoteUrl::parse(&beside)?;
        // A start of what is here needs no network, and one of another image no three round trips each time to hear that there is no
        // pack. What is not there is no fault.
        let is_absent = !self.refresh && opened.place.cache().is_absent(&beside, now());
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
        let of_pack = of_pack.options(None)?;
        match keys().and_then(|keys| RemoteHot::signed(&of_pack, url, &keys, asks, arrives)) {
            Ok(signed) => Ok(signed),
            Err(e) => RemoteHot::list(&of_pack, url, format!("{e:#}"), asks),
        }
    }
}

impl RemoteHot {
    fn signed(
        options: &RemoteOptions,
        url: &RemoteUrl,
        keys: &TrustedKeys,
        asks: bool,
        arrives: bool,
    ) -> anyhow::Result<Self> {
        // Without a key nothing is asked for.
        keys.check_any(&shown(url.as_str()))?;
        let place = options.place()?;
        let known = place.cache().known(url)?;
        let is_whole = |entry: &Entry| entry.about.is_complete;
        let not_here = "the image is here, and the pack is not";
        ensure!(asks || known.as_ref().is_some_and(is_whole), not_here);
        // A list arrives without what its server says of the pack, so that is asked for.
        let is_list = known.is_some_and(
            |entry| matches!(entry.described(), Ok(found) if found.descriptor.is_none()),
        );
        let asking = RemoteOptions {
            refresh: options.refresh || is_list,
            ..options.clone()
        };
        let entry = asking.entry(url, &place, Some(keys), false)?;
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
        let compared = compared(opened.map(drop), source, &entry, place.cache());
        let ((), source) = compared.map_err(plain)?;
        let file = RemoteImage::new(place.cache().path(), &*entry.key, place.program());
        Ok(Self {
            used: UsedHot::Signed(RemotePack::new(name, file, Verity::new(root))),
            source,
        })
    }

    fn list(
        options: &RemoteOptions,
        url: &RemoteUrl,
        why: String,
        asks: bool,
    ) -> anyhow::Result<Self> {
        let place = options.place()?;
        let any = RemoteOptions {
            insecure: true,
            is_list: true,
            ..options.clone()
        };
        let entry = match asks {
            true => any.entry(url, &place, None, false)?,
            false => place
                .cache()
                .known(url)?
                .context("nothing is known of it")?,
        };
        let arriving = Arc::new(Arriving::open(&entry)?);
        let source = Arc::new(WaitingImage::new(arriving, place));
        let pack = HotPack::from_source(Arc::clone(&source), &Limits::default());
        pack.with_context(|| format!("{url} is no hot pack that brisk can use"))?;
        Ok(Self {
            used: UsedHot::List {
                path: entry.image_path(),
                why,
            },
            source,
        })
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

/// What commands say of it.
fn plain(error: OpenError) -> anyhow::Error {
    match error {
        OpenError::Remote(e) => e.into(),
        OpenError::Image(e) => e.into(),
    }
}

/// The digest of the manifest of the hot pack that somebody has pushed for an image. `asks`: the registry is asked, if none is known.
fn pushed_pack(
    url: &RemoteUrl,
    opened: &OpenedRemote,
    asks: bool,
) -> anyhow::Result<Option<String>> {
    let known = opened.entry.pack()?;
    if known.is_some() || !asks {
        return Ok(known);
    }
    let Some(subject) = digest_of_manifest(&opened.entry.described()?) else {
        return Ok(None);
    };
    let digest = Fetcher::at(&opened.place)?.referrer(url, subject)?;
    opened.entry.note_pack(&digest)?;
    Ok(Some(digest))
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
}
