//! Images on the network. `brisk-fetch` asks the server, and brings what reads wait for into the user's cache of images.

use std::error::Error as _;
use std::path::PathBuf;

use brisk_image::{Image, OpenOptions as ImageOptions};
use brisk_remote::{Entry, Error, ErrorKind, FetcherPlace, RemoteUrl};
use brisk_trust::{ArgumentNames, OpenError, OpenedRemote, RemoteOptions, TrustedKeys, open_entry};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBool;
use rustix::io::Errno;

use crate::fault::{Fault, whole_text};

/// What messages call the arguments of `brisk.Image`.
const NAMES: ArgumentNames = ArgumentNames {
    trust: "trust=",
    trust_key: "trust=\"KEY.pub\"",
    insecure: "insecure=True",
    refresh: "refresh=True",
    variant: "variant=",
};

/// Who may vouch for an image.
pub enum Trust {
    /// Its server, if nobody is on the way.
    Server,
    /// The keys that are installed.
    Installed,
    /// The keys in these files.
    Named(Vec<PathBuf>),
}

impl Trust {
    /// What the argument `trust` means: None, a truth value, the path of a file, or several.
    pub fn extract(given: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let Some(given) = given else {
            return Ok(Self::Server);
        };
        if let Ok(is_wanted) = given.cast::<PyBool>() {
            return Ok(match is_wanted.is_true() {
                true => Self::Installed,
                false => Self::Server,
            });
        }
        let files: Vec<PathBuf> = match given.extract() {
            Ok(file) => vec![file],
            Err(_) => given
                .try_iter()?
                .map(|file| file?.extract())
                .collect::<PyResult<_>>()?,
        };
        if files.is_empty() {
            return Err(PyValueError::new_err(
                "trust= has no key, so nothing would be accepted; name the files of public keys, or True for those that are installed",
            ));
        }
        // A pickle may be read in another directory.
        let files = files.into_iter().map(std::path::absolute);
        Ok(Self::Named(files.collect::<std::io::Result<_>>()?))
    }

    /// The argument that means this everywhere.
    pub fn given<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Self::Server => Ok(py.None().into_bound(py)),
            Self::Installed => true.into_bound_py_any(py),
            Self::Named(files) => files.into_bound_py_any(py),
        }
    }
}

/// What the arguments of `brisk.Image` ask for.
pub struct Wanted {
    pub trust: Trust,
    pub insecure: bool,
    pub refresh: bool,
    pub variant: Option<String>,
}

impl Wanted {
    /// Fails if something is asked for that only images on the network have.
    pub fn refuse_without_url(&self) -> PyResult<()> {
        let what = match (&self.trust, &self.variant) {
            (Trust::Server, None) => return Ok(()),
            (Trust::Server, Some(_)) => NAMES.variant,
            _ => NAMES.trust,
        };
        Err(PyValueError::new_err(format!(
            "{what} is for the URL of an image, and this is a file; leave it out"
        )))
    }
}

/// An image on the network, of which the cache has an entry.
pub struct RemoteSource {
    url: RemoteUrl,
    entry: Entry,
    place: FetcherPlace,
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let text = whole_text(&error);
        let number = match error.kind() {
            ErrorKind::Name => return Self::Misuse(text),
            ErrorKind::Untrusted => Errno::ACCESS,
            _ => {
                let system = error.source().and_then(|e| e.downcast_ref());
                system.and_then(Errno::from_io_error).unwrap_or(Errno::IO)
            }
        };
        Self::Network(number, text)
    }
}

impl From<OpenError> for Fault {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Remote(e) => e.into(),
            OpenError::Image(e) => e.into(),
        }
    }
}

impl RemoteSource {
    /// The image of the URL, by the program `fetcher`, and how to open it again.
    pub fn open(
        url: &RemoteUrl,
        fetcher: Option<PathBuf>,
        wanted: Wanted,
    ) -> Result<(Self, Image), Fault> {
        let Some(fetcher) = fetcher else {
            return Err(Fault::System(
                Errno::NOENT,
                "brisk-fetch, which reads images from the network, is neither in this installation of the module nor in PATH; \
                 install the wheel that has the programs, or give brisk.Image a file object, such as fsspec.open(url).open()"
                    .to_owned(),
            ));
        };
        let options = RemoteOptions {
            insecure: wanted.insecure,
            refresh: wanted.refresh,
            variant: wanted.variant,
            warn,
            ..RemoteOptions::new(fetcher, NAMES)
        };
        let keys = match wanted.trust {
            Trust::Server => None,
            Trust::Installed => Some(TrustedKeys::installed(NAMES)?),
            Trust::Named(files) => Some(TrustedKeys::named(&files, NAMES)?),
        };
        let opened = options.open(url, keys.as_ref(), &ImageOptions::new())?;
        let OpenedRemote {
            url,
            place,
            entry,
            image,
            ..
        } = opened;
        Ok((Self { url, entry, place }, image))
    }

    /// Opens what is here of it once more, and waits for what is not.
    pub fn open_again(&self) -> Result<Image, Fault> {
        let opened = open_entry(&self.url, &self.entry, &self.place, &ImageOptions::new())?;
        Ok(opened.0)
    }
}

/// Warns as Python does. What a filter makes of it stops nothing.
fn warn(text: &str) {
    Python::attach(|py| {
        let warned = py
            .import("warnings")
            .and_then(|warnings| warnings.call_method1("warn", (text,)));
        if let Err(raised) = warned {
            raised.write_unraisable(py, None);
        }
    });
}
