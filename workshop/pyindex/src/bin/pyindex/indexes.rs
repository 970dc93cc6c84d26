//! The indexes, and the tables of their pages.

use std::borrow::Cow;
use std::env;
use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, bail};
use brisk_cache::{Cache, CacheOptions};
use brisk_http::{
    Client, Options, Request, Secret, TableAnswer, TableInput, TableOf, TableOptions,
};
use data_encoding::BASE64;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH,
    CONTENT_TYPE,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use percent_encoding::percent_decode_str;
use pyindex::{
    IndexTable, LARGEST_PAGE, PackageTable, PageError, PageForm, ProjectName, decoded, in_parts,
    table_of_page, table_of_whole_page,
};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use url::Url;

use crate::args::Common;

/// Requests that are prepared at once. The client sends fewer to each host.
const MOST_AT_ONCE: usize = 256;

/// The indexes that are asked, and what is stored of them.
pub(crate) struct Indexes {
    all: Arc<[Index]>,
    client: Client,
    /// Made when something is to be sent.
    runtime: OnceLock<Runtime>,
    is_offline: bool,
}

#[derive(Debug)]
struct Index {
    /// Ends with a slash, and has no credentials.
    url: Url,
    headers: HeaderMap,
}

impl Index {
    /// A URL may have a user and a password. They go into a field, and nowhere else.
    fn new(text: &str, option: &str) -> anyhow::Result<Self> {
        let parsed = Url::parse(text.trim())
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        // It may have a password, so it is not shown.
        let mut url = parsed
            .with_context(|| format!("{option} names an index that is no URL of http or https"))?;
        url.set_query(None);
        url.set_fragment(None);
        if !url.path().ends_with('/') {
            let path = format!("{}/", url.path());
            url.set_path(&path);
        }
        let mut headers = HeaderMap::new();
        headers.extend(authorization(&mut url)?.map(|value| (AUTHORIZATION, value)));
        Ok(Self { url, headers })
    }

    /// Whether it is where a file is, so that it may have its credentials.
    fn is_origin_of(&self, file: &Url) -> bool {
        self.url.origin() == file.origin()
    }
}

/// The page of a project.
pub(crate) struct Page {
    table: TableOf<PackageTable>,
    /// The place of the index that has it.
    index: usize,
}

impl Page {
    /// A look at its table.
    pub(crate) fn view(&self) -> io::Result<IndexTable<'_>> {
        self.table.view()
    }

    /// Of the index that has it: see [`Indexes::headers_for`].
    pub(crate) fn index(&self) -> usize {
        self.index
    }
}

/// None if no index has the project.
pub(crate) type Found = Option<Page>;

impl Indexes {
    pub(crate) fn open(args: &Common) -> anyhow::Result<Self> {
        let extras = args.extra_index_url.iter();
        let named = extras.map(|url| (url, "--extra-index-url"));
        let named = named.chain(args.index_url.iter().map(|url| (url, "--index-url")));
        let mut all = Vec::new();
        // A variable may be empty.
        for (url, option) in named.filter(|(url, _)| !url.trim().is_empty()) {
            let mut index = Index::new(url, option)?;
            let headers = &mut index.headers;
            headers.insert(ACCEPT, HeaderValue::from_static(PageForm::ACCEPT));
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
            if args.refresh {
                // As a browser reloads: what is immutable is not asked for.
                headers.insert(CACHE_CONTROL, HeaderValue::from_static("max-age=0"));
            }
            all.push(index);
        }
        if all.is_empty() {
            bail!("no index is named; name one with --index-url URL or in PIP_INDEX_URL");
        }
        let directory = match &args.cache {
            Some(directory) => directory.clone(),
            None => cache_directory()?,
        };
        let opened = || -> anyhow::Result<Client> {
            let mut options = Options::private();
            options.secret = Some(secret(&directory)?);
            options.offline = args.offline;
            // SAFETY: nothing but brisk-cache writes to this directory, and it never changes what it has published.
            #[allow(unsafe_code, reason = "the promise that open_mapped asks for")]
            let cache =
                unsafe { Cache::open_mapped(&directory.join("pages"), CacheOptions::new()) }?;
            Ok(Client::build(cache, options).finish())
        };
        let client = opened().with_context(|| directory.display().to_string())?;
        Ok(Self {
            all: all.into(),
            client,
            runtime: OnceLock::new(),
            is_offline: args.offline,
        })
    }

