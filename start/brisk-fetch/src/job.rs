//! A job: one thing that is done with a registry, for the program that has started this process.
//!
//! Standard input is the file to push, and standard output the socket to the program. The process may write into one directory.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream as StdStream;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use brisk_remote::{
    Ask, Content, Download, Index, Manifest, Platform, RegistryName, RemoteUrl, Tell, Upload,
    digits, media_type, parse_line,
};
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, LOCATION, RANGE};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use reqwest::Url;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{sleep, timeout};

use crate::confine::confine;
use crate::origin::{Origin, next_piece, reasons, referrers_tag};
use crate::refusal::Refusal;
use crate::registry::{Access, TRIES, is_at, refused, several, upload_place};
use crate::server::read_line;

/// How long nothing may move in an upload.
const SILENCE: Duration = Duration::from_secs(60);

/// How often the program is told how much has moved.
const TELL: Duration = Duration::from_millis(200);

/// Bytes of a file that are sent at once.
const PIECE: usize = 256 << 10;

/// Bytes of a blob in one request, if a server takes no request with all of them. A server that takes less says so, and then it is half
/// of that, down to what nginx takes unless it is told otherwise.
const MOST_CHUNK: u64 = 16 << 20;
const LEAST_CHUNK: u64 = 1 << 20;

/// The most bytes of the manifest of a container image.
const MOST_MANIFEST: u64 = 4 << 20;

/// How many layers are fetched at once.
const STREAMS: usize = 3;

type Connection = (BufReader<OwnedReadHalf>, OwnedWriteHalf);

/// Does what the program behind standard output asks, and ends.
pub fn run(directory: &Path) -> io::Result<()> {
    let socket = StdStream::from(io::stdout().as_fd().try_clone_to_owned()?);
    let file = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    confine(directory);
    socket.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(8)
        .build()?;
    let local = LocalSet::new();
    let result = local.block_on(&runtime, answer(directory, socket, file));
    runtime.shutdown_background();
    result
}

async fn answer(directory: &Path, socket: StdStream, file: File) -> io::Result<()> {
    let answers = directory.join(".http");
    let origin = Rc::new(Origin::for_job(&answers)?);
    let (read, write) = UnixStream::from_std(socket)?.into_split();
    let mut read = BufReader::new(read);
    let Some(ask) = next_ask(&mut read).await? else {
        return Ok(());
    };
    let job = Job {
        origin,
        file: Arc::new(file),
        directory: directory.to_owned(),
        moved: Arc::default(),
    };
    let mut connection: Connection = (read, write);
    let told = loop {
        let done = job.until_done(&ask, &mut connection.1).await?;
        match done {
            Ok(digest) => {
                break Tell::Done {
                    realm: job.realm(&ask),
                    digest,
                };
            }
            Err(Refusal::Login(registry)) => {
                send(&mut connection.1, &Tell::Login { registry }).await?;
                match next_ask(&mut connection.0).await? {
                    Some(Ask::Login {
                        registry,
                        credential,
                    }) => job.origin.logins.set(&registry, credential),
                    _ => return Ok(()),
                }
            }
            Err(Refusal::Never(why) | Refusal::Later(why) | Refusal::NotSoon(why)) => {
                break Tell::Refused { why };
            }
        }
    };
    // It keeps nothing for the next one. Whoever is told ends this process.
    job.origin.idle().await;
    drop(job);
    std::fs::remove_dir_all(&answers).ok();
    send(&mut connection.1, &told).await
}

async fn next_ask(read: &mut BufReader<OwnedReadHalf>) -> io::Result<Option<Ask>> {
    let mut line = Vec::new();
    match read_line(read, &mut line).await? {
        0 => Ok(None),
        _ => parse_line(&line).map(Some),
    }
}

async fn send(write: &mut OwnedWriteHalf, tell: &Tell) -> io::Result<()> {
    let mut line = Vec::new();
    brisk_remote::write_line(&mut line, tell)?;
    write.write_all(&line).await
}

struct Job {
    origin: Rc<Origin>,
    file: Arc<File>,
    directory: PathBuf,
    /// Bytes that have moved and of which the program was not told.
    moved: Arc<AtomicU64>,
}

