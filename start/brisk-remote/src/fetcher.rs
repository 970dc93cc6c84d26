//! The connection to the fetcher, and how one is started.

use std::io::{self, BufRead, BufReader};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::Deserialize;

use crate::arriving::Arriving;
use crate::cache::RemoteCache;
use crate::error::{Error, ErrorKind, Result};
use crate::login::{Login, log_in, log_in_first};
use crate::protocol::{
    Ask, Cosigned, MOST_LINE, OpenOptions, Opened, Resolved, Tell, WAIT, parse_line, write_line,
};
use crate::remote_url::RemoteUrl;
use crate::surroundings::{Surroundings, certificates};
use crate::waiting_image::LONG;

/// The name of the socket in the cache.
pub const SOCKET: &str = "fetch.sock";

/// How long a fetcher may take to start.
const START: Duration = Duration::from_secs(10);

/// How long a fetcher may take to say that a name cannot be asked for. It gives up itself before that.
const ANSWER: Duration = Duration::from_secs(120);

/// How long reading a whole image back may take.
const CHECK: Duration = Duration::from_secs(24 * 3600);

/// How often in a row another fetcher is asked because one has ended.
const TRIES: u32 = 3;

/// Where a fetcher is, or can be started.
#[derive(Debug, Clone)]
pub struct FetcherPlace {
    cache: Arc<RemoteCache>,
    /// What to start if none runs.
    program: PathBuf,
    login: Login,
    /// Seconds.
    wait: u64,
    pub(crate) on_wait: fn(),
}

/// A connection to the fetcher.
#[derive(Debug)]
pub struct Fetcher {
    place: FetcherPlace,
    out: UnixStream,
    lines: Lines,
}

/// What the fetcher says.
#[derive(Debug)]
pub struct Lines {
    lines: BufReader<UnixStream>,
    kept: Vec<u8>,
}

impl FetcherPlace {
    /// The fetcher of this cache. `program`: what to start if none runs.
    pub fn new(cache: Arc<RemoteCache>, program: &Path) -> Self {
        Self {
            cache,
            program: program.to_owned(),
            login: |_| Ok(None),
            wait: WAIT,
            on_wait: || {},
        }
    }

    /// Waits at most so many seconds for what a server says of a name. `on_wait` is called when that has waited for one, or a read.
    #[must_use]
    pub fn wait(self, wait: u64, on_wait: fn()) -> Self {
        Self {
            wait,
            on_wait,
            ..self
        }
    }

    /// Asks `login` what the user has for a web server, and for a registry or an object store that wants to know.
    #[must_use]
    pub fn login(self, login: Login) -> Self {
        Self { login, ..self }
    }

    /// What to start if none runs.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// The cache.
    pub fn cache(&self) -> &Arc<RemoteCache> {
        &self.cache
    }

    /// Starts a fetcher, which is nobody's child then, unless one runs.
    ///
    /// # Errors
    ///
    /// `Io` and `Fetcher`.
    pub fn start(&self) -> Result<()> {
        let program = &self.program;
        let started = Command::new(program)
            .arg(self.cache.path())
            .envs(certificates())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status();
        match started {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => {
                let text = format!("{} ended with {status}", program.display());
                Err(Error::new(ErrorKind::Fetcher, text))
            }
            Err(e) => Err(Error::io(
                format!(
                    "start {}, which reads images from the network; install it beside brisk",
                    program.display()
                ),
                e,
            )),
        }
    }
}

impl Lines {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self {
            lines: BufReader::new(stream),
            kept: Vec::new(),
        }
    }

    /// Whether something was read that was not returned.
    pub(crate) fn has_more(&self) -> bool {
        self.lines.buffer().contains(&b'\n')
    }

    /// The next message. None if there is none for so long.
    ///
    /// # Errors
    ///
    /// Also at the end of the connection.
    pub(crate) fn next<T: for<'de> Deserialize<'de>>(
        &mut self,
        at_most: Duration,
    ) -> io::Result<Option<T>> {
        let end = Instant::now() + at_most;
        loop {
            // What is in the buffer was read before.
            if self.lines.buffer().is_empty() {
                let left = end.saturating_duration_since(Instant::now());
                let left = Timespec::try_from(left).unwrap_or_default();
                let mut fds = [PollFd::from_borrowed_fd(
                    self.lines.get_ref().as_fd(),
                    PollFlags::IN,
                )];
                match poll(&mut fds, Some(&left)) {
                    Ok(0) => return Ok(None),
                    Ok(_) => {}
                    Err(Errno::INTR) => continue,
                    Err(e) => return Err(e.into()),
                }
            }
            // It reads once, and does not wait.
            let read = self.lines.fill_buf()?;
            if read.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let line = read.iter().position(|b| *b == b'\n').map(|end| end + 1);
            let taken = line.unwrap_or(read.len());
            self.kept.extend_from_slice(&read[..taken]);
            self.lines.consume(taken);
            if line.is_some() || self.kept.len() > MOST_LINE {
                return parse_line(&std::mem::take(&mut self.kept)).map(Some);
            }
        }
    }
}

