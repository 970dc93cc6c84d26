//! Downloads the pages of an index once, with what is to be chosen of each.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use brisk_bench::ways::{Chosen, Package, Page as FrozenPage, PageLeftOut, Pages};
use brisk_cache::{Cache, CacheOptions};
use brisk_http::{Client, Options};
use bytes::Bytes;
use futures::{StreamExt, stream};
use http::StatusCode;
use http::header::{ACCEPT, CONTENT_TYPE};
use http_body_util::BodyExt;
use pyindex::{Chooser, IndexTable, PageForm, ProjectName, Wanted, table_of_page};
use url::Url;

use crate::ways::brisk::{OwnPackage, chooser};
use crate::ways::choosing::{Target, Want};
use crate::ways::page::{Page, choose_in};

/// How many pages are asked for at once.
const AT_ONCE: usize = 8;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The index.
    #[arg(long, env = "PIP_INDEX_URL", value_name = "URL")]
    index_url: Url,

    /// Names and specifiers, one in each line.
    #[arg(
        long,
        value_name = "FILE",
        default_value = "workshop/bench/testdata/requirements.txt"
    )]
    requirements: PathBuf,

    /// The project whose page is the largest. It is asked for alone.
    #[arg(long, value_name = "NAME", default_value = "ddtrace")]
    largest: String,

    /// The Python that files are for.
    #[arg(long, value_name = "VERSION", default_value = "3.12.0")]
    python: String,

    /// The platform that files are for.
    #[arg(long, value_name = "TAG", default_value = "manylinux_2_28_x86_64")]
    platform: String,

    /// The directory for the pages.
    #[arg(long, value_name = "DIR", default_value = "target/index-pages")]
    out: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    fs::create_dir_all(&args.out)?;
    let requirements = requirements(args)?;
    let largest = ProjectName::parse(&args.largest)?.as_str().to_owned();
    let mut names: Vec<&str> = requirements.keys().map(String::as_str).collect();
    if !names.contains(&&*largest) {
        names.push(&largest);
    }
    let mut freezing = Freezing {
        args,
        chooser: chooser(&args.python, &args.platform)?,
        target: Target::new(&args.python, &args.platform)?,
    };
    let mut pages = Pages {
        brisk_index_pages: 1,
        python: args.python.clone(),
        platform: args.platform.clone(),
        packages: Vec::new(),
        largest: FrozenPage {
            name: String::new(),
            specifiers: String::new(),
            bytes: 0,
            versions: 0,
            files: 0,
            file: String::new(),
            url: String::new(),
        },
        left_out: Vec::new(),
    };
    for (name, page) in freezing.download(&names)? {
        let specifiers = requirements.get(&name).map_or("", String::as_str);
        let Some(text) = page else {
            pages.left_out.push(PageLeftOut {
                name,
                why: "the index has no page of it in JSON".to_owned(),
            });
            continue;
        };
        match freezing.freeze(&name, specifiers, &text)? {
            Ok(page) if page.name == largest => pages.largest = page,
            Ok(page) => pages.packages.push(page),
            Err(why) => pages.left_out.push(PageLeftOut { name, why }),
        }
    }
    ensure!(
        pages.largest.bytes > 0,
        "{largest}: no way chooses a file of it"
    );
    order(&mut pages.packages);
    pages.write(&args.out)?;
    let bytes: u64 = pages.packages.iter().map(|page| page.bytes).sum();
    println!(
        "{} pages of {:.1} MB, and {} of {:.1} MB",
        pages.packages.len(),
        bytes as f64 / 1e6,
        pages.largest.name,
        pages.largest.bytes as f64 / 1e6
    );
    for left in &pages.left_out {
        println!("left out: {}: {}", left.name, left.why);
    }
    Ok(())
}

/// Specifiers by normalised name.
fn requirements(args: &Args) -> Result<BTreeMap<String, String>> {
    let text = fs::read_to_string(&args.requirements)
        .with_context(|| args.requirements.display().to_string())?;
    let lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let end = line.find(['<', '>', '=', '!', '~']).unwrap_or(line.len());
            let (name, specifiers) = line.split_at(end);
            let name = ProjectName::parse(name).with_context(|| format!("{line:?}"))?;
            Ok((name.as_str().to_owned(), specifiers.to_owned()))
        })
        .collect()
}

