//! Stores of pages that have no client of their own: what is fresh in them is used, and the rest is asked for by hyper, over
//! kept connections.

use std::cell::RefCell;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use brisk_bench::ways::{Chosen, Package, Question, Way};
use bytes::Bytes;
use futures::future::join_all;
use http::header::{ACCEPT, HOST, IF_NONE_MATCH};
use http::{HeaderMap, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::LocalSet;

use super::choosing::{Target, Want};

/// A package in a store.
pub(super) struct Entry {
    /// The name of the index.
    pub(super) index: String,
    /// The URL of the page.
    pub(super) url: String,
    pub(super) want: Want,
}

impl Entry {
    /// A file of its own.
    pub(super) fn path(&self, directory: &Path, extension: &str) -> PathBuf {
        directory
            .join(&self.index)
            .join(format!("{}.{extension}", self.want.name))
    }
}

/// What a store says of a package.
pub(super) enum Stored<K> {
    /// It is fresh, and this file is chosen.
    Fresh(Option<Chosen>),
    /// It must be asked for, with this entity tag.
    Stale(String, K),
    Missing,
}

/// What a store of pages can do.
pub(super) trait Store: Sized {
    /// What is kept of a stale page until the index has answered.
    type Kept;

    fn open(directory: &Path) -> Result<Self>;

    fn stored(&self, entry: &Entry, target: &Target) -> Result<Stored<Self::Kept>>;

    /// Stores a page, and chooses a file of it.
    fn fetched(
        &self,
        entry: &Entry,
        target: &Target,
        headers: &HeaderMap,
        page: &[u8],
    ) -> Result<Option<Chosen>>;

    /// The index says that what is stored holds.
    fn holds(
        &self,
        entry: &Entry,
        target: &Target,
        headers: &HeaderMap,
        kept: Self::Kept,
    ) -> Result<Option<Chosen>>;
}

/// A way over such a store.
pub(super) struct Filed<S> {
    directory: PathBuf,
    entries: Vec<Entry>,
    target: Target,
    chosen: Vec<Option<Chosen>>,
    store: Option<S>,
}

impl<S: Store> Filed<S> {
    pub(super) fn prepare(question: &Question) -> Result<Self> {
        let of = |package: &Package| {
            Ok(Entry {
                index: package.index.clone(),
                url: package.url.clone(),
                want: Want::of(package)?,
            })
        };
        let entries: Result<Vec<_>> = question.packages.iter().map(of).collect();
        Ok(Self {
            directory: question.directory.clone(),
            entries: entries?,
            target: Target::of(question)?,
            chosen: Vec::new(),
            store: None,
        })
    }

    fn ask(
        &self,
        store: &S,
        asked: Vec<(usize, Option<(String, S::Kept)>)>,
    ) -> Result<Vec<(usize, Option<Chosen>)>> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let connections = asked.len().min(super::AT_ONCE);
        let waiting = RefCell::new(asked.into_iter());
        let done = RefCell::new(Vec::new());
        let connection = async || -> Result<()> {
            let mut sender: Option<SendRequest<Empty<Bytes>>> = None;
            loop {
                let Some((at, known)) = waiting.borrow_mut().next() else {
                    return Ok(());
                };
                let entry = &self.entries[at];
                let mut open = match sender.take() {
                    Some(sender) => sender,
                    None => connect(&entry.url).await?,
                };
                let tag = known.as_ref().map(|(tag, _)| &**tag);
                open.ready().await?;
                let (head, body) = send(&mut open, &entry.url, tag).await?.into_parts();
                let body = body.collect().await?.to_bytes();
                sender = Some(open);
                let chosen = match (head.status, known) {
                    (StatusCode::OK, _) => {
                        store.fetched(entry, &self.target, &head.headers, &body)?
                    }
                    (StatusCode::NOT_MODIFIED, Some((_, kept))) => {
                        store.holds(entry, &self.target, &head.headers, kept)?
                    }
                    (status, _) => bail!("{}: status {status}", entry.url),
                };
                done.borrow_mut().push((at, chosen));
            }
        };
        let all =
            LocalSet::new().block_on(&runtime, join_all((0..connections).map(|_| connection())));
        all.into_iter().collect::<Result<()>>()?;
        Ok(done.into_inner())
    }
}

async fn connect(url: &str) -> Result<SendRequest<Empty<Bytes>>> {
    let address: Uri = url.parse()?;
    let authority = address.authority().context("the URL has no host")?;
    let stream = TcpStream::connect(authority.as_str()).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    tokio::task::spawn_local(connection);
    Ok(sender)
}

async fn send(
    sender: &mut SendRequest<Empty<Bytes>>,
    url: &str,
    tag: Option<&str>,
) -> Result<Response<Incoming>> {
    let address: Uri = url.parse()?;
    let authority = address.authority().context("the URL has no host")?;
    let mut request = Request::get(address.path())
        .header(HOST, authority.as_str())
        .header(ACCEPT, super::ACCEPT);
    if let Some(tag) = tag {
        request = request.header(IF_NONE_MATCH, tag);
    }
    Ok(sender.send_request(request.body(Empty::new())?).await?)
}

impl<S: Store> Way for Filed<S> {
    fn choose(&mut self) -> Result<()> {
        let store = S::open(&self.directory)?;
        let mut chosen = Vec::with_capacity(self.entries.len());
        let mut asked = Vec::new();
        for (at, entry) in self.entries.iter().enumerate() {
            let found = store.stored(entry, &self.target)?;
            chosen.push(match found {
                Stored::Fresh(chosen) => chosen,
                Stored::Stale(tag, kept) => {
                    asked.push((at, Some((tag, kept))));
                    None
                }
                Stored::Missing => {
                    asked.push((at, None));
                    None
                }
            });
        }
        if !asked.is_empty() {
            for (at, file) in self.ask(&store, asked)? {
                chosen[at] = file;
            }
        }
        self.chosen = chosen;
        // What it takes to close it is no part of an answer.
        self.store = Some(store);
        Ok(())
    }

    fn chosen(&self) -> Result<Vec<Option<Chosen>>> {
        ensure!(self.store.is_some(), "nothing was chosen yet");
        Ok(self.chosen.clone())
    }
}

/// Writes a file, whole or not at all, as uv does.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let directory = path.parent().context("a file has a directory")?;
    let new = || tempfile::NamedTempFile::new_in(directory);
    let mut file = match new() {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            fs::create_dir_all(directory)?;
            new()?
        }
        made => made?,
    };
    file.write_all(bytes)?;
    file.persist(path)?;
    Ok(())
}

/// Reads a file. None if there is none.
pub(super) fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e).with_context(|| path.display().to_string()),
    }
}
