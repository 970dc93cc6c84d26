//! The tables of pyindex, which brisk-http stores in place of the pages.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use brisk_bench::ways::{Chosen, Package, Question, Way};
use brisk_cache::{Cache, CacheOptions};
use brisk_http::{Client, Options, Request, TableAnswer, TableInput, TableOf, TableOptions};
use futures::{StreamExt, stream};
use http::header::ACCEPT;
use http::{HeaderMap, HeaderValue, Method};
use pyindex::{
    Choice, Chooser, Interpreter, PackageTable, PageError, PageForm, ProjectName, Specifiers, Tags,
    Wanted, in_parts, platforms, table_of_page,
};
use url::Url;

/// A package, as pyindex knows it.
pub(crate) struct OwnPackage {
    pub(crate) url: String,
    pub(crate) name: ProjectName,
    pub(crate) specifiers: Specifiers,
}

impl OwnPackage {
    pub(crate) fn of(package: &Package) -> Result<Self> {
        Ok(Self {
            url: package.url.clone(),
            name: ProjectName::parse(&package.name)?,
            specifiers: Specifiers::parse(&package.specifiers)?,
        })
    }
}

/// What chooses files for a Python on a platform.
pub(crate) fn chooser(python: &str, platform: &str) -> Result<Chooser> {
    let mut numbers = python.split('.').map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
        bail!("{python} is no version of Python");
    };
    let tags = Tags::of(&Interpreter::cpython((major, minor), platforms(platform)?));
    let target = pyindex::Target::new(python, tags).context("the Python is no version")?;
    Ok(Chooser::new(target))
}

/// The table of a package, and the file that was chosen in it.
type OnTable = (TableOf<PackageTable>, Option<Choice>);

fn chosen(
    chooser: &mut Chooser,
    package: &OwnPackage,
    table: TableOf<PackageTable>,
) -> Result<OnTable> {
    let choice = chooser.choose(&table.view()?, &Wanted::of(&package.specifiers))?;
    Ok((table, choice))
}

pub(crate) struct Brisk {
    directory: PathBuf,
    packages: Vec<OwnPackage>,
    headers: HeaderMap,
    chooser: Chooser,
    chosen: Vec<OnTable>,
}

impl Brisk {
    pub(crate) fn prepare(question: &Question) -> Result<Self> {
        let packages = question.packages.iter().map(OwnPackage::of);
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(PageForm::ACCEPT));
        Ok(Self {
            directory: question.directory.clone(),
            packages: packages.collect::<Result<_>>()?,
            headers,
            chooser: chooser(&question.python, &question.platform)?,
            chosen: Vec::new(),
        })
    }

    /// Asks for what is missing or stale.
    fn fetch(
        &self,
        client: &Client,
        missing: &[usize],
    ) -> Result<Vec<(usize, TableOf<PackageTable>)>> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async {
            let tables = stream::iter(missing)
                .map(|&at| async move {
                    let package = &self.packages[at];
                    Ok((at, fetched(client, package, &self.headers).await?))
                })
                .buffer_unordered(super::AT_ONCE)
                .collect::<Vec<Result<_>>>()
                .await;
            // Then all is stored.
            client.idle().await;
            tables.into_iter().collect()
        })
    }
}

async fn fetched(
    client: &Client,
    package: &OwnPackage,
    headers: &HeaderMap,
) -> Result<TableOf<PackageTable>> {
    let mut request = http::Request::get(&package.url).body(())?;
    request.headers_mut().clone_from(headers);
    let name = package.name.clone();
    let make = move |input: &TableInput<'_>| -> Result<Vec<u8>, PageError> {
        let address = Url::parse(input.url).map_err(|_| PageError::NoIndex { links: 0 })?;
        table_of_page(&name, &address, PageForm::Json, input.body)
    };
    let answer = client
        .get_as::<PackageTable, _>(request, &TableOptions::default(), make)
        .await?;
    match answer {
        TableAnswer::Table(table) => Ok(table),
        TableAnswer::Response(response) => {
            bail!("{}: status {}", package.url, response.status())
        }
    }
}

impl Way for Brisk {
    fn choose(&mut self) -> Result<()> {
        let options = CacheOptions::new().limit(4 << 30);
        #[allow(unsafe_code)] // The promise of a mapped cache.
        // SAFETY: only this experiment writes to the directory, by this same crate.
        let cache = unsafe { Cache::open_mapped(&self.directory, options) }?;
        let client = Client::build(cache, Options::private()).finish();
        let begin = || self.chooser.clone();
        let stored = in_parts(&self.packages, begin, |chooser, package| {
            let table = client.layer().find_as(&Request {
                method: &Method::GET,
                url: &package.url,
                headers: &self.headers,
            });
            table
                .map(|table| chosen(chooser, package, table))
                .transpose()
        });
        let mut all = stored.into_iter().collect::<Result<Vec<_>>>()?;
        let missing: Vec<usize> = (0..all.len()).filter(|&at| all[at].is_none()).collect();
        if !missing.is_empty() {
            for (at, table) in self.fetch(&client, &missing)? {
                all[at] = Some(chosen(&mut self.chooser, &self.packages[at], table)?);
            }
        }
        let all = all
            .into_iter()
            .map(|chosen| chosen.context("a page has no table"));
        self.chosen = all.collect::<Result<_>>()?;
        Ok(())
    }

    fn chosen(&self) -> Result<Vec<Option<Chosen>>> {
        let files = self.chosen.iter().map(|(table, choice)| {
            let Some(choice) = choice else {
                return Ok(None);
            };
            let file = table.view()?.file(choice.version, choice.file)?;
            Ok(Some(Chosen {
                file: file.name.into(),
                url: file.url.into(),
            }))
        });
        files.collect()
    }
}
