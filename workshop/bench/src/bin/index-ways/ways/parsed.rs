//! One file for each package, with its HTTP policy and the parsed page in MessagePack. All of it is deserialised each time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::SystemTime;

use anyhow::{Result, bail};
use brisk_bench::ways::Chosen;
use http::header::{ETAG, IF_NONE_MATCH};
use http::{HeaderMap, Response, StatusCode};
use http_cache_semantics::{AfterResponse, BeforeRequest, CachePolicy};
use serde::{Deserialize, Serialize};
use uv_pep440::{Version, VersionSpecifiers};

use super::choosing::{Next, Target, choose};
use super::fetching::{Entry, Store, Stored, read, replace};
use super::freshness::request;
use super::page::{Page, PageFile, Yanked};

#[derive(Serialize, Deserialize)]
pub(super) struct ParsedEntry {
    policy: CachePolicy,
    page: BTreeMap<Version, Vec<File>>,
}

#[derive(Serialize, Deserialize)]
struct File {
    name: String,
    url: String,
    sha256: String,
    size: Option<u64>,
    uploaded: Option<String>,
    requires_python: Option<VersionSpecifiers>,
    yanked: Yanked,
    metadata: Option<String>,
}

impl File {
    fn of(file: &PageFile<'_>) -> Self {
        let requires_python = file.requires_python.as_deref();
        Self {
            name: file.filename.to_string(),
            url: file.url.to_string(),
            sha256: file.hashes.sha256.to_string(),
            size: file.size,
            uploaded: file.upload_time.clone(),
            requires_python: requires_python
                .and_then(|text| VersionSpecifiers::from_str(text).ok()),
            yanked: file.yanked.clone(),
            metadata: file.core_metadata.digest().map(str::to_owned),
        }
    }
}

pub(super) struct Parsed {
    directory: PathBuf,
}

impl Parsed {
    fn path(&self, entry: &Entry) -> PathBuf {
        entry.path(&self.directory, "msgpack")
    }

    fn write(&self, entry: &Entry, parsed: &ParsedEntry) -> Result<()> {
        replace(&self.path(entry), &rmp_serde::to_vec(parsed)?)
    }
}

fn choose_in(
    page: &BTreeMap<Version, Vec<File>>,
    entry: &Entry,
    target: &Target,
) -> Result<Option<Chosen>> {
    choose(&entry.want, target, |choosing| {
        for (version, files) in page.iter().rev() {
            match choosing.version(version) {
                Next::Done => break,
                Next::Skip => continue,
                Next::Look => {}
            }
            for file in files {
                choosing.offer_named(
                    &file.name,
                    file.yanked.is_yanked(),
                    || target.is_in(file.requires_python.as_ref()),
                    || Chosen {
                        file: file.name.clone(),
                        url: file.url.clone(),
                    },
                );
            }
        }
        Ok(())
    })
}

fn response(status: StatusCode, headers: &HeaderMap) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = status;
    response.headers_mut().clone_from(headers);
    response
}

impl Store for Parsed {
    type Kept = ParsedEntry;

    fn open(directory: &Path) -> Result<Self> {
        Ok(Self {
            directory: directory.to_owned(),
        })
    }

    fn stored(&self, entry: &Entry, target: &Target) -> Result<Stored<ParsedEntry>> {
        let Some(bytes) = read(&self.path(entry))? else {
            return Ok(Stored::Missing);
        };
        let parsed: ParsedEntry = rmp_serde::from_slice(&bytes)?;
        match parsed
            .policy
            .before_request(&request(&entry.url)?, SystemTime::now())
        {
            BeforeRequest::Fresh(_) => Ok(Stored::Fresh(choose_in(&parsed.page, entry, target)?)),
            BeforeRequest::Stale { request, .. } => {
                let tag = request.headers.get(IF_NONE_MATCH);
                let tag = tag.and_then(|tag| tag.to_str().ok());
                Ok(match tag {
                    Some(tag) => Stored::Stale(tag.to_owned(), parsed),
                    None => Stored::Missing,
                })
            }
        }
    }

    fn fetched(
        &self,
        entry: &Entry,
        target: &Target,
        headers: &HeaderMap,
        page: &[u8],
    ) -> Result<Option<Chosen>> {
        let page = Page::parse(page)?;
        let versions = page.by_version(&entry.want).into_iter();
        let parsed = ParsedEntry {
            policy: CachePolicy::new(&request(&entry.url)?, &response(StatusCode::OK, headers)),
            page: versions
                .map(|(version, files)| (version, files.into_iter().map(File::of).collect()))
                .collect(),
        };
        self.write(entry, &parsed)?;
        choose_in(&parsed.page, entry, target)
    }

    fn holds(
        &self,
        entry: &Entry,
        target: &Target,
        headers: &HeaderMap,
        kept: ParsedEntry,
    ) -> Result<Option<Chosen>> {
        let mut asked = request(&entry.url)?;
        if let Some(tag) = headers.get(ETAG) {
            asked.headers_mut().insert(IF_NONE_MATCH, tag.clone());
        }
        let said = response(StatusCode::NOT_MODIFIED, headers);
        let policy = match kept.policy.after_response(&asked, &said, SystemTime::now()) {
            AfterResponse::NotModified(policy, _) => policy,
            AfterResponse::Modified(..) => bail!("{}: a 304 for another page", entry.url),
        };
        let parsed = ParsedEntry {
            policy,
            page: kept.page,
        };
        self.write(entry, &parsed)?;
        choose_in(&parsed.page, entry, target)
    }
}