impl Job {
    /// Does what is asked, and tells how it goes.
    async fn until_done(
        &self,
        ask: &Ask,
        write: &mut OwnedWriteHalf,
    ) -> io::Result<Result<String, Refusal>> {
        let work = self.work(ask);
        tokio::pin!(work);
        loop {
            let done = tokio::select! {
                done = &mut work => Some(done),
                () = sleep(TELL) => None,
            };
            let bytes = self.moved.swap(0, Ordering::Relaxed);
            if bytes > 0 {
                send(write, &Tell::Moved { bytes }).await?;
            }
            if let Some(done) = done {
                return Ok(done);
            }
        }
    }

    async fn work(&self, ask: &Ask) -> Result<String, Refusal> {
        let name = name_of(ask).map_err(Refusal::Never)?;
        match ask {
            Ask::Push(upload) => self.push(&name, upload).await,
            Ask::PushIndex { text, .. } => {
                self.push_manifest(&name, name.reference(), media_type::INDEX, text)
                    .await?;
                Ok(Content::of(text.as_bytes(), "").digest)
            }
            Ask::Pull(download) => self.pull(&name, download).await,
            _ => Err(Refusal::Never("this is no job".into())),
        }
    }

    fn realm(&self, ask: &Ask) -> Option<String> {
        self.origin.logins.realm(&name_of(ask).ok()?)
    }

    /// Sends a file and its manifest. What the registry has is not sent.
    async fn push(&self, name: &RegistryName, upload: &Upload) -> Result<String, Refusal> {
        let config = Content::of(upload.config.as_bytes(), "");
        let config_bytes = Bytes::from(upload.config.clone());
        let file = |bytes: Range<u64>| {
            reqwest::Body::wrap(FileBody {
                file: Arc::clone(&self.file),
                at: bytes.start,
                end: bytes.end,
                moved: Arc::clone(&self.moved),
            })
        };
        self.push_blob(name, &upload.digest, upload.bytes, file)
            .await?;
        self.push_blob(name, &config.digest, config.size, |bytes| {
            let [start, end] =
                [bytes.start, bytes.end].map(|at| usize::try_from(at).unwrap_or(usize::MAX));
            reqwest::Body::from(config_bytes.slice(start..end))
        })
        .await?;
        let manifest = Manifest::parse(&upload.manifest);
        let mut manifest = manifest.map_err(|e| Refusal::Never(reasons(&e)))?;
        if !upload.is_referrer {
            let text = &upload.manifest;
            self.push_manifest(name, name.reference(), media_type::MANIFEST, text)
                .await?;
            return Ok(Content::of(text.as_bytes(), "").digest);
        }
        let here = Platform::here();
        let subject = self.origin.manifest_for(name, &here, true, MOST_MANIFEST);
        let subject = subject.await?;
        let found = Content::of(subject.text.as_bytes(), &kind_of(&subject.text));
        manifest.subject = Some(found);
        let text = manifest.to_text();
        let mut content = Content::of(text.as_bytes(), media_type::MANIFEST);
        content.artifact_type.clone_from(&manifest.artifact_type);
        let kind = media_type::MANIFEST;
        let response = self
            .push_manifest(name, &content.digest, kind, &text)
            .await?;
        let digest = content.digest.clone();
        // A registry that keeps a list of its own says so.
        if !response.headers().contains_key("oci-subject") {
            let mut index = match self.origin.referrers(name, &subject.digest).await {
                Ok(index) => index,
                Err(Refusal::Never(_)) => Index::of_none(),
                Err(e) => return Err(e),
            };
            index.manifests.retain(|known| known.digest != digest);
            index.manifests.push(content);
            let tag = referrers_tag(&subject.digest);
            self.push_manifest(name, &tag, media_type::INDEX, &index.to_text())
                .await?;
        }
        Ok(digest)
    }

    async fn push_manifest(
        &self,
        name: &RegistryName,
        reference: &str,
        kind: &str,
        text: &str,
    ) -> Result<Response<brisk_http::CacheBody>, Refusal> {
        let request = || {
            Request::put(name.manifest_url(reference))
                .header(CONTENT_TYPE, kind)
                .body(reqwest::Body::from(text.to_owned()))
                .map_err(|e| e.to_string())
        };
        self.ask(name, &[StatusCode::CREATED], Access::Push, request)
            .await
    }

