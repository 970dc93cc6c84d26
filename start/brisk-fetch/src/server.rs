//! Answers the programs that read images.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener as StdListener;
use std::rc::Rc;
use std::time::Duration;

use brisk_http::CacheBody;
use brisk_remote::{
    About, Artifact, Ask, Class, Descriptor, Entry, MOST_IMAGE, MOST_LINE, MOST_MANIFEST,
    OpenOptions, Opened, Platform, RegistryName, RemoteCache, RemoteUrl, Resolved, Surroundings,
    Tell, is_digest, is_sha256, key_of_root, key_of_url, media_type, now, parse_line,
};
use http::Response;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Interest};
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Notify;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, sleep, timeout};

use crate::answer::{Judged, judge, total_len, validator_of};
use crate::confine::confine;
use crate::image::{Image, Line, nothing_for};
use crate::log::say;
use crate::origin::{Document, Manifested, Origin, Part, reasons};
use crate::refusal::Refusal;
use crate::registry::several;
use crate::s3::why_refused;
use crate::supervisor::duplicate;

/// How many bytes at the end of a file are asked for first if nothing is known of it.
const TAIL: u64 = 64 << 10;

/// The fetcher ends when nobody has needed it for so long.
const LINGER: Duration = Duration::from_secs(60);

struct Server {
    cache: RemoteCache,
    origin: Rc<Origin>,
    line: Rc<Line>,
    images: RefCell<HashMap<String, Rc<Image>>>,
    surroundings: Surroundings,
    /// Of programs that have said what they want. One that only shows other surroundings counts as none.
    connections: RefCell<usize>,
    /// A program with other surroundings needs another fetcher, and nobody needs this one.
    leaves: Notify,
    used: RefCell<Instant>,
}

/// Answers until nobody has needed it for a minute.
pub fn run(cache: &RemoteCache, listener: &StdListener) -> io::Result<()> {
    let cache = RemoteCache::at(cache.path()).map_err(io::Error::other)?;
    let surroundings = Surroundings::of_this_process()?;
    std::fs::create_dir_all(cache.path().join("http"))?;
    confine(cache.path());
    let listener = StdListener::from(duplicate(listener)?);
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(4)
        .build()?;
    let local = LocalSet::new();
    let result = local.block_on(&runtime, serve(cache, surroundings, listener));
    // A look-up of a name that hangs must not keep the process.
    runtime.shutdown_background();
    if let Err(e) = &result {
        say!("{e}");
    }
    result
}

async fn serve(
    cache: RemoteCache,
    surroundings: Surroundings,
    listener: StdListener,
) -> io::Result<()> {
    let origin = Rc::new(Origin::new(&cache.path().join("http"))?);
    let listener = UnixListener::from_std(listener)?;
    let server = Rc::new(Server {
        cache,
        origin,
        line: Rc::default(),
        images: RefCell::default(),
        surroundings,
        connections: RefCell::new(0),
        leaves: Notify::new(),
        used: RefCell::new(Instant::now()),
    });
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let server = Rc::clone(&server);
                    spawn_local(async move {
                        // A program may end at any time.
                        let is_over = |e: &io::Error| matches!(e.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset);
                        match server.answer(stream).await {
                            Err(e) if !is_over(&e) => say!("a program: {e}"),
                            _ => {}
                        }
                    });
                }
                Err(e) => {
                    say!("nobody can connect: {e}");
                    sleep(Duration::from_millis(100)).await;
                }
            },
            () = server.leaves.notified() => break,
            () = sleep(Duration::from_secs(5)) => {
                // Who reads one may find a part of it wrong.
                let is_needed = |image: &Rc<Image>| !image.is_complete() || Rc::strong_count(image) > 1;
                server.images.borrow_mut().retain(|_, image| is_needed(image));
                if server.is_over() {
                    break;
                }
            }
        }
    }
    server
        .images
        .borrow()
        .values()
        .for_each(|image| image.save());
    Ok(())
}

/// Bytes that a program has wanted.
struct Wanted {
    bytes: Range<u64>,
    class: Class,
    since: Instant,
}

impl Server {
    fn is_over(&self) -> bool {
        let at_work = self
            .images
            .borrow()
            .values()
            .any(|image| image.is_at_work());
        *self.connections.borrow() == 0 && !at_work && self.used.borrow().elapsed() > LINGER
    }

