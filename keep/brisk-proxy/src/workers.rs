//! Several processes that serve from the same sockets and the same cache.
//!
//! A supervisor starts them, and replaces each one that ends. It hands the sockets over a pair of Unix sockets, of which a
//! worker has one end as its standard input. That pair stays: when the supervisor's end is closed, because it ends or was
//! killed, the worker ends too, after the answers that are under way.

use std::env;
use std::fs;
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use brisk_terminal::answer::Answer;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::map::{Map, Maps};
use crate::metrics::Metrics;

/// Says to a process that it is a worker: its number, a colon, and the directory of all workers' numbers.
const WORKER: &str = "BRISK_PROXY_WORKER";

/// The file of the maps, in the directory of all workers.
const MAPS: &str = "maps";

/// The most sockets that are handed over.
const MOST_SOCKETS: usize = 64;

/// A worker that ends sooner than this was not able to serve.
const SHORT_LIFE: Duration = Duration::from_secs(1);

/// After so many short lives, the next one waits for a while.
const SHORT_LIVES: u32 = 3;

/// How long workers have to end beyond their grace, until they are killed.
const BEYOND_GRACE: Duration = Duration::from_secs(5);

/// A worker, in its own process.
#[derive(Debug)]
pub struct Worker {
    number: u16,
    directory: PathBuf,
    supervisor: UnixStream,
}

impl Worker {
    /// None if this process is no worker.
    pub fn of_environment() -> anyhow::Result<Option<Self>> {
        let Some(text) = env::var_os(WORKER) else {
            return Ok(None);
        };
        let wrong =
            "BRISK_PROXY_WORKER is for the processes that brisk proxy starts itself; unset it";
        let (number, directory) = text
            .to_str()
            .and_then(|text| text.split_once(':'))
            .context(wrong)?;
        let input = io::stdin().as_fd().try_clone_to_owned()?;
        Ok(Some(Self {
            number: number.parse().ok().context(wrong)?,
            directory: directory.into(),
            supervisor: UnixStream::from(input),
        }))
    }

    /// The sockets that the supervisor hands over.
    pub fn listeners(&self) -> anyhow::Result<Vec<TcpListener>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_SOCKETS))];
        let mut buffer = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let come = recvmsg(
            &self.supervisor,
            &mut [IoSliceMut::new(&mut byte)],
            &mut buffer,
            RecvFlags::CMSG_CLOEXEC,
        )
        .context("cannot take the sockets of the supervisor")?;
        let mut listeners = Vec::new();
        for message in buffer.drain() {
            if let RecvAncillaryMessage::ScmRights(sockets) = message {
                listeners.extend(sockets.map(TcpListener::from));
            }
        }
        if come.bytes == 0 || listeners.is_empty() {
            bail!("the supervisor has handed no socket over");
        }
        Ok(listeners)
    }

    /// The maps that the supervisor chose: the clients of this system are asked once.
    pub fn maps(&self) -> anyhow::Result<Maps> {
        let file = self.directory.join(MAPS);
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let maps: anyhow::Result<Vec<Map>> = text.lines().map(Map::parse).collect();
        Maps::new(maps?)
    }

    /// The file of this worker's numbers.
    pub fn numbers(&self) -> PathBuf {
        numbers(&self.directory, &self.number.to_string())
    }

    /// Sets `ending` when the supervisor is gone, or wants this worker to end.
    pub fn end_with_supervisor(self, ending: watch::Sender<bool>) -> anyhow::Result<()> {
        let mut supervisor = self.supervisor;
        let wait = move || {
            // Nothing more comes. Any end of the wait means that nobody supervises.
            supervisor.read_exact(&mut [0]).ok();
            ending.send_replace(true);
        };
        std::thread::Builder::new()
            .name("supervisor".to_owned())
            .spawn(wait)
            .context("cannot start a thread")?;
        Ok(())
    }
}

fn numbers(directory: &Path, name: &str) -> PathBuf {
    directory.join(name).with_extension("json")
}

/// Sets `ending` when this process is asked to end.
pub fn end_at_signals(ending: watch::Sender<bool>) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        ending.send_replace(true);
    });
    Ok(())
}