    async fn push_blob(
        &self,
        name: &RegistryName,
        digest: &str,
        bytes: u64,
        body: impl Fn(Range<u64>) -> reqwest::Body,
    ) -> Result<(), Refusal> {
        if self.has(name, digest, bytes).await? {
            self.moved.fetch_add(bytes, Ordering::Relaxed);
            return Ok(());
        }
        several(|| self.upload(name, digest, bytes, &body)).await
    }

    async fn has(&self, name: &RegistryName, digest: &str, bytes: u64) -> Result<bool, Refusal> {
        let request = || {
            Request::head(name.blob_url(digest))
                .body(reqwest::Body::from(""))
                .map_err(|e| e.to_string())
        };
        let statuses = [StatusCode::OK, StatusCode::NOT_FOUND];
        let response = self.ask(name, &statuses, Access::Push, request).await?;
        let len = response.headers().get(CONTENT_LENGTH);
        let len = len.and_then(|len| len.to_str().ok()?.parse().ok());
        Ok(response.status() == StatusCode::OK && len == Some(bytes))
    }

    /// Sends a blob in one piece, which all registries can take. What stands before them may take only shorter requests.
    async fn upload(
        &self,
        name: &RegistryName,
        digest: &str,
        bytes: u64,
        body: impl Fn(Range<u64>) -> reqwest::Body,
    ) -> Result<(), Refusal> {
        let (place, _) = self.begin_upload(name).await?;
        let response = self
            .end_upload(name, place, digest, bytes, || body(0..bytes))
            .await?;
        if response.status() == StatusCode::PAYLOAD_TOO_LARGE && bytes > LEAST_CHUNK {
            return self.upload_in_chunks(name, digest, bytes, body).await;
        }
        judge(name, &[StatusCode::CREATED], response).map(drop)
    }

    /// Sends a blob in several pieces, each from where the registry says that the last one has ended.
    async fn upload_in_chunks(
        &self,
        name: &RegistryName,
        digest: &str,
        bytes: u64,
        body: impl Fn(Range<u64>) -> reqwest::Body,
    ) -> Result<(), Refusal> {
        let (mut place, least) = self.begin_upload(name).await?;
        let mut chunk = MOST_CHUNK;
        // All at once are too many.
        while chunk >= bytes && chunk > LEAST_CHUNK {
            chunk /= 2;
        }
        chunk = chunk.max(least);
        let (mut at, mut failures) = (0, 0);
        while at < bytes {
            let end = bytes.min(at.saturating_add(chunk));
            let request = || {
                Request::patch(place.as_str())
                    .header(CONTENT_TYPE, "application/octet-stream")
                    .header(CONTENT_LENGTH, end - at)
                    .header(CONTENT_RANGE, format!("{at}-{}", end - 1))
                    .body(body(at..end))
                    .map_err(|e| e.to_string())
            };
            let sent = self.send_upload(name, &place, request).await;
            if let Ok(response) = &sent
                && response.status() == StatusCode::PAYLOAD_TOO_LARGE
                && chunk / 2 >= LEAST_CHUNK.max(least)
            {
                chunk /= 2;
                continue;
            }
            let sent = sent.and_then(|response| match response.status() {
                // It has ended a piece elsewhere.
                StatusCode::RANGE_NOT_SATISFIABLE => Err(Refusal::Later(format!(
                    "{} takes no bytes from {at} on",
                    name.host()
                ))),
                _ => judge(name, &[StatusCode::ACCEPTED], response),
            });
            // How far it is, where the answer does not say so.
            let (answer, unsaid) = match sent {
                Ok(answer) => (answer, end),
                Err(Refusal::Later(_)) if failures < TRIES => {
                    sleep(Duration::from_millis(200 << failures)).await;
                    let request = || {
                        Request::get(place.as_str())
                            .header(CACHE_CONTROL, "no-store")
                            .body(reqwest::Body::from(""))
                            .map_err(|e| e.to_string())
                    };
                    let asked = several(async || {
                        let response = self.send_upload(name, &place, request).await?;
                        judge(name, &[StatusCode::NO_CONTENT], response)
                    });
                    (asked.await?, at)
                }
                Err(e) => return Err(e),
            };
            if answer.headers().contains_key(LOCATION) {
                place = place_of(name, &answer)?;
            }
            let taken = end_of(answer.headers()).unwrap_or(unsaid);
            if !(at..=end).contains(&taken) {
                return Err(Refusal::Never(format!(
                    "{} says that it has {taken} bytes of {digest}, though it was sent those from {at} to {end}",
                    name.host()
                )));
            }
            match taken > at {
                true => failures = 0,
                false => failures += 1,
            }
            if failures > TRIES {
                return Err(format!("{} takes nothing more", name.host()).into());
            }
            at = taken;
        }
        let nothing = || reqwest::Body::from("");
        let response = self.end_upload(name, place, digest, 0, nothing).await?;
        judge(name, &[StatusCode::CREATED], response).map(drop)
    }

