//! A page of an index in JSON, and its files by version.

use std::borrow::Cow;
use std::collections::BTreeMap;

use anyhow::Result;
use brisk_bench::ways::Chosen;
use serde::{Deserialize, Serialize};
use uv_distribution_filename::DistFilename;
use uv_pep440::Version;

use super::choosing::{Next, Target, Want, choose};

/// A page as JSON has it.
#[derive(Deserialize)]
pub(crate) struct Page<'a> {
    #[serde(borrow)]
    pub(crate) files: Vec<PageFile<'a>>,
}

/// A file of a page.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct PageFile<'a> {
    #[serde(borrow)]
    pub(crate) filename: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) url: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) hashes: Hashes<'a>,
    #[serde(default)]
    pub(crate) requires_python: Option<String>,
    #[serde(default)]
    pub(crate) size: Option<u64>,
    #[serde(default)]
    pub(crate) upload_time: Option<String>,
    #[serde(default)]
    pub(crate) yanked: Yanked,
    #[serde(default, borrow)]
    pub(crate) core_metadata: Metadata<'a>,
}

/// The digest that indexes give.
#[derive(Default, Deserialize)]
pub(crate) struct Hashes<'a> {
    #[serde(borrow, default)]
    pub(crate) sha256: Cow<'a, str>,
}

/// Whether a file is yanked, and why.
#[derive(Clone, Deserialize, Serialize)]
#[serde(untagged)]
pub(crate) enum Yanked {
    Flag(bool),
    Reason(String),
}

impl Default for Yanked {
    fn default() -> Self {
        Self::Flag(false)
    }
}

impl Yanked {
    pub(crate) fn is_yanked(&self) -> bool {
        !matches!(self, Self::Flag(false))
    }

    pub(crate) fn reason(&self) -> Option<&str> {
        match self {
            Self::Flag(false) => None,
            Self::Flag(true) => Some(""),
            Self::Reason(reason) => Some(reason),
        }
    }
}

/// The metadata that an index has as a file of its own.
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum Metadata<'a> {
    Flag(bool),
    #[serde(borrow)]
    Hashes(Hashes<'a>),
}

impl Default for Metadata<'_> {
    fn default() -> Self {
        Self::Flag(false)
    }
}

impl Metadata<'_> {
    /// Its digest, which may be unknown.
    pub(crate) fn digest(&self) -> Option<&str> {
        match self {
            Self::Flag(false) => None,
            Self::Flag(true) => Some(""),
            Self::Hashes(hashes) => Some(&hashes.sha256),
        }
    }
}

/// The files of a page by version: uv's crates name the versions of files, and those that they do not know are left out.
pub(crate) type ByVersion<'p, 'a> = BTreeMap<Version, Vec<&'p PageFile<'a>>>;

impl<'a> Page<'a> {
    pub(crate) fn parse(text: &'a [u8]) -> Result<Self> {
        Ok(serde_json::from_slice(text)?)
    }

    pub(crate) fn by_version(&self, want: &Want) -> ByVersion<'_, 'a> {
        let mut versions = ByVersion::new();
        for file in &self.files {
            if let Some(name) = DistFilename::try_from_filename(&file.filename, &want.name) {
                versions.entry(name.into_version()).or_default().push(file);
            }
        }
        versions
    }
}

/// The best file of a page, whose files are by version.
pub(crate) fn choose_in(
    versions: &ByVersion<'_, '_>,
    want: &Want,
    target: &Target,
) -> Result<Option<Chosen>> {
    choose(want, target, |choosing| {
        for (version, files) in versions.iter().rev() {
            match choosing.version(version) {
                Next::Done => break,
                Next::Skip => continue,
                Next::Look => {}
            }
            for file in files {
                choosing.offer_named(
                    &file.filename,
                    file.yanked.is_yanked(),
                    || target.is_taken_by(file.requires_python.as_deref()),
                    || Chosen {
                        file: file.filename.to_string(),
                        url: file.url.to_string(),
                    },
                );
            }
        }
        Ok(())
    })
}