/// Connects with the socket in the directory `cache`, whatever the path of that is. None if nobody listens.
///
/// # Errors
///
/// Others than that nobody listens.
pub fn connect(cache: BorrowedFd<'_>) -> io::Result<Option<UnixStream>> {
    // The path of a socket has at most 107 bytes.
    let path = format!("/proc/self/fd/{}/{SOCKET}", cache.as_raw_fd());
    match UnixStream::connect(path) {
        Ok(stream) => Ok(Some(stream)),
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ) =>
        {
            Ok(None)
        }
        Err(e) => Err(e),
    }
}

/// A connection about this image, to a fetcher that runs. None if none does.
///
/// # Errors
///
/// As [`connect`].
pub fn attach(cache: &OwnedFd, arriving: &Arriving) -> io::Result<Option<UnixStream>> {
    let Some(mut stream) = connect(cache.as_fd())? else {
        return Ok(None);
    };
    write_line(&mut stream, &arriving.attach())?;
    Ok(Some(stream))
}

impl Fetcher {
    /// Connects with the fetcher of this cache. Starts `program` if none runs.
    ///
    /// # Errors
    ///
    /// `Fetcher`.
    pub fn connect(cache: &Arc<RemoteCache>, program: &Path) -> Result<Self> {
        Self::at(&FetcherPlace::new(Arc::clone(cache), program))
    }

    /// As [`Fetcher::connect`].
    ///
    /// # Errors
    ///
    /// `Fetcher`.
    pub fn at(place: &FetcherPlace) -> Result<Self> {
        let failed = |e: io::Error| Error::io("reach brisk-fetch", e);
        let end = Instant::now() + START;
        let own = Surroundings::of_this_process().map_err(failed)?;
        let (out, lines) = loop {
            match connect(place.cache.fd().as_fd()).map_err(failed)? {
                Some(stream) => {
                    if let Some(welcomed) = greet(stream, &own)? {
                        break welcomed;
                    }
                }
                // Another one may be about to end, and then none is started.
                None => place.start()?,
            }
            if Instant::now() > end {
                let log = place.cache.path().join("fetch.log");
                let text = format!(
                    "brisk-fetch was started and does not answer; {} may say why",
                    log.display()
                );
                return Err(Error::new(ErrorKind::Fetcher, text));
            }
            thread::sleep(Duration::from_millis(2));
        };
        Ok(Self {
            place: place.clone(),
            out,
            lines,
        })
    }

    /// What the server says of a URL. With `refresh`, it is asked even if an earlier answer is fresh.
    ///
    /// # Errors
    ///
    /// `Server`.
    pub fn resolve(&mut self, url: &RemoteUrl, refresh: bool) -> Result<Resolved> {
        let ask = Ask::Resolve {
            url: url.asked().to_owned(),
            refresh,
            wait: self.place.wait,
        };
        match self.ask(&ask, self.answer())? {
            Tell::Resolved(resolved) => Ok(resolved),
            other => Err(unexpected(&other)),
        }
    }

    /// The digest of the manifest of the hot pack that somebody has pushed for an image in a registry. `subject` is that of the image's.
    ///
    /// # Errors
    ///
    /// `Server`, also if there is none.
    pub fn referrer(&mut self, url: &RemoteUrl, subject: String) -> Result<String> {
        let url = url.as_str().to_owned();
        match self.ask(&Ask::Referrer { url, subject }, ANSWER)? {
            Tell::Done { digest, .. } => Ok(digest),
            other => Err(unexpected(&other)),
        }
    }

    /// What cosign has signed of the manifest of an image in a registry. `subject` is the digest of that.
    ///
    /// # Errors
    ///
    /// `Server`.
    pub fn cosigned(&mut self, url: &RemoteUrl, subject: String) -> Result<Vec<Cosigned>> {
        let url = url.as_str().to_owned();
        match self.ask(&Ask::Cosigned { url, subject }, ANSWER)? {
            Tell::Cosigned(found) => Ok(found),
            other => Err(unexpected(&other)),
        }
    }

    /// Lets an image arrive. With `anew`, what is here of it cannot be read: if the server says now that it has another length or
    /// digest, the entry is made anew.
    ///
    /// # Errors
    ///
    /// `Server`.
    pub fn open(
        &mut self,
        url: &RemoteUrl,
        resolved: &Resolved,
        options: &OpenOptions,
        anew: bool,
    ) -> Result<Opened> {
        let ask = Ask::Open {
            url: url.asked().to_owned(),
            resolved: resolved.clone(),
            options: options.clone(),
            anew,
        };
        match self.ask(&ask, self.answer())? {
            Tell::Opened(opened) => Ok(opened),
            other => Err(unexpected(&other)),
        }
    }