    /// Where a blob is to be sent, and how many bytes each piece of several must have at least.
    async fn begin_upload(&self, name: &RegistryName) -> Result<(Url, u64), Refusal> {
        let request = || {
            Request::post(name.upload_url())
                .header(CONTENT_LENGTH, 0)
                .body(reqwest::Body::from(""))
                .map_err(|e| e.to_string())
        };
        let response = self
            .ask(name, &[StatusCode::ACCEPTED], Access::Push, request)
            .await?;
        let least = response.headers().get("oci-chunk-min-length");
        let least = least.and_then(|least| least.to_str().ok()?.parse().ok());
        Ok((place_of(name, &response)?, least.unwrap_or(0)))
    }

    /// Sends the last piece of a blob, and what the digest of all of it is.
    async fn end_upload(
        &self,
        name: &RegistryName,
        mut place: Url,
        digest: &str,
        bytes: u64,
        body: impl Fn() -> reqwest::Body,
    ) -> Result<Response<brisk_http::CacheBody>, Refusal> {
        place.query_pairs_mut().append_pair("digest", digest);
        let request = || {
            Request::put(place.as_str())
                .header(CONTENT_TYPE, "application/octet-stream")
                .header(CONTENT_LENGTH, bytes)
                .body(body())
                .map_err(|e| e.to_string())
        };
        self.send_upload(name, &place, request).await
    }

    async fn send_upload(
        &self,
        name: &RegistryName,
        place: &Url,
        request: impl Fn() -> Result<Request<reqwest::Body>, String>,
    ) -> Result<Response<brisk_http::CacheBody>, Refusal> {
        // Another host gets no token.
        let is_own = is_at(place.as_str(), &name.origin());
        let sent = async {
            match is_own {
                true => self.origin.ask_registry(name, Access::Push, request).await,
                false => Ok(self.origin.send(request()?).await?),
            }
        };
        self.while_it_moves(name, sent).await
    }

    /// Waits for an answer as long as bytes move.
    async fn while_it_moves<T>(
        &self,
        name: &RegistryName,
        sent: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        tokio::pin!(sent);
        let still = Cell::new(Duration::ZERO);
        loop {
            let before = self.moved.load(Ordering::Relaxed);
            match timeout(TELL, &mut sent).await {
                Ok(answer) => return answer,
                Err(_) if self.moved.load(Ordering::Relaxed) != before => still.set(Duration::ZERO),
                Err(_) => still.set(still.get() + TELL),
            }
            if still.get() > SILENCE {
                return Err(format!("{} takes nothing more", name.host()).into());
            }
        }
    }

    /// Asks a registry several times for an answer with one of these statuses.
    async fn ask(
        &self,
        name: &RegistryName,
        statuses: &[StatusCode],
        access: Access,
        request: impl Fn() -> Result<Request<reqwest::Body>, String>,
    ) -> Result<Response<brisk_http::CacheBody>, Refusal> {
        several(async || {
            let asked = timeout(SILENCE, self.origin.ask_registry(name, access, &request)).await;
            let asked = asked.map_err(|_| format!("{} does not answer", name.host()))?;
            judge(name, statuses, asked?)
        })
        .await
    }

