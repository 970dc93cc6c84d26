//! brisk-http decides on the stored policy, without deserialising it, and lends the page. The page is parsed each time.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use brisk_bench::ways::{Chosen, Package, Question, Way};
use brisk_cache::{Cache, CacheOptions};
use brisk_http::{Client, Options};
use futures::{StreamExt, stream};
use http::StatusCode;
use http::header::ACCEPT;
use http_body_util::BodyExt;

use super::choosing::{Target, Want};
use super::page::{Page, choose_in};

pub(crate) struct PolicyOnly {
    directory: PathBuf,
    packages: Vec<(String, Want)>,
    target: Target,
    chosen: Vec<Option<Chosen>>,
}

impl PolicyOnly {
    pub(crate) fn prepare(question: &Question) -> Result<Self> {
        let of = |package: &Package| Ok((package.url.clone(), Want::of(package)?));
        let packages: Result<Vec<_>> = question.packages.iter().map(of).collect();
        Ok(Self {
            directory: question.directory.clone(),
            packages: packages?,
            target: Target::of(question)?,
            chosen: Vec::new(),
        })
    }

    async fn one(&self, client: &Client, url: &str, want: &Want) -> Result<Option<Chosen>> {
        let request = http::Request::get(url)
            .header(ACCEPT, super::ACCEPT)
            .body("".into())?;
        let response = client.send(request).await?;
        ensure!(
            response.status() == StatusCode::OK,
            "{url}: status {}",
            response.status()
        );
        let body = response.into_body();
        if let Some((hit, range)) = body.stored() {
            let page = hit.bytes()?.get(range).context("the page is too short")?;
            return self.choose_in(page, want);
        }
        let page = body.collect().await?.to_bytes();
        self.choose_in(&page, want)
    }

    fn choose_in(&self, page: &[u8], want: &Want) -> Result<Option<Chosen>> {
        let page = Page::parse(page)?;
        choose_in(&page.by_version(want), want, &self.target)
    }
}

impl Way for PolicyOnly {
    fn choose(&mut self) -> Result<()> {
        let options = CacheOptions::new().limit(16 << 30);
        #[allow(unsafe_code)] // The promise of a mapped cache.
        // SAFETY: only this experiment writes to the directory, by this same crate.
        let cache = unsafe { Cache::open_mapped(&self.directory, options) }?;
        let client = Client::build(cache, Options::private()).finish();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let chosen = runtime.block_on(async {
            let this = &*self;
            let client = &client;
            let chosen = stream::iter(&this.packages)
                .map(|(url, want)| this.one(client, url, want))
                .buffered(super::AT_ONCE)
                .collect::<Vec<Result<_>>>()
                .await;
            client.idle().await;
            chosen
        });
        self.chosen = chosen.into_iter().collect::<Result<_>>()?;
        Ok(())
    }

    fn chosen(&self) -> Result<Vec<Option<Chosen>>> {
        Ok(self.chosen.clone())
    }
}