    /// Answers a program until it ends.
    async fn answer(self: &Rc<Self>, stream: UnixStream) -> io::Result<()> {
        let (first, network) = stream
            .async_io(Interest::READABLE, || Surroundings::receive(stream.as_fd()))
            .await?;
        let hello = match parse_line(&first) {
            Ok(Ask::Hello { variables }) => Some(variables),
            _ => None,
        };
        let (read, mut write) = stream.into_split();
        if let Some(variables) = &hello {
            let difference = self.surroundings.difference(network.as_ref(), variables);
            let tell = match difference {
                None => Tell::Welcome,
                Some(_) if *self.connections.borrow() == 0 => Tell::Leaving,
                Some(what) => Tell::Refused {
                    why: format!(
                        "this program has {what} than those for which brisk-fetch works now; end these (brisk stat), or start this \
                         one as they were started"
                    ),
                },
            };
            send(&mut write, &tell).await?;
            if difference.is_some() {
                if tell == Tell::Leaving {
                    self.leaves.notify_one();
                }
                return Ok(());
            }
        }
        *self.connections.borrow_mut() += 1;
        let first = if hello.is_some() { &[][..] } else { &first };
        let read = BufReader::new(first.chain(read));
        let mut image = None;
        let result = self
            .answer_about((read, write), hello.is_some(), &mut image)
            .await;
        *self.connections.borrow_mut() -= 1;
        *self.used.borrow_mut() = Instant::now();
        if let Some(image) = image {
            image.leave();
            image.save();
        }
        result
    }

    /// The same. `is_here`: the program has shown that its surroundings are those of this process. `image`: what it reads.
    async fn answer_about(
        self: &Rc<Self>,
        (mut read, mut write): (impl AsyncBufRead + Unpin, OwnedWriteHalf),
        is_here: bool,
        image: &mut Option<Rc<Image>>,
    ) -> io::Result<()> {
        let mut wanted: Vec<Wanted> = Vec::new();
        let mut news = None;
        let mut line = Vec::new();
        loop {
            let heard = async {
                match &mut news {
                    Some(news) if !wanted.is_empty() => {
                        let news: &mut tokio::sync::watch::Receiver<u64> = news;
                        news.changed().await.ok();
                    }
                    _ => std::future::pending().await,
                }
            };
            tokio::select! {
                read = read_line(&mut read, &mut line) => {
                    if read? == 0 {
                        return Ok(());
                    }
                    let ask: Ask = parse_line(&std::mem::take(&mut line))?;
                    match ask {
                        Ask::Want { start, end, class } => match &*image {
                            Some(image) => {
                                image.want(class, start..end);
                                wanted.push(Wanted { bytes: start..end, class, since: Instant::now() });
                            }
                            None => send(&mut write, &nothing_comes(start..end)).await?,
                        },
                        Ask::Renew { start, end } => match &*image {
                            Some(image) => {
                                image.renew(start..end);
                                wanted.push(Wanted {
                                    bytes: start..end,
                                    class: Class::Miss,
                                    since: Instant::now(),
                                });
                            }
                            None => send(&mut write, &nothing_comes(start..end)).await?,
                        },
                        other if !is_here && !matches!(other, Ask::Attach { .. } | Ask::Whole { .. }) => {
                            let why = "brisk-fetch was not told from which network this is asked".into();
                            send(&mut write, &Tell::Refused { why }).await?;
                        }
                        other => match self.serve(other).await {
                            Ok(Served::Told(tell)) => send(&mut write, &tell).await?,
                            Ok(Served::Image(found, opened)) => {
                                news = Some(found.news());
                                found.enter();
                                if let Some(earlier) = image.replace(found) {
                                    earlier.leave();
                                }
                                if let Some(opened) = opened {
                                    send(&mut write, &Tell::Opened(opened)).await?;
                                }
                            }
                            Ok(Served::Nothing) => {}
                            Err(Refusal::Login(registry)) => {
                                send(&mut write, &Tell::Login { registry }).await?;
                            }
                            Err(Refusal::Never(why) | Refusal::Later(why) | Refusal::NotSoon(why)) => {
                                send(&mut write, &Tell::Refused { why }).await?;
                            }
                        },
                    }
                }
                () = heard => {}
            }
            if let Some(image) = &*image {
                tell_wanted(image, &mut wanted, &mut write).await?;
            }
        }
    }