    /// Fetches manifest, config and layers of a platform into a directory, which becomes an OCI layout.
    async fn pull(&self, name: &RegistryName, download: &Download) -> Result<String, Refusal> {
        let platform: Platform = download.platform.parse().map_err(|allowed| {
            Refusal::Never(format!("{:?} is no platform; {allowed}", download.platform))
        })?;
        let found = self
            .origin
            .manifest_for(name, &platform, true, MOST_MANIFEST);
        let found = found.await?;
        let manifest = Manifest::parse(&found.text);
        let manifest = manifest.map_err(|e| Refusal::Never(reasons(&e)))?;
        // Layers without a file are often the same one.
        let blobs: BTreeMap<String, Content> = std::iter::once(&manifest.config)
            .chain(&manifest.layers)
            .map(|blob| (blob.digest.clone(), blob.clone()))
            .collect();
        let sum = blobs
            .values()
            .fold(0_u64, |sum, blob| sum.saturating_add(blob.size));
        if sum > download.most {
            return Err(Refusal::Never(format!(
                "the image has {sum} bytes in its layers, allowed are {}",
                download.most
            )));
        }
        let path = self.directory.join("blobs/sha256");
        let failed = |e: io::Error| Refusal::Never(format!("cannot write {}: {e}", path.display()));
        std::fs::create_dir_all(&path).map_err(failed)?;
        let mut waiting = blobs.into_values();
        let mut under_way = JoinSet::new();
        loop {
            while under_way.len() < STREAMS
                && let Some(blob) = waiting.next()
            {
                let fetch = fetch(
                    Rc::clone(&self.origin),
                    name.clone(),
                    blob,
                    path.clone(),
                    Arc::clone(&self.moved),
                );
                under_way.spawn_local(fetch);
            }
            match under_way.join_next().await {
                Some(Ok(fetched)) => fetched?,
                Some(Err(e)) => return Err(Refusal::Never(e.to_string())),
                None => break,
            }
        }
        let kind = manifest
            .media_type
            .as_deref()
            .unwrap_or(media_type::MANIFEST);
        let mut content = Content::of(found.text.as_bytes(), kind);
        content.platform = Some(platform);
        let write = || -> io::Result<()> {
            std::fs::write(path.join(&content.digest["sha256:".len()..]), &found.text)?;
            let layout = r#"{"imageLayoutVersion":"1.0.0"}"#;
            std::fs::write(self.directory.join("oci-layout"), layout)?;
            // It comes last: what it names is there.
            let index = Index::of(content.clone()).to_text();
            std::fs::write(self.directory.join("index.json"), index)
        };
        write().map_err(failed)?;
        Ok(found.digest)
    }
}

/// Where an answer says that a blob is to be sent.
fn place_of(
    name: &RegistryName,
    response: &Response<brisk_http::CacheBody>,
) -> Result<Url, Refusal> {
    let place = response.headers().get(LOCATION);
    let place = place.and_then(|place| upload_place(place.to_str().ok()?, name));
    place.ok_or_else(|| {
        Refusal::Never(format!(
            "{} does not say where to send to, or where it may not be sent",
            name.host()
        ))
    })
}

/// How many bytes a registry says that it has: `Range: 0-LAST`. It says `0-0` if it has none.
fn end_of(headers: &HeaderMap) -> Option<u64> {
    let range = headers.get(RANGE)?.to_str().ok()?;
    let range = range.trim_start_matches("bytes=");
    let last: u64 = range.strip_prefix("0-")?.parse().ok()?;
    Some(match last {
        0 => 0,
        last => last.saturating_add(1),
    })
}

fn name_of(ask: &Ask) -> Result<RegistryName, String> {
    let (Ask::Push(Upload { url, .. })
    | Ask::PushIndex { url, .. }
    | Ask::Pull(Download { url, .. })) = ask
    else {
        return Err("this is no job".into());
    };
    let parsed = RemoteUrl::parse(url).map_err(|e| reasons(&e))?;
    let name = parsed.registry();
    name.ok_or_else(|| format!("{url} is no name in a registry, such as oci://HOST/NAME:TAG"))
}