/// The page of the middle length comes first, for an experiment with one package. The others come in a random order, which
/// is always the same.
fn order(pages: &mut Vec<FrozenPage>) {
    if pages.is_empty() {
        return;
    }
    pages.sort_by(|a, b| (a.bytes, &a.name).cmp(&(b.bytes, &b.name)));
    let middle = pages.remove(pages.len() / 2);
    fastrand::Rng::with_seed(1).shuffle(pages);
    pages.insert(0, middle);
}

struct Freezing<'a> {
    args: &'a Args,
    chooser: Chooser,
    target: Target,
}

impl Freezing<'_> {
    fn address(&self, name: &str) -> Result<Url> {
        let index = self.args.index_url.as_str().trim_end_matches('/');
        Ok(format!("{index}/{name}/").parse()?)
    }

    /// Pages by name. None if the index has none.
    fn download(&self, names: &[&str]) -> Result<Vec<(String, Option<Bytes>)>> {
        let cache = tempfile::tempdir_in(&self.args.out)?;
        let cache = Cache::open(cache.path(), CacheOptions::new())?;
        let client = &Client::build(cache, Options::private()).finish();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let pages = runtime.block_on(async {
            let pages = stream::iter(names)
                .map(|&name| async move {
                    let address = self.address(name)?;
                    let request = http::Request::get(address.as_str())
                        .header(ACCEPT, "application/vnd.pypi.simple.v1+json")
                        .body("".into())?;
                    let response = client
                        .send(request)
                        .await
                        .with_context(|| name.to_owned())?;
                    if response.status() == StatusCode::NOT_FOUND {
                        return Ok((name.to_owned(), None));
                    }
                    ensure!(
                        response.status() == StatusCode::OK,
                        "{name}: status {}",
                        response.status()
                    );
                    let kind = response.headers().get(CONTENT_TYPE);
                    let is_json = kind
                        .and_then(|kind| kind.to_str().ok())
                        .and_then(PageForm::of_content_type)
                        == Some(PageForm::Json);
                    let text = response.into_body().collect().await?.to_bytes();
                    eprintln!("{name}: {} bytes", text.len());
                    Ok((name.to_owned(), is_json.then_some(text)))
                })
                .buffered(AT_ONCE)
                .collect::<Vec<Result<_>>>()
                .await;
            client.idle().await;
            pages
        });
        pages.into_iter().collect()
    }

    /// Keeps a page, if both pyindex and the crates of uv choose the same file of it. Otherwise says what they choose.
    fn freeze(
        &mut self,
        name: &str,
        specifiers: &str,
        text: &[u8],
    ) -> Result<Result<FrozenPage, String>> {
        let address = self.address(name)?;
        let own = OwnPackage::of(&Package {
            index: String::new(),
            index_url: String::new(),
            url: address.as_str().to_owned(),
            name: name.to_owned(),
            specifiers: specifiers.to_owned(),
        })?;
        let table = table_of_page(&own.name, &address, PageForm::Json, text);
        let table = table.with_context(|| name.to_owned())?;
        let view = IndexTable::view((&*table).into())?.context("it was just made")?;
        let choice = self.chooser.choose(&view, &Wanted::of(&own.specifiers))?;
        let ours = match choice {
            Some(choice) => {
                let file = view.file(choice.version, choice.file)?;
                Some(Chosen {
                    file: file.name.into(),
                    url: file.url.into(),
                })
            }
            None => None,
        };
        let want = Want::new(name, specifiers)?;
        let page = Page::parse(text)?;
        let theirs = choose_in(&page.by_version(&want), &want, &self.target)?;
        if ours != theirs {
            let said = |chosen: Option<Chosen>| match chosen {
                Some(chosen) => chosen.file,
                None => "no file".to_owned(),
            };
            return Ok(Err(format!(
                "pyindex chooses {}, and the crates of uv {}",
                said(ours),
                said(theirs)
            )));
        }
        let Some(chosen) = ours else {
            return Ok(Err("no file will do".to_owned()));
        };
        fs::write(self.args.out.join(format!("{name}.page")), text)?;
        Ok(Ok(FrozenPage {
            name: name.to_owned(),
            specifiers: specifiers.to_owned(),
            bytes: text.len() as u64,
            versions: view.versions() as u64,
            files: view.files() as u64,
            file: chosen.file,
            url: chosen.url,
        }))
    }
}