    async fn serve(self: &Rc<Self>, ask: Ask) -> Result<Served, Refusal> {
        match ask {
            Ask::Resolve { url, refresh, wait } => {
                let url = parse_url(&url)?;
                if let Some(name) = url.registry()
                    && self.origin.logins.takes_refused(&name)
                {
                    return Err(Refusal::Login(name.host().to_owned()));
                }
                let found = within(wait, self.resolve(&url, refresh)).await?;
                Ok(Served::Told(Tell::Resolved(found)))
            }
            Ask::Open {
                url,
                resolved,
                options,
                anew,
            } => self.open(&parse_url(&url)?, resolved, options, anew).await,
            Ask::Attach { key, inode } => self
                .attached(&key, inode)
                .map(|image| Served::Image(image, None))
                .map_err(Refusal::from),
            Ask::Whole { key, inode } => {
                let image = self.attached(&key, inode)?;
                image.whole().await?;
                Ok(Served::Told(Tell::Whole))
            }
            Ask::Refresh { url } => {
                let (server, url) = (Rc::clone(self), parse_url(&url)?);
                spawn_local(async move { server.refresh(&url).await });
                Ok(Served::Nothing)
            }
            Ask::Login {
                registry,
                credential,
            } => {
                self.origin.log_in(&registry, credential);
                Ok(Served::Nothing)
            }
            Ask::Referrer { url, subject } => {
                let name = name_of(&url, &subject)?;
                let found = self.origin.referrers(&name, &subject).await?;
                let none = || Refusal::Never(format!("{url}: nobody has pushed a hot pack for it"));
                let digest = found
                    .last_of(media_type::HOT)
                    .ok_or_else(none)?
                    .digest
                    .clone();
                Ok(Served::Told(Tell::Done {
                    digest,
                    realm: None,
                }))
            }
            Ask::Cosigned { url, subject } => {
                let name = name_of(&url, &subject)?;
                let found = several(|| self.origin.cosigned(&name, &subject)).await?;
                Ok(Served::Told(Tell::Cosigned(found)))
            }
            Ask::Push(_) | Ask::PushIndex { .. } | Ask::Pull(_) => {
                Err("a fetcher does no jobs".to_owned().into())
            }
            Ask::Hello { .. } | Ask::Want { .. } | Ask::Renew { .. } => Ok(Served::Nothing),
        }
    }

    /// What the server says of a URL. It is asked several times if it cannot be reached.
    async fn resolve(&self, url: &RemoteUrl, refresh: bool) -> Result<Resolved, Refusal> {
        if let Some(name) = url.registry() {
            return self.resolve_name(&name, refresh).await;
        }
        if url.is_presigned() {
            // Its signature opens no file beside it.
            return Ok(Resolved::default());
        }
        several(async || {
            let (descriptor, signature) = tokio::join!(
                self.origin.document(url, ".remote", refresh),
                self.origin.document(url, ".remote.minisig", refresh)
            );
            let (descriptor, stale) = match descriptor? {
                Document::Text { text, stale } => (Some(text), stale),
                Document::Missing => (None, None),
            };
            let signature = match signature {
                Ok(Document::Text { text, .. }) => Some(text),
                _ => None,
            };
            Ok(Resolved {
                descriptor,
                signature,
                stale,
                ..Resolved::default()
            })
        })
        .await
    }

    /// What a registry says of a name.
    async fn resolve_name(&self, name: &RegistryName, refresh: bool) -> Result<Resolved, Refusal> {
        let here = Platform::here();
        let ask = || {
            self.origin
                .manifest_for(name, &here, refresh, MOST_MANIFEST)
        };
        let Manifested {
            text, stale, index, ..
        } = several(ask).await?;
        let artifact = Artifact::parse(&text);
        let artifact = artifact.map_err(|e| Refusal::Never(reasons(&e)))?;
        Ok(Resolved {
            descriptor: artifact.descriptor,
            signature: artifact.signature,
            stale,
            manifest: Some(text),
            index: index.filter(|_| name.digest().is_some()),
            realm: self.origin.logins.realm(name),
            ..Resolved::default()
        })
    }