    pub(crate) fn is_offline(&self) -> bool {
        self.is_offline
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn runtime(&self) -> anyhow::Result<&Runtime> {
        if self.runtime.get().is_none() {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            // Nobody else sets it.
            self.runtime.get_or_init(|| runtime);
        }
        self.runtime.get().context("no runtime")
    }

    /// The fields for a file that the page of an index names. If it is at the origin of this index, they are those of the
    /// index, and if it is at that of another one, of that. Credentials go to no other host.
    pub(crate) fn headers_for(&self, index: usize, file: &Url) -> HeaderMap {
        let answered = self.all.get(index).into_iter();
        let own = answered
            .chain(self.all.iter())
            .find(|index| index.is_origin_of(file));
        let mut headers = own.map_or_else(HeaderMap::new, |index| index.headers.clone());
        headers.remove(ACCEPT);
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        headers
    }

    /// The tables of these projects. What is stored and fresh is there at once; the others are fetched together.
    pub(crate) fn pages(
        &self,
        names: &[&ProjectName],
    ) -> anyhow::Result<Vec<anyhow::Result<Found>>> {
        let mut pages: Vec<Option<anyhow::Result<Found>>> =
            in_parts(names, String::new, |address, name| {
                self.stored(name, address).map(Ok)
            });
        let missing: Vec<usize> = (0..names.len()).filter(|&at| pages[at].is_none()).collect();
        if !missing.is_empty() {
            self.runtime()?.block_on(async {
                for (at, page) in self.fetch_all(names, &missing).await {
                    pages[at] = Some(page);
                }
                self.client.idle().await;
            });
        }
        let pages = pages
            .into_iter()
            .map(|page| page.context("its task ended")?);
        Ok(pages.collect())
    }

    /// Looks at the table of a project. A table is checked where it is looked at, so damage shows only then: the page is
    /// fetched again, and looked at once more. `look` must do nothing that stays before it has seen all that it needs.
    pub(crate) fn look<R>(
        &self,
        name: &ProjectName,
        page: Page,
        mut look: impl FnMut(&Page) -> anyhow::Result<R>,
    ) -> anyhow::Result<R> {
        let damage = match look(&page) {
            Err(e) if is_damage(&e) => e,
            looked => return looked,
        };
        // Nobody finds the table that has failed its check.
        match self.pages(&[name])?.pop() {
            Some(Ok(Some(page))) => look(&page),
            Some(Err(e)) => Err(e),
            Some(Ok(None)) | None => Err(damage),
        }
    }

    /// What the first index has that has the project, as far as that is known without asking: each one before it has said
    /// that it does not have the project, and that still holds. Offline, nobody can say that, and the first page counts.
    fn stored(&self, name: &ProjectName, address: &mut String) -> Option<Found> {
        let layer = self.client.layer();
        let mut all_said_no = true;
        for (at, index) in self.all.iter().enumerate() {
            address.clear();
            address.extend([index.url.as_str(), name.as_str(), "/"]);
            let request = Request {
                method: &Method::GET,
                url: address,
                headers: &index.headers,
            };
            if let Some(table) = layer.find_as(&request) {
                return Some(Some(Page { table, index: at }));
            }
            let said_no = layer.find_status(&request).is_some_and(is_missing);
            if !said_no && !self.is_offline {
                return None;
            }
            all_said_no &= said_no;
        }
        all_said_no.then_some(None)
    }

    async fn fetch_all(
        &self,
        names: &[&ProjectName],
        missing: &[usize],
    ) -> Vec<(usize, anyhow::Result<Found>)> {
        let mut tasks = JoinSet::new();
        let mut waiting = missing.iter();
        let mut done = Vec::with_capacity(missing.len());
        loop {
            while tasks.len() < MOST_AT_ONCE
                && let Some(&at) = waiting.next()
            {
                let (client, indexes) = (self.client.clone(), Arc::clone(&self.all));
                let (name, is_offline) = (names[at].clone(), self.is_offline);
                tasks.spawn(async move { (at, fetch(&client, &indexes, &name, is_offline).await) });
            }
            match tasks.join_next().await {
                None => break,
                Some(Ok(page)) => done.push(page),
                Some(Err(e)) => {
                    if let Ok(panic) = e.try_into_panic() {
                        std::panic::resume_unwind(panic);
                    }
                }
            }
        }
        done
    }
}

/// Asks one index after the other, up to the first that has the project.
async fn fetch(
    client: &Client,
    indexes: &[Index],
    name: &ProjectName,
    is_offline: bool,
) -> anyhow::Result<Found> {
    let mut not_stored = None;
    for (at, index) in indexes.iter().enumerate() {
        let address = format!("{}{}/", index.url, name.as_str());
        let mut request = http::Request::get(&address).body(())?;
        *request.headers_mut() = index.headers.clone();
        let project = name.clone();
        let make = move |input: &TableInput<'_>| table(&project, input);
        let answer = client
            .get_as::<PackageTable, _>(request, &TableOptions::default(), make)
            .await
            .with_context(|| address.clone())?;
        let response = match answer {
            TableAnswer::Table(table) => return Ok(Some(Page { table, index: at })),
            TableAnswer::Response(response) => response,
        };
        match response.status() {
            status if is_missing(status) => (),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => bail!(
                "{address}: the index answers {} to these credentials; give them in the index URL",
                response.status()
            ),
            // Another index may have it.
            StatusCode::GATEWAY_TIMEOUT if is_offline => {
                not_stored.get_or_insert(address);
            }
            status => bail!("{address}: the index answers {status}; try again later"),
        }
    }
    match not_stored {
        Some(address) => bail!("{address} is not stored, and --offline asks nobody"),
        None => Ok(None),
    }
}

/// Whether an index says that it does not have a project.
fn is_missing(status: StatusCode) -> bool {
    matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE)
}

