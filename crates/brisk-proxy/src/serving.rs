//! `brisk proxy` itself: everything is put together from the arguments.

use std::fs::DirBuilder;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use brisk::{Answer, ProxyArgs};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::watch;
use tower_layer::Layer;

use crate::access::Access;
use crate::access_log::AccessLog;
use crate::cached;
use crate::chosen_maps;
use crate::file_hosts::FileHosts;
use crate::form::Forms;
use crate::guarded_stream;
use crate::hop_by_hop::Via;
use crate::map::{Maps, upstream_url};
use crate::mapped_memory::MappedMemory;
use crate::metrics::{Metrics, WRITE_EVERY};
use crate::net::Net;
use crate::own_pages::OwnPages;
use crate::proxy::Proxy;
use crate::secret::Secret;
use crate::server::{Bounds, serve};
use crate::upstream::{self, Upstream};
use crate::workers::{self, Worker};

/// Where the proxy listens if nothing else is said.
const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7077);

/// How long a client has for a head.
const HEAD_TIME: Duration = Duration::from_secs(10);

/// How long the end waits for what is being stored.
const STORE_TIME: Duration = Duration::from_secs(2);

/// How long an upstream has until a connection stands.
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// Serves until it is told to end.
pub fn run(args: &ProxyArgs) -> anyhow::Result<Answer> {
    raise_descriptors();
    let access = access(args)?;
    let directory = directory(args)?;
    let secret = Secret::of_directory(&directory)?;
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
            check(args, &maps, &secret, &directory)?;
            announce(&maps, &notes, &listeners)?;
            if args.workers > 1 {
                return workers::supervise(&maps, &listeners, args.workers, args.grace);
            }
            (maps, listeners, Metrics::default())
        }
    };
    let metrics = Arc::new(metrics);
    let upstream = Upstream::new(
        upstream::Patience {
            connect: CONNECT_TIME.min(args.upstream_timeout),
            answer: args.upstream_timeout,
        },
        Arc::clone(&metrics),
    )?;
    let layer = cached::layer(args, &maps, &secret, &directory)?;
    let cache = Arc::clone(layer.cache());
    let proxy = Arc::new(Proxy {
        maps: Arc::new(maps),
        access,
        hosts: FileHosts::new(secret.clone()),
        follow: args.follow.clone(),
        public_url: public_url(args)?,
        fetch: layer.layer(upstream),
        via: Via::new(format!("brisk-{}", secret.sign("via", ""))),
        upload_limit: args.upload_limit,
        forms: Arc::new(Forms::new(Arc::clone(&cache), Arc::clone(&metrics))),
        mapped: MappedMemory::new(Arc::clone(&cache)),
        pages: OwnPages::new(cache),
        metrics,
        log: AccessLog::open(args.log.as_deref())?,
    });
    let bounds = Bounds {
        connections: args.connections,
        patience: guarded_stream::Patience {
            head: HEAD_TIME.min(args.client_timeout),
            idle: args.client_timeout,
            piece: args.client_timeout,
        },
        grace: args.grace,
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
        let written = tokio::spawn(write_metrics(Arc::clone(&proxy.metrics)));
        serve(listeners, Arc::clone(&proxy), bounds, end)
            .await
            .context("cannot listen")?;
        // What answers have brought is stored. What takes too long is fetched another time.
        tokio::time::timeout(STORE_TIME, layer.idle()).await.ok();
        written.abort();
        proxy.metrics.write().context("cannot write the metrics")
    })?;
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(Answer::Yes)
}

/// Tries what each process needs. A supervisor would otherwise replace workers that fail, for ever.
fn check(args: &ProxyArgs, maps: &Maps, secret: &Secret, directory: &Path) -> anyhow::Result<()> {
    cached::layer(args, maps, secret, directory)?;
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
        brisk::say(&format!("brisk proxy: {map}"));
    }
    for note in notes {
        brisk::say(&format!("brisk proxy: {note}"));
    }
    for listener in listeners {
        let address = listener
            .local_addr()
            .context("cannot tell where it listens")?;
        brisk::say(&format!("brisk proxy: listening at http://{address}"));
    }
    Ok(())
}

async fn write_metrics(metrics: Arc<Metrics>) {
    let mut ticks = tokio::time::interval(WRITE_EVERY);
    loop {
        ticks.tick().await;
        if let Err(e) = metrics.write() {
            brisk::warn(&format!("cannot write the metrics of this worker: {e}"));
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

/// The directory of the cache and its secret. This makes it, for this user alone.
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
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(&directory).with_context(|| {
        format!(
            "{}: cannot make the directory of the cache",
            directory.display()
        )
    })?;
    Ok(directory)
}