    /// Looks whether there is a newer image under a name, for the next start.
    async fn refresh(&self, url: &RemoteUrl) {
        let Ok(found) = self.resolve(url, true).await else {
            return;
        };
        let Ok(Some(entry)) = self.cache.known(url) else {
            return;
        };
        let known = entry.described().unwrap_or_default();
        let is_other = |found: &Option<String>, known| found.is_some() && *found != known;
        let is_newer = is_other(&found.descriptor, known.descriptor)
            || is_other(&found.manifest, known.manifest);
        if is_newer && found.stale.is_none() {
            self.cache
                .note_newer(url)
                .unwrap_or_else(|e| say!("{url}: {e}"));
        }
    }

    async fn open(
        self: &Rc<Self>,
        url: &RemoteUrl,
        resolved: Resolved,
        options: OpenOptions,
        anew: bool,
    ) -> Result<Served, Refusal> {
        // Some servers answer every name with a page. What says nothing of the image is nothing.
        let described = resolved.descriptor.as_deref();
        let descriptor = described.and_then(|text| Descriptor::parse(text).ok());
        let artifact = resolved.manifest.as_deref().map(Artifact::parse);
        let layer = match (artifact.transpose(), url.registry()) {
            (Ok(Some(artifact)), Some(_)) => Some(artifact.layer),
            (_, None) => None,
            _ => return Err(format!("{url}: nothing is known of its manifest").into()),
        };
        if options.root.as_deref().is_some_and(|root| !is_digest(root)) {
            return Err("the root hash is not a digest".to_owned().into());
        }
        let mut about = About {
            url: url.as_str().to_owned(),
            is_vouched: options.root.is_some(),
            root: options.root.clone(),
            used: now(),
            asked: now(),
            ..About::default()
        };
        let said = match (&layer, &descriptor) {
            (Some(layer), _) => layer
                .digest
                .strip_prefix("sha256:")
                .map(|sum| (layer.size, sum)),
            (None, Some(descriptor)) => Some((descriptor.file_bytes, &*descriptor.sha256)),
            (None, None) => None,
        };
        let (key, first) = match (said, &options.root) {
            (Some((len, sha256)), root) => {
                let own = descriptor
                    .as_ref()
                    .and_then(|found| found.root_hash.clone());
                about.len = len;
                about.root = root.clone().or(own);
                about.sha256 = Some(sha256.to_owned());
                about.blob = layer.as_ref().map(|layer| layer.digest.clone());
                let key = match root {
                    Some(root) => key_of_root(root),
                    None => key_of_url(url, sha256),
                };
                (key, None)
            }
            (None, root) => {
                let known = root.as_deref().filter(|_| !anew).map(key_of_root);
                match known.and_then(|key| self.cache.entry(&key).ok().flatten()) {
                    Some(entry) => {
                        about.len = entry.about.len;
                        (entry.key, None)
                    }
                    None => {
                        let probe = self.probe(url, root.as_deref(), &mut about);
                        within(options.wait, probe).await?
                    }
                }
            }
        };
        if about.len > MOST_IMAGE {
            let why = format!(
                "{url}: the server says that the image has {} bytes, allowed are {MOST_IMAGE}",
                about.len
            );
            return Err(why.into());
        }
        self.make_room();
        let entry = self.entry(&key, &about, anew)?;
        // A whole image needs nothing that is said of another one.
        if said.is_some() && !entry.differs_from(&about) {
            entry.describe(&resolved).map_err(|e| reasons(&e))?;
        }
        let opened = Opened {
            key: key.clone(),
            len: entry.about.len,
        };
        if entry.about.is_complete {
            return Ok(Served::Told(Tell::Opened(opened)));
        }
        if let (Some(name), Some(blob)) = (url.registry(), &about.blob) {
            self.origin.knock(&name, blob).await?;
        }
        if let Some(name) = url.object() {
            self.origin.buckets.check(&name)?;
        }
        let image = self.image(&key, url, about.blob, &options)?;
        if anew {
            image.believe();
        }
        if let Some(descriptor) = &descriptor {
            image.plan(descriptor);
        }
        if let Some((part, response)) = first {
            image.take(part, response);
        }
        Ok(Served::Image(image, Some(opened)))
    }

