//! uv's published read path: its client and cache, then the versions of the archive in a map, then the files of the newest
//! ones, until one will do.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use brisk_bench::ways::{Chosen, Package, Question, Way};
use futures::{StreamExt, stream};
use rkyv::rancor::Error;
use tokio::sync::Semaphore;
use uv_cache::Cache;
use uv_client::{
    BaseClientBuilder, MetadataFormat, RegistryClient, RegistryClientBuilder, VersionFiles,
};
use uv_distribution_types::{
    File, Index, IndexCapabilities, IndexFormat, IndexLocations, IndexMetadataRef, IndexUrl,
};
use uv_pep440::Version;

use super::choosing::{Next, Target, Want, choose};

pub(crate) struct UvClient {
    directory: PathBuf,
    packages: Vec<(IndexUrl, Want)>,
    target: Target,
    chosen: Vec<Option<File>>,
}

impl UvClient {
    pub(crate) fn prepare(question: &Question) -> Result<Self> {
        let of =
            |package: &Package| Ok((IndexUrl::from_str(&package.index_url)?, Want::of(package)?));
        let packages: Result<Vec<_>> = question.packages.iter().map(of).collect();
        Ok(Self {
            directory: question.directory.clone(),
            packages: packages?,
            target: Target::of(question)?,
            chosen: Vec::new(),
        })
    }

    async fn open(&self) -> Result<RegistryClient> {
        let cache = Cache::from_path(&self.directory).init().await?;
        // All but the first are asked for by name.
        let first = self.packages.first().context("there are no packages")?;
        let index = Index::from_index_url(first.0.clone());
        Ok(
            RegistryClientBuilder::new(BaseClientBuilder::default(), cache)
                .index_locations(IndexLocations::new(vec![index], Vec::new(), false))
                .build()?,
        )
    }

    async fn one(
        &self,
        client: &RegistryClient,
        index: &IndexUrl,
        want: &Want,
        capabilities: &IndexCapabilities,
        downloads: &Semaphore,
    ) -> Result<Option<File>> {
        let index = IndexMetadataRef {
            url: index,
            format: IndexFormat::Simple,
        };
        let mut found = client
            .simple_detail(&want.name, Some(index), capabilities, downloads)
            .await?;
        let Some((_, MetadataFormat::Simple(archive))) = found.pop() else {
            bail!("{}: the index has no page", want.name);
        };
        let mut versions: BTreeMap<Version, usize> = BTreeMap::new();
        for (at, datum) in archive.iter().enumerate() {
            versions.insert(rkyv::deserialize::<Version, Error>(&datum.version)?, at);
        }
        choose(want, &self.target, |choosing| {
            for (version, &at) in versions.iter().rev() {
                match choosing.version(version) {
                    Next::Done => break,
                    Next::Skip => continue,
                    Next::Look => {}
                }
                let datum = archive.datum(at).context("a version has no files")?;
                let files = rkyv::deserialize::<VersionFiles, Error>(&datum.files)?;
                for (name, file) in files.all(&want.name) {
                    let is_yanked = file
                        .yanked
                        .as_ref()
                        .is_some_and(|yanked| yanked.is_yanked());
                    let requires_python = file.requires_python.clone();
                    choosing.offer(
                        &name,
                        is_yanked,
                        || self.target.is_in(requires_python.as_deref()),
                        || file,
                    );
                }
            }
            Ok(())
        })
    }
}

impl Way for UvClient {
    fn choose(&mut self) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let chosen = runtime.block_on(async {
            let this = &*self;
            let client = &this.open().await?;
            let capabilities = &IndexCapabilities::default();
            let downloads = &Semaphore::new(super::AT_ONCE);
            let chosen = stream::iter(&this.packages)
                .map(|(index, want)| this.one(client, index, want, capabilities, downloads))
                .buffered(super::AT_ONCE)
                .collect::<Vec<Result<_>>>()
                .await;
            chosen.into_iter().collect::<Result<Vec<_>>>()
        });
        self.chosen = chosen?;
        Ok(())
    }

    fn chosen(&self) -> Result<Vec<Option<Chosen>>> {
        let files = self.chosen.iter().map(|file| {
            let Some(file) = file else {
                return Ok(None);
            };
            Ok(Some(Chosen {
                file: file.filename.to_string(),
                url: file.url.to_url()?.to_string(),
            }))
        });
        files.collect()
    }
}
