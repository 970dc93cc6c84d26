//! `brisk proxy` itself: everything is put together from the arguments.

use std::fs::{self, DirBuilder};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use brisk_terminal::answer::Answer;
use brisk_terminal::proxy_args::ProxyArgs;
use http::HeaderName;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tower_layer::Layer;

use crate::access::Access;
use crate::access_log::AccessLog;
use crate::cached;
use crate::chosen_maps;
use crate::file_hosts::FileHosts;
use crate::form::Forms;
use crate::grants::Grants;
use crate::guarded_stream;
use crate::hop_by_hop::Via;
use crate::map::{Maps, upstream_url};
use crate::mapped_memory::MappedMemory;
use crate::metrics::{Metrics, WRITE_EVERY};
use crate::net::Net;
use crate::own_pages::OwnPages;
use crate::private_file;
use crate::proxy::Proxy;
use crate::secret::Secret;
use crate::server::{Bounds, serve};
use crate::upstream::{self, Upstream};
use crate::upstream_credential::UpstreamCredentials;
use crate::workers::{self, Worker};

/// Where the proxy listens if nothing else is said.
const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7077);

/// How long a client has for a head.
const HEAD_TIME: Duration = Duration::from_secs(10);

/// How long the end waits for what is being stored.
const STORE_TIME: Duration = Duration::from_secs(2);

/// How often to look whether the directory of the cache is still there.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long to wait after it could not be made anew.
const AFTER_FAILURE: Duration = Duration::from_secs(10);

/// How long an upstream has until a connection stands.
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// Serves until it is told to end.
pub fn run(args: &ProxyArgs) -> anyhow::Result<Answer> {
    raise_descriptors();
    let access = access(args)?;
    let directory = directory(args)?;
    let worker = Worker::of_environment()?;
    let (maps, listeners, metrics) = match &worker {
        Some(worker) => (
            worker.maps()?,
            worker.listeners()?,
            Metrics::with_file(worker.numbers()),
        ),
        None => {
            let (maps, notes) = chosen_maps::choose(args, &addresses(args))?;
            let listeners = listeners(args, &access)?;
            check(args, &maps, &directory)?;
            announce(&maps, &notes, &listeners)?;
            if args.workers > 1 {
                return workers::supervise(&maps, &listeners, args.workers, args.grace);
            }
            (maps, listeners, Metrics::default())
        }
    };
    let (maps, metrics) = (Arc::new(maps), Arc::new(metrics));
    let site = Site {
        args,
        maps: &maps,
        metrics: &metrics,
        upstream: Upstream::new(
            upstream::Patience {
                connect: CONNECT_TIME.min(args.upstream_timeout),
                answer: args.upstream_timeout,
            },
            Arc::clone(&metrics),
        )?,
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads.div_ceil(usize::from(args.workers)))
        .enable_all()
        .build()
        .context("cannot start threads")?;
    runtime.block_on(async {
        let (ending, end) = watch::channel(false);
        workers::end_at_signals(ending.clone()).context("cannot wait for signals")?;
        if let Some(worker) = worker {
            worker.end_with_supervisor(ending)?;
        }
        let written = tokio::spawn(write_metrics(Arc::clone(&metrics)));
        site.serve(&listeners, &directory, end).await?;
        written.abort();
        metrics.write().context("cannot write the metrics")
    })?;
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(Answer::Yes)
}

/// What stays as it is when the directory of the cache does not.
struct Site<'a> {
    args: &'a ProxyArgs,
    maps: &'a Arc<Maps>,
    metrics: &'a Arc<Metrics>,
    upstream: Upstream,
}