/// Serves with `count` workers, until this process is asked to end and they have ended.
pub fn supervise(
    maps: &Maps,
    listeners: &[TcpListener],
    count: u16,
    grace: Duration,
) -> anyhow::Result<Answer> {
    if listeners.len() > MOST_SOCKETS {
        bail!(
            "{} sockets are too many; workers share at most {MOST_SOCKETS}",
            listeners.len()
        );
    }
    let directory = tempfile::Builder::new()
        .prefix("brisk-proxy-")
        .tempdir()
        .context("cannot make a directory for the numbers of the workers")?;
    let lines: Vec<String> = maps.iter().map(Map::argument).collect();
    fs::write(directory.path().join(MAPS), lines.join("\n"))
        .context("cannot write the maps for the workers")?;
    let metrics = Metrics::with_file(numbers(directory.path(), "supervisor"));
    let supervisor = Supervisor {
        program: env::current_exe().context("cannot find brisk-proxy's own file")?,
        listeners,
        directory: directory.path(),
        metrics,
        grace,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot wait for workers")?;
    runtime.block_on(async {
        let (ending, end) = watch::channel(false);
        end_at_signals(ending).context("cannot wait for signals")?;
        let workers = (0..count).map(|number| supervisor.keep_alive(number, end.clone()));
        futures_util::future::join_all(workers).await;
        anyhow::Ok(())
    })?;
    Ok(Answer::Yes)
}

struct Supervisor<'a> {
    program: PathBuf,
    listeners: &'a [TcpListener],
    directory: &'a Path,
    metrics: Metrics,
    grace: Duration,
}

impl Supervisor<'_> {
    /// Keeps a worker of this number alive until `end` is true.
    async fn keep_alive(&self, number: u16, mut end: watch::Receiver<bool>) {
        let mut short_lives = 0u32;
        while !*end.borrow() {
            let begun = Instant::now();
            let fate = match self.start(number) {
                Ok((mut worker, lifeline)) => tokio::select! {
                    ended = worker.wait() => match ended {
                        Ok(status) => format!("ended with {status}"),
                        Err(e) => format!("cannot be waited for: {e}"),
                    },
                    _ = end.wait_for(|end| *end) => {
                        // The worker sees that, and ends.
                        drop(lifeline);
                        let patience = self.grace.saturating_add(BEYOND_GRACE);
                        if tokio::time::timeout(patience, worker.wait()).await.is_err() {
                            // It may have ended in this moment.
                            worker.kill().await.ok();
                        }
                        return;
                    }
                },
                Err(e) => format!("cannot be started: {e:#}"),
            };
            brisk_terminal::messages::warn(&format!("worker {number} {fate}; it is replaced"));
            self.metrics.replaced_worker();
            // A number that is lost does not stop the proxy.
            self.metrics.write().ok();
            short_lives = match begun.elapsed() < SHORT_LIFE {
                true => short_lives.saturating_add(1),
                false => 0,
            };
            if short_lives >= SHORT_LIVES {
                let wait = tokio::time::sleep(SHORT_LIFE);
                tokio::select! {
                    () = wait => {}
                    _ = end.wait_for(|end| *end) => {}
                }
            }
        }
    }

    fn start(&self, number: u16) -> anyhow::Result<(Child, UnixStream)> {
        let (own, theirs) = UnixStream::pair()?;
        let sockets: Vec<_> = self.listeners.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_SOCKETS))];
        let mut buffer = SendAncillaryBuffer::new(&mut space);
        if !buffer.push(SendAncillaryMessage::ScmRights(&sockets)) {
            bail!("there are too many sockets");
        }
        // They wait in the pair until the worker takes them.
        sendmsg(
            &own,
            &[IoSlice::new(&[0])],
            &mut buffer,
            SendFlags::NOSIGNAL,
        )?;
        let directory = self
            .directory
            .to_str()
            .context("the directory for temporary files has a name that is not UTF-8")?;
        let worker = Command::new(&self.program)
            .args(env::args_os().skip(1))
            .env(WORKER, format!("{number}:{directory}"))
            .env_remove("LISTEN_FDS")
            .env_remove("LISTEN_PID")
            .env_remove("LISTEN_FDNAMES")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .spawn()
            .with_context(|| self.program.display().to_string())?;
        Ok((worker, own))
    }
}
