//! Images on the network. `brisk-fetch` asks the server, and brings what reads wait for into the user's cache of images.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use brisk_image::verity::{RootHash, Verity};
use brisk_image::{Image, OpenOptions as ImageOptions};
use brisk_remote::{
    Arriving, Descriptor, Entry, Error, ErrorKind, Fetcher, FetcherPlace, OpenOptions, RemoteCache,
    RemoteUrl, WaitingImage, netrc_login, store_key,
};
use brisk_serve::open_arriving;
use rustix::io::Errno;

use crate::fault::{Fault, whole_text};

/// An image on the network, of which the cache has an entry.
pub struct RemoteSource {
    url: RemoteUrl,
    entry: Entry,
    place: FetcherPlace,
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::Name => Self::Misuse(whole_text(&error)),
            _ => Self::Network(whole_text(&error)),
        }
    }
}

impl RemoteSource {
    /// The image of the URL, by the program `fetcher`. A root hash in the URL decides what the image is, whoever sends it.
    /// Else its server vouches for it, if nobody on the way can change what it sends, or with `insecure`.
    pub fn find(url: RemoteUrl, fetcher: Option<PathBuf>, insecure: bool) -> Result<Self, Fault> {
        if url.is_exposed() && url.pin().is_none() && !insecure {
            return Err(Fault::System(
                Errno::ACCESS,
                format!(
                    "nobody vouches for an image by plain http, which anybody on the way can change; name its root hash \
                     ({}#sha256=HASH), or read it all the same (insecure=True)",
                    url.as_str()
                ),
            ));
        }
        let Some(fetcher) = fetcher else {
            return Err(Fault::System(
                Errno::NOENT,
                "brisk-fetch, which reads images from the network, is neither in this installation of the module nor in PATH; \
                 install the wheel that has the programs, or give brisk.Image a file object, such as fsspec.open(url).open()"
                    .to_owned(),
            ));
        };
        let cache = Arc::new(RemoteCache::of_user()?);
        let login = |server: &str| match server.starts_with("s3://") {
            true => store_key(server),
            false => Ok(netrc_login(server)),
        };
        let place = FetcherPlace::new(Arc::clone(&cache), &fetcher).login(login);
        let known = cache.known(&url)?;
        let is_doubted = known.as_ref().is_some_and(|entry| entry.about.is_doubted);
        let entry = match known {
            // Nobody needs to be asked what it is.
            Some(entry) if entry.about.is_complete && !is_doubted && url.is_fixed() => entry,
            _ => ask(&url, &place, is_doubted)?,
        };
        Ok(Self { url, entry, place })
    }

    /// Opens what is here of it, and waits for what is not.
    pub fn open(&self) -> Result<Image, Fault> {
        let arriving = Arc::new(Arriving::open(&self.entry)?);
        let source = Arc::new(WaitingImage::new(arriving, self.place.clone()));
        let text = self.entry.described()?.descriptor;
        let described = text.and_then(|text| Descriptor::parse(&text).ok());
        let root = self.entry.about.root.as_deref();
        let root = root.map(str::parse::<RootHash>).transpose()?;
        let path = Path::new(self.url.as_str());
        let verity = root.map(Verity::new);
        Ok(open_arriving(
            source,
            path,
            verity,
            described.as_ref(),
            &ImageOptions::new(),
        )?)
    }
}

/// Asks the server what the URL leads to, and lets that arrive.
fn ask(url: &RemoteUrl, place: &FetcherPlace, anew: bool) -> Result<Entry, Error> {
    let mut fetcher = Fetcher::at(place)?;
    let resolved = fetcher.resolve(url, anew)?;
    let options = OpenOptions {
        root: url
            .pin()
            .map(str::to_owned)
            .or_else(|| resolved.root_by_digest(url)),
        ..OpenOptions::default()
    };
    let opened = fetcher.open(url, &resolved, &options, anew)?;
    let cache = place.cache();
    cache.remember(url, &opened.key, None)?;
    let removed = || {
        Error::new(
            ErrorKind::Place,
            format!("{}: it was removed from the cache meanwhile", url.as_str()),
        )
    };
    cache.entry(&opened.key)?.ok_or_else(removed)
}
