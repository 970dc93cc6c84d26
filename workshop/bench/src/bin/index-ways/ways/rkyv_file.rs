//! One rkyv file for each package. It is read whole and checked each time, and the choice is made on the archive.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result};
use brisk_bench::ways::Chosen;
use http::HeaderMap;
use rkyv::rancor::Error;
use rkyv::util::AlignedVec;
use uv_pep440::Version;

use super::choosing::{Next, Target, choose};
use super::fetching::{Entry, Store, Stored, replace};
use super::freshness::{Facts, seconds};
use super::page::{Page, PageFile};

/// Before the archive, so that it stays aligned, is the time until which it is fresh, in seconds since 1970.
const HEAD: usize = 16;

#[derive(rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
struct Stand {
    tag: String,
    /// The newest first.
    versions: Vec<OfVersion>,
}

#[derive(rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
struct OfVersion {
    version: Version,
    files: Vec<File>,
}

#[derive(rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
struct File {
    name: String,
    url: String,
    sha256: String,
    size: Option<u64>,
    uploaded: Option<String>,
    requires_python: Option<String>,
    yanked: Option<String>,
    metadata: Option<String>,
}

impl File {
    fn of(file: &PageFile<'_>) -> Self {
        Self {
            name: file.filename.to_string(),
            url: file.url.to_string(),
            sha256: file.hashes.sha256.to_string(),
            size: file.size,
            uploaded: file.upload_time.clone(),
            requires_python: file.requires_python.clone(),
            yanked: file.yanked.reason().map(str::to_owned),
            metadata: file.core_metadata.digest().map(str::to_owned),
        }
    }
}

pub(super) struct RkyvFile {
    directory: PathBuf,
}

fn choose_in(stand: &ArchivedStand, entry: &Entry, target: &Target) -> Result<Option<Chosen>> {
    choose(&entry.want, target, |choosing| {
        for of_version in stand.versions.iter() {
            let version = rkyv::deserialize::<Version, Error>(&of_version.version)?;
            match choosing.version(&version) {
                Next::Done => break,
                Next::Skip => continue,
                Next::Look => {}
            }
            for file in of_version.files.iter() {
                choosing.offer_named(
                    &file.name,
                    file.yanked.is_some(),
                    || target.is_taken_by(file.requires_python.as_deref()),
                    || Chosen {
                        file: file.name.as_str().to_owned(),
                        url: file.url.as_str().to_owned(),
                    },
                );
            }
        }
        Ok(())
    })
}

impl RkyvFile {
    fn path(&self, entry: &Entry) -> PathBuf {
        entry.path(&self.directory, "rkyv")
    }

    fn put(&self, entry: &Entry, bytes: &mut [u8], fresh_until: i64) -> Result<()> {
        let time = bytes.get_mut(..8).context("the file is too short")?;
        time.copy_from_slice(&fresh_until.to_le_bytes());
        replace(&self.path(entry), bytes)
    }
}

impl Store for RkyvFile {
    /// The file.
    type Kept = AlignedVec;

    fn open(directory: &Path) -> Result<Self> {
        Ok(Self {
            directory: directory.to_owned(),
        })
    }

    fn stored(&self, entry: &Entry, target: &Target) -> Result<Stored<AlignedVec>> {
        let Some(bytes) = read_aligned(&self.path(entry))? else {
            return Ok(Stored::Missing);
        };
        let (fresh_until, stand) = parts(&bytes)?;
        if seconds(SystemTime::now()) < fresh_until {
            return Ok(Stored::Fresh(choose_in(stand, entry, target)?));
        }
        let tag = stand.tag.as_str().to_owned();
        Ok(Stored::Stale(tag, bytes))
    }

    fn fetched(
        &self,
        entry: &Entry,
        target: &Target,
        headers: &HeaderMap,
        page: &[u8],
    ) -> Result<Option<Chosen>> {
        let facts = Facts::of(&entry.url, headers)?;
        let page = Page::parse(page)?;
        let versions = page.by_version(&entry.want).into_iter().rev();
        let stand = Stand {
            tag: facts.tag,
            versions: versions
                .map(|(version, files)| OfVersion {
                    version,
                    files: files.into_iter().map(File::of).collect(),
                })
                .collect(),
        };
        let mut bytes: AlignedVec = AlignedVec::new();
        bytes.extend_from_slice(&[0; HEAD]);
        bytes.extend_from_slice(&rkyv::to_bytes::<Error>(&stand)?);
        self.put(entry, &mut bytes, facts.fresh_until)?;
        choose_in(parts(&bytes)?.1, entry, target)
    }

    fn holds(
        &self,
        entry: &Entry,
        target: &Target,
        headers: &HeaderMap,
        mut kept: AlignedVec,
    ) -> Result<Option<Chosen>> {
        let facts = Facts::of(&entry.url, headers)?;
        self.put(entry, &mut kept, facts.fresh_until)?;
        choose_in(parts(&kept)?.1, entry, target)
    }
}

/// The time until which a page is fresh, and the archive, which is checked.
fn parts(bytes: &[u8]) -> Result<(i64, &ArchivedStand)> {
    let (time, _) = bytes.split_first_chunk().context("the file is too short")?;
    let archive = bytes.get(HEAD..).context("the file is too short")?;
    Ok((
        i64::from_le_bytes(*time),
        rkyv::access::<ArchivedStand, Error>(archive)?,
    ))
}

/// Reads a file into memory that is aligned as an archive must be. None if there is none.
fn read_aligned(path: &Path) -> Result<Option<AlignedVec>> {
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let len = usize::try_from(file.metadata()?.len())?;
    let mut bytes = AlignedVec::with_capacity(len);
    bytes.extend_from_reader(&mut &file)?;
    Ok(Some(bytes))
}