impl Site<'_> {
    /// Serves until `end` is true. If somebody deletes the directory of the cache, a new one takes its place: the old one
    /// has no name any more, and takes space that nobody sees.
    async fn serve(
        &self,
        listeners: &[TcpListener],
        directory: &Path,
        end: watch::Receiver<bool>,
    ) -> anyhow::Result<()> {
        let mut servings = JoinSet::new();
        let mut current = self.begin(listeners, directory, &mut servings)?;
        loop {
            let mut ended = end.clone();
            tokio::select! {
                // An error is that the sender is gone, which is an end too.
                _ = ended.wait_for(|end| *end) => break,
                Some(served) = servings.join_next() => {
                    check_served(served)?;
                    continue;
                }
                () = current.gone() => {}
            }
            match remake(directory).and_then(|()| self.begin(listeners, directory, &mut servings)) {
                Ok(next) => {
                    brisk_terminal::messages::warn(&format!(
                        "{}: the directory of the cache was deleted, and is made anew",
                        directory.display()
                    ));
                    // What it still answers goes on.
                    current.ending.send_replace(true);
                    current = next;
                }
                Err(e) => {
                    brisk_terminal::messages::warn(&format!(
                        "the directory of the cache was deleted, and cannot be made anew: {e:#}"
                    ));
                    let mut ended = end.clone();
                    tokio::select! {
                        _ = ended.wait_for(|end| *end) => break,
                        () = tokio::time::sleep(AFTER_FAILURE) => {}
                    }
                }
            }
        }
        current.ending.send_replace(true);
        while let Some(served) = servings.join_next().await {
            check_served(served)?;
        }
        Ok(())
    }

    /// Begins to serve from this directory.
    fn begin(
        &self,
        listeners: &[TcpListener],
        directory: &Path,
        servings: &mut JoinSet<io::Result<()>>,
    ) -> anyhow::Result<Serving> {
        let args = self.args;
        let secret = Secret::of_directory(directory)?;
        let layer = cached::layer(args, self.maps, &secret, directory)?;
        let cache = Arc::clone(layer.cache());
        let entries = cache.directory().to_owned();
        let identity = identity(&entries).with_context(|| entries.display().to_string())?;
        let proxy = Arc::new(Proxy {
            maps: Arc::clone(self.maps),
            access: access(args)?,
            hosts: FileHosts::new(secret.clone()),
            follow: args.follow.clone().into(),
            credentials: UpstreamCredentials::read(&args.credential, self.maps)?,
            passed: passed(args)?,
            public_url: public_url(args)?,
            fetch: layer.layer(self.upstream.clone()),
            upstream: self.upstream.clone(),
            grants: Arc::new(Grants::new(Arc::clone(&cache), secret.clone())),
            offline: args.offline,
            stale: args.stale,
            via: Via::new(format!("brisk-{}", secret.sign("via", ""))),
            upload_limit: args.upload_limit,
            forms: Arc::new(Forms::new(
                Arc::clone(&cache),
                Arc::clone(self.metrics),
                secret,
            )),
            mapped: MappedMemory::new(Arc::clone(&cache)),
            pages: OwnPages::new(cache),
            metrics: Arc::clone(self.metrics),
            log: AccessLog::open(args.log.as_deref())?,
        });
        let bounds = bounds(args);
        let own: io::Result<Vec<TcpListener>> =
            listeners.iter().map(TcpListener::try_clone).collect();
        let own = own.context("cannot listen")?;
        let (ending, end) = watch::channel(false);
        servings.spawn(async move {
            serve(own, proxy, bounds, end).await?;
            // What answers have brought is stored. What takes too long is fetched another time.
            tokio::time::timeout(STORE_TIME, layer.idle()).await.ok();
            Ok(())
        });
        Ok(Serving {
            ending,
            entries,
            identity,
        })
    }
}

/// What serves from one directory.
struct Serving {
    ending: watch::Sender<bool>,
    entries: PathBuf,
    identity: (u64, u64),
}

impl Serving {
    /// Ready when the directory is not there any more, or is another one.
    async fn gone(&self) {
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        loop {
            ticks.tick().await;
            // A disk that fails for a moment is no directory that is gone.
            let is_gone = match identity(&self.entries) {
                Ok(identity) => identity != self.identity,
                Err(e) => e.kind() == io::ErrorKind::NotFound,
            };
            if is_gone {
                return;
            }
        }
    }
}

/// How serving from one directory ended.
fn check_served(served: Result<io::Result<()>, JoinError>) -> anyhow::Result<()> {
    served
        .context("a task that serves has failed")?
        .context("cannot listen")
}

/// What tells a directory from another one of its name.
fn identity(directory: &Path) -> io::Result<(u64, u64)> {
    let found = fs::metadata(directory)?;
    Ok((found.dev(), found.ino()))
}

fn bounds(args: &ProxyArgs) -> Bounds {
    Bounds {
        connections: args.connections,
        connections_per_client: args
            .connections_per_client
            .unwrap_or(args.connections.div_ceil(2)),
        patience: guarded_stream::Patience {
            head: HEAD_TIME.min(args.client_timeout),
            idle: args.client_timeout,
            piece: args.client_timeout,
        },
        grace: args.grace,
    }
}

fn passed(args: &ProxyArgs) -> anyhow::Result<Vec<HeaderName>> {
    let name = |text: &String| {
        HeaderName::try_from(text)
            .with_context(|| format!("--pass-field {text:?}: allowed is the name of a field"))
    };
    args.pass_field.iter().map(name).collect()
}