    /// Says that this connection is about this image.
    ///
    /// # Errors
    ///
    /// `Io`.
    pub fn attach(&mut self, arriving: &Arriving) -> Result<()> {
        self.send(&arriving.attach())
    }

    /// Waits until all of an image is there, and was compared with what it should be.
    ///
    /// # Errors
    ///
    /// `Server`, with the reason why it is not.
    pub fn whole(&mut self, arriving: &Arriving) -> Result<()> {
        match self.ask(&arriving.ask_whole(), CHECK)? {
            Tell::Whole => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// How long an answer may take that the fetcher gives at the latest when the wait is over.
    fn answer(&self) -> Duration {
        ANSWER.max(Duration::from_secs(self.place.wait.saturating_mul(2)))
    }

    /// Sends a message that has no answer.
    ///
    /// # Errors
    ///
    /// `Io`.
    pub fn send(&mut self, ask: &Ask) -> Result<()> {
        let first = log_in_first(ask, self.place.login)?;
        let mut all = first.iter().chain([ask]);
        all.try_for_each(|ask| write_line(&mut self.out, ask))
            .map_err(|e| Error::io("reach brisk-fetch", e))
    }

    /// Asks what may be asked twice. Who wants to know who asks is told, and asked again.
    fn ask(&mut self, ask: &Ask, at_most: Duration) -> Result<Tell> {
        for _ in 0..TRIES {
            match self.ask_once(ask, at_most)? {
                Tell::Login { registry } => {
                    self.send(&log_in(ask, registry, self.place.login)?)?;
                }
                tell => return Ok(tell),
            }
        }
        Err(Error::new(
            ErrorKind::Fetcher,
            "brisk-fetch asks again and again who the user is",
        ))
    }

    /// Asks. If the fetcher ends before it answers, the next one is asked.
    fn ask_once(&mut self, ask: &Ask, at_most: Duration) -> Result<Tell> {
        let first = log_in_first(ask, self.place.login)?;
        let mut tries = 0;
        let tell = loop {
            let mut all = first.iter().chain([ask]);
            let asked = all
                .try_for_each(|ask| write_line(&mut self.out, ask))
                .and_then(|()| self.next(at_most));
            match asked {
                Ok(tell) => break tell,
                Err(e) if tries == TRIES => return Err(Error::io("hear from brisk-fetch", e)),
                Err(_) => {
                    tries += 1;
                    *self = Self::at(&self.place)?;
                }
            }
        };
        match tell {
            Some(Tell::Refused { why }) => Err(Error::new(ErrorKind::Server, why)),
            Some(tell) => Ok(tell),
            None => Err(Error::new(
                ErrorKind::Fetcher,
                "brisk-fetch does not answer",
            )),
        }
    }

    /// The next message. None if there is none for so long.
    fn next(&mut self, at_most: Duration) -> io::Result<Option<Tell>> {
        if let Some(tell) = self.lines.next(LONG.min(at_most))? {
            return Ok(Some(tell));
        }
        (self.place.on_wait)();
        self.lines.next(at_most.saturating_sub(LONG))
    }

    pub(crate) fn into_parts(self) -> (UnixStream, Lines) {
        (self.out, self.lines)
    }
}

/// Shows a fetcher the surroundings of this process. None if it ends.
fn greet(stream: UnixStream, own: &Surroundings) -> Result<Option<(UnixStream, Lines)>> {
    let failed = |e: io::Error| Error::io("reach brisk-fetch", e);
    let mut lines = Lines::new(stream.try_clone().map_err(failed)?);
    let said = own.show(&stream).and_then(|()| lines.next(START));
    match said {
        Ok(Some(Tell::Welcome)) => Ok(Some((stream, lines))),
        Ok(Some(Tell::Leaving)) => Ok(None),
        Ok(Some(Tell::Refused { why })) => Err(Error::new(ErrorKind::Fetcher, why)),
        Ok(Some(other)) => Err(unexpected(&other)),
        Ok(None) => Err(Error::new(
            ErrorKind::Fetcher,
            "brisk-fetch does not answer",
        )),
        Err(e) if e.kind() == io::ErrorKind::InvalidData => Err(failed(e)),
        // It ended before it has read this.
        Err(_) => Ok(None),
    }
}

fn unexpected(tell: &Tell) -> Error {
    let text = format!("brisk-fetch answers {tell:?}; it may be of another version of brisk");
    Error::new(ErrorKind::Fetcher, text)
}