fn is_damage(e: &anyhow::Error) -> bool {
    let e = e.downcast_ref::<io::Error>();
    e.is_some_and(|e| e.kind() == io::ErrorKind::InvalidData)
}

fn table(project: &ProjectName, input: &TableInput<'_>) -> Result<Vec<u8>, PageError> {
    let said = |name| input.headers.get(name).and_then(|said| said.to_str().ok());
    let coding = said(CONTENT_ENCODING);
    let page = decoded(coding, input.body, LARGEST_PAGE)?;
    let form = said(CONTENT_TYPE).and_then(PageForm::of_content_type);
    let form = form.unwrap_or_else(|| PageForm::of_page(&page));
    // It was just asked for.
    let address = Url::parse(input.url).map_err(|_| PageError::NoIndex { links: 0 })?;
    // The length has been compared, and gzip says where it ends.
    match input.headers.contains_key(CONTENT_LENGTH) || matches!(page, Cow::Owned(_)) {
        true => table_of_whole_page(project, &address, form, &page),
        false => table_of_page(project, &address, form, &page),
    }
}

/// The value of `Authorization` for an index. Takes user and password out of its URL.
fn authorization(url: &mut Url) -> anyhow::Result<Option<HeaderValue>> {
    let decoded = |text: &str| -> Vec<u8> { percent_decode_str(text).collect() };
    let user = decoded(url.username());
    let password = url.password().map(decoded);
    let taken = url.set_username("").and_then(|()| url.set_password(None));
    if taken.is_err() {
        bail!("the URL of an index cannot be without its user; name another index");
    }
    if user.is_empty() && password.is_none() {
        return Ok(None);
    }
    let pair = [&*user, b":", &*password.unwrap_or_default()].concat();
    let mut value = HeaderValue::try_from(format!("Basic {}", BASE64.encode(&pair)))?;
    value.set_sensitive(true);
    Ok(Some(value))
}

/// Where tables are stored if nobody says.
fn cache_directory() -> anyhow::Result<PathBuf> {
    let absolute = |name| {
        let path = env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let home = absolute("XDG_CACHE_HOME");
    let home = home.or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    let Some(home) = home else {
        bail!(
            "neither XDG_CACHE_HOME nor HOME is an absolute path; say with --cache where to store what comes"
        );
    };
    Ok(home.join("brisk/pyindex"))
}

/// The secret with which credentials are digested. It is made once for each directory, with the directory.
fn secret(directory: &Path) -> io::Result<Secret> {
    let path = directory.join("secret");
    let file = match File::open(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            make_secret(directory, &path)?;
            File::open(&path)?
        }
        opened => opened?,
    };
    // One byte more than it has, to see that it ends.
    let mut bytes = [0; SECRET + 1];
    let mut found = 0;
    while let Some(rest) = bytes.get_mut(found..).filter(|rest| !rest.is_empty()) {
        match (&file).read(rest)? {
            0 => break,
            more => found += more,
        }
    }
    match bytes.first_chunk().filter(|_| found == SECRET) {
        Some(secret) => Ok(Secret::new(*secret)),
        None => {
            let found = match found > SECRET {
                true => format!("more than {SECRET}"),
                false => found.to_string(),
            };
            Err(io::Error::other(format!(
                "{} has {found} bytes, and allowed are {SECRET}; remove it, and what is stored for credentials is fetched anew",
                path.display()
            )))
        }
    }
}

/// Bytes of a secret.
const SECRET: usize = 16;

fn make_secret(directory: &Path, path: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    let mut random = [0; SECRET];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    // Only its owner can read it.
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.write_all(&random)?;
    // Another process may have been faster.
    match file.persist_noclobber(path) {
        Err(e) if e.error.kind() != io::ErrorKind::AlreadyExists => Err(e.error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_leave_the_url() {
        for (text, rest, value) in [
            (
                "https://me:s%2Fe@a.example/x/",
                "https://a.example/x/",
                Some("Basic bWU6cy9l"),
            ),
            (
                "https://token@a.example/",
                "https://a.example/",
                Some("Basic dG9rZW46"),
            ),
            (
                "https://me:%zz@a.example/",
                "https://a.example/",
                Some("Basic bWU6JXp6"),
            ),
            ("https://a.example/x?a#b", "https://a.example/x/", None),
        ] {
            let index = Index::new(text, "--index-url").unwrap();
            assert_eq!(index.url.as_str(), rest);
            let found = index.headers.get(AUTHORIZATION);
            assert_eq!(found.map(|found| found.to_str().unwrap()), value);
            assert!(found.is_none_or(HeaderValue::is_sensitive));
        }
        for wrong in ["file:///a", "secret.example"] {
            assert_eq!(
                Index::new(wrong, "--index-url").unwrap_err().to_string(),
                "--index-url names an index that is no URL of http or https"
            );
        }
    }
}