    /// The entry with this key. `about`: what the server says now. If it has another length or digest, a part of an image is made
    /// anew; a whole one only if it cannot be read (`anew`), because a server could lie.
    fn entry(&self, key: &str, about: &About, anew: bool) -> Result<Entry, String> {
        let here = self.cache.entry(key).map_err(|e| reasons(&e))?;
        let entry = match here {
            Some(entry) if entry.differs_from(about) && (anew || !entry.about.is_complete) => {
                say!("{}: the server says now that it is another file", about.url);
                self.cache.make_anew(&entry, about)
            }
            Some(entry) => Ok(entry),
            None => self.cache.make(key, about),
        };
        entry.map_err(|e| reasons(&e))
    }

    /// Keeps the images together below a tenth of the disk. What is pinned or in use stays.
    fn make_room(&self) {
        let shrunk = rustix::fs::fstatvfs(self.cache.fd()).map(|disk| {
            let most = disk.f_blocks.saturating_mul(disk.f_frsize) / 10;
            self.cache.shrink(most)
        });
        if let Ok(Err(e)) = shrunk {
            say!("no room is made for other images: {e}");
        }
    }

    /// Asks for the end of a file of which nothing is known. Returns its key, and the answer.
    async fn probe(
        &self,
        url: &RemoteUrl,
        root: Option<&str>,
        about: &mut About,
    ) -> Result<(String, Option<Tail>), Refusal> {
        let asked = several(async || {
            let response = self.origin.part(url, Some(&Part::Last(TAIL)), None).await?;
            let status = response.status();
            // One that is shorter than what was asked for has no such end, for some servers.
            if status.as_u16() == 416 {
                return Ok(response);
            }
            match judge(status, response.headers(), &(0..0), None, None) {
                Judged::Part(_) | Judged::Whole => Ok(response),
                Judged::Later(why, _) => Err(Refusal::Later(why)),
                Judged::Changed(why) | Judged::Never(why) => {
                    // Object stores say 403 for what does not exist.
                    if matches!(status.as_u16(), 403 | 404 | 410) {
                        let noted = self.cache.note_absent(url, now());
                        noted.unwrap_or_else(|e| say!("{url}: {e}"));
                    }
                    Err(Refusal::Never(why_refused(&response, why)))
                }
            }
        });
        let response = asked.await.map_err(|refusal| match refusal {
            Refusal::Never(why) | Refusal::Later(why) | Refusal::NotSoon(why) => {
                format!("{url}: {why}").into()
            }
            login @ Refusal::Login(_) => login,
        })?;
        let (status, headers) = (response.status(), response.headers().clone());
        let len = total_len(status, &headers).filter(|_| status.as_u16() != 416);
        let Some(len) = len else {
            return Err(format!(
                "{url}: the server does not say how long the file is, so brisk cannot read parts of it"
            )
            .into());
        };
        about.len = len;
        about.validator = validator_of(&headers);
        let is = about.validator.clone().unwrap_or_else(|| len.to_string());
        let key = root.map_or_else(|| key_of_url(url, &is), key_of_root);
        let tail = (len.saturating_sub(TAIL)..len, response);
        // One that has no ranges begins from the start.
        Ok((key, (status.as_u16() == 206).then_some(tail)))
    }

    /// The image of an entry, which arrives from now on.
    fn image(
        &self,
        key: &str,
        url: &RemoteUrl,
        blob: Option<String>,
        options: &OpenOptions,
    ) -> Result<Rc<Image>, String> {
        let entry = self.cache.entry(key).map_err(|e| reasons(&e))?;
        let entry = entry.ok_or_else(|| format!("{url}: the image was removed from the cache"))?;
        if let Some(image) = self.known(&entry) {
            image.set_url(url, blob);
            image.set_options(options.clone());
            return Ok(image);
        }
        let (origin, line) = (Rc::clone(&self.origin), Rc::clone(&self.line));
        let opened = Image::open(entry, url.clone(), blob, origin, line, options.clone());
        let image = opened.map_err(|e| format!("{url}: {e}"))?;
        self.images
            .borrow_mut()
            .insert(key.to_owned(), Rc::clone(&image));
        Ok(image)
    }

    /// The image of an entry, if it arrives already.
    fn known(&self, entry: &Entry) -> Option<Rc<Image>> {
        let mut images = self.images.borrow_mut();
        let image = images.get(&entry.key).map(Rc::clone)?;
        if image.is_of(entry) {
            return Some(image);
        }
        images.remove(&entry.key);
        None
    }