/// What a manifest says that it is.
fn kind_of(text: &str) -> String {
    let manifest = Manifest::parse(text).ok();
    let kind = manifest.and_then(|manifest| manifest.media_type);
    kind.unwrap_or_else(|| media_type::MANIFEST.to_owned())
}

/// What an answer means that should have one of these statuses.
fn judge(
    name: &RegistryName,
    statuses: &[StatusCode],
    response: Response<brisk_http::CacheBody>,
) -> Result<Response<brisk_http::CacheBody>, Refusal> {
    let status = response.status();
    if statuses.contains(&status) {
        return Ok(response);
    }
    let why = format!("{} answers {status}", name.host());
    match status.as_u16() {
        401 | 403 => Err(Refusal::Never(refused(name))),
        413 => Err(Refusal::Never(format!(
            "{why}: it, or what stands before it, takes no more in one request; of nginx, client_max_body_size says how much"
        ))),
        408 | 425 | 429 | 500..=599 => Err(Refusal::Later(why)),
        _ => Err(Refusal::Never(why)),
    }
}

/// Fetches a blob under its digest.
async fn fetch(
    origin: Rc<Origin>,
    name: RegistryName,
    blob: Content,
    directory: PathBuf,
    moved: Arc<AtomicU64>,
) -> Result<(), Refusal> {
    let part = directory.join(format!(".{}", &blob.digest["sha256:".len()..]));
    let fetched = several(|| fetch_once(&origin, &name, &blob, &part, &moved)).await;
    if fetched.is_err() {
        std::fs::remove_file(&part).ok();
        return fetched;
    }
    let target = directory.join(&blob.digest["sha256:".len()..]);
    let renamed = std::fs::rename(&part, target);
    renamed.map_err(|e| Refusal::Never(format!("cannot write {}: {e}", part.display())))
}

async fn fetch_once(
    origin: &Origin,
    name: &RegistryName,
    blob: &Content,
    part: &Path,
    moved: &AtomicU64,
) -> Result<(), Refusal> {
    let failed = |e: io::Error| Refusal::Never(format!("cannot write {}: {e}", part.display()));
    let file = File::create(part).map_err(failed)?;
    let asked = timeout(SILENCE, origin.blob(name, &blob.digest, None)).await;
    let response = asked.map_err(|_| format!("{} does not answer", name.host()))??;
    let response = judge(name, &[StatusCode::OK], response)?;
    let mut body = response.into_body();
    let (mut at, mut hasher) = (0, Sha256::new());
    while let Some(piece) = next_piece(&mut body).await {
        let piece = piece?;
        if piece.len() as u64 > blob.size - at {
            return Err(Refusal::Never(format!(
                "{} sends more than the {} bytes of {}",
                name.host(),
                blob.size,
                blob.digest
            )));
        }
        file.write_all_at(&piece, at).map_err(failed)?;
        hasher.update(&piece);
        at += piece.len() as u64;
        moved.fetch_add(piece.len() as u64, Ordering::Relaxed);
    }
    if at < blob.size {
        return Err(format!("{} sends {at} of {} bytes", name.host(), blob.size).into());
    }
    let digest = format!("sha256:{}", digits(&hasher.finalize()));
    match digest == blob.digest {
        true => Ok(()),
        false => Err(Refusal::Never(format!(
            "{} sends bytes with the digest {digest}, but asked for were those with {}",
            name.host(),
            blob.digest
        ))),
    }
}

/// Bytes of a file on their way.
#[derive(Debug)]
struct FileBody {
    file: Arc<File>,
    at: u64,
    end: u64,
    moved: Arc<AtomicU64>,
}

impl Body for FileBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        if left == 0 {
            return Poll::Ready(None);
        }
        let mut piece = vec![0; left.min(PIECE)];
        if let Err(e) = self.file.read_exact_at(&mut piece, self.at) {
            return Poll::Ready(Some(Err(e)));
        }
        self.at += piece.len() as u64;
        self.moved.fetch_add(piece.len() as u64, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(piece.into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.at == self.end
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.end - self.at)
    }
}