/// Tries what each process needs. A supervisor would otherwise replace workers that fail, for ever.
fn check(args: &ProxyArgs, maps: &Maps, directory: &Path) -> anyhow::Result<()> {
    let secret = Secret::of_directory(directory)?;
    cached::layer(args, maps, &secret, directory)?;
    UpstreamCredentials::read(&args.credential, maps)?;
    passed(args)?;
    public_url(args)?;
    AccessLog::open(args.log.as_deref())?;
    Ok(())
}

/// Each connection and each file of the cache needs a descriptor, and a shell gives few. Without more of them, connections
/// wait.
fn raise_descriptors() {
    let had = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: had.maximum,
        ..had
    };
    setrlimit(Resource::Nofile, raised).ok();
}

fn announce(maps: &Maps, notes: &[String], listeners: &[TcpListener]) -> anyhow::Result<()> {
    for map in maps.iter() {
        brisk_terminal::messages::say(&format!("brisk proxy: {map}"));
    }
    for note in notes {
        brisk_terminal::messages::say(&format!("brisk proxy: {note}"));
    }
    for listener in listeners {
        let address = listener
            .local_addr()
            .context("cannot tell where it listens")?;
        brisk_terminal::messages::say(&format!("brisk proxy: listening at http://{address}"));
    }
    Ok(())
}

async fn write_metrics(metrics: Arc<Metrics>) {
    let mut ticks = tokio::time::interval(WRITE_EVERY);
    loop {
        ticks.tick().await;
        if let Err(e) = metrics.write() {
            brisk_terminal::messages::warn(&format!(
                "cannot write the metrics of this worker: {e}"
            ));
            return;
        }
    }
}

/// The URL of the proxy, if the arguments say it.
fn public_url(args: &ProxyArgs) -> anyhow::Result<Option<String>> {
    let Some(text) = &args.public_url else {
        return Ok(None);
    };
    let url = upstream_url(text).context("--public-url")?;
    Ok(Some(url.as_str().trim_end_matches('/').to_owned()))
}

fn access(args: &ProxyArgs) -> anyhow::Result<Access> {
    let nets: anyhow::Result<Vec<Net>> = args
        .allow
        .iter()
        .map(|text| Net::parse(text).with_context(|| format!("--allow {text}")))
        .collect();
    Access::new(nets?, args.token_file.as_deref(), args.open_pages).context("--token-file")
}

/// Where to listen without systemd.
fn addresses(args: &ProxyArgs) -> Vec<SocketAddr> {
    match args.listen.is_empty() {
        true => vec![DEFAULT_LISTEN],
        false => args.listen.clone(),
    }
}

/// The sockets that systemd hands over, and those of the arguments.
fn listeners(args: &ProxyArgs, access: &Access) -> anyhow::Result<Vec<TcpListener>> {
    let mut listeners = Vec::new();
    let mut handed = listenfd::ListenFd::from_env();
    for at in 0..handed.len() {
        let listener = handed
            .take_tcp_listener(at)
            .with_context(|| format!("socket {at} from systemd is no TCP socket that listens"))?;
        listeners.extend(listener);
    }
    let addresses = match listeners.is_empty() {
        true => addresses(args),
        false => args.listen.clone(),
    };
    for address in addresses {
        access.check_listener(address.ip())?;
        let listener = TcpListener::bind(address).with_context(|| {
            format!("cannot listen at {address}; --listen takes another address")
        })?;
        listeners.push(listener);
    }
    for listener in &listeners {
        access.check_listener(listener.local_addr()?.ip())?;
    }
    Ok(listeners)
}

/// The directory of the cache and its secret.
fn directory(args: &ProxyArgs) -> anyhow::Result<PathBuf> {
    let directory = match &args.cache {
        Some(directory) => directory.clone(),
        None => brisk_io::cache_home()
            .context(
                "neither XDG_CACHE_HOME nor HOME is the absolute path of a directory; set one of them, or say with --cache \
                 where the cache is",
            )?
            .join("brisk/proxy"),
    };
    remake(&directory)?;
    Ok(directory)
}

/// Makes a directory for this user alone, unless it is there and no other user's.
fn remake(directory: &Path) -> anyhow::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder
        .create(directory)
        .and_then(|()| fs::metadata(directory))
        .context("cannot make the directory of the cache")
        .and_then(|found| private_file::check_directory(&found, "the directory of the cache"))
        .with_context(|| directory.display().to_string())
}