    /// The image that a program has open.
    fn attached(&self, key: &str, inode: u64) -> Result<Rc<Image>, String> {
        let entry = self.cache.entry(key).map_err(|e| reasons(&e))?;
        // Nothing can be written into a file without a name.
        let entry = entry.filter(|entry| {
            std::fs::metadata(entry.image_path()).is_ok_and(|file| file.ino() == inode)
        });
        let entry = entry.ok_or(REMOVED)?;
        let url = parse_url(&entry.about.url)?;
        match self.known(&entry) {
            Some(image) => {
                if entry.about.is_complete {
                    // Whoever starts it asks nobody here.
                    image.set_options(entry.about.options);
                }
                Ok(image)
            }
            None => self.image(key, &url, entry.about.blob, &entry.about.options),
        }
    }
}

/// What a server is asked before anything is known of an image, for at most so many seconds.
async fn within<T>(
    wait: u64,
    asked: impl Future<Output = Result<T, Refusal>>,
) -> Result<T, Refusal> {
    let wait = Duration::from_secs(wait);
    let answered = timeout(wait, asked).await;
    answered.unwrap_or_else(|_| Err(nothing_for(wait, None).into()))
}

/// The last bytes of a file, and the answer in which they follow.
type Tail = (Range<u64>, Response<CacheBody>);

enum Served {
    Told(Tell),
    Image(Rc<Image>, Option<Opened>),
    Nothing,
}

/// The name of an image in a registry, if `subject` can be the digest of its manifest.
fn name_of(url: &str, subject: &str) -> Result<RegistryName, String> {
    if !is_sha256(subject) {
        return Err("the subject is no digest".to_owned());
    }
    let name = parse_url(url)?.registry();
    name.ok_or_else(|| format!("{url} is in no registry"))
}

fn parse_url(url: &str) -> Result<RemoteUrl, String> {
    RemoteUrl::parse(url).map_err(|e| reasons(&e))
}

/// Nobody can bring what a program has open.
const REMOVED: &str = "the image was removed from the cache; start the program again";

/// Whoever was refused waits for nothing.
fn nothing_comes(bytes: Range<u64>) -> Tell {
    Tell::Failed {
        start: bytes.start,
        end: bytes.end,
        why: REMOVED.into(),
    }
}

/// Tells a program what has come of what it wants, and what does not come.
async fn tell_wanted(
    image: &Image,
    wanted: &mut Vec<Wanted>,
    write: &mut OwnedWriteHalf,
) -> io::Result<()> {
    let mut tells = Vec::new();
    wanted.retain(|want| {
        let Range { start, end } = want.bytes;
        if image.has(&want.bytes) {
            if want.class == Class::Miss {
                image.note_wait(want.since.elapsed());
            }
            tells.push(Tell::Here { start, end });
            return false;
        }
        match image.failure(&want.bytes, want.since) {
            // Nobody waits for the others, and they stay wanted.
            Some(_) if want.class == Class::Behind || want.class >= Class::Neighbours => false,
            Some(why) => {
                tells.push(Tell::Failed { start, end, why });
                false
            }
            None => true,
        }
    });
    for tell in tells {
        send(write, &tell).await?;
    }
    Ok(())
}

async fn send(write: &mut OwnedWriteHalf, tell: &Tell) -> io::Result<()> {
    let mut line = Vec::new();
    brisk_remote::write_line(&mut line, tell)?;
    write.write_all(&line).await
}

/// Reads a line. What has come of it stays in `line` if this is dropped.
pub async fn read_line(
    read: &mut (impl tokio::io::AsyncBufRead + Unpin),
    line: &mut Vec<u8>,
) -> io::Result<usize> {
    loop {
        let available = read.fill_buf().await?;
        if available.is_empty() {
            return Ok(0);
        }
        let end = available.iter().position(|b| *b == b'\n');
        let taken = end.map_or(available.len(), |end| end + 1);
        line.extend_from_slice(&available[..taken]);
        read.consume(taken);
        if line.len() > MOST_LINE {
            return Err(io::Error::other("a message is too long"));
        }
        if end.is_some() {
            return Ok(line.len());
        }
    }
}
