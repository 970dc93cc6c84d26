//! A job for a process with sockets that ends with it: what a fetcher, which may only write into its cache, cannot do.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::fetcher::Lines;
use crate::login::{Login, log_in};
use crate::protocol::{Ask, Tell, write_line};

/// The word before the directory that a job may write into.
pub const JOB: &str = "--job";

/// How long nothing may be said of a job. The process gives a server up that is silent for less.
const SILENCE: Duration = Duration::from_secs(600);

/// A process with sockets that does one thing. It ends when this is dropped.
///
/// It has the file that it reads as standard input, and the socket to here as standard output.
#[derive(Debug)]
pub struct Job {
    child: Child,
    out: UnixStream,
    lines: Lines,
}

/// What a job has done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// The digest of the manifest, with `sha256:`.
    pub digest: String,
    /// The host that gave a token, if that is not the registry.
    pub realm: Option<String>,
}

impl Job {
    /// Starts `program`, which may write into `directory` only.
    ///
    /// # Errors
    ///
    /// `Io`.
    pub fn start(program: &Path, directory: &Path, input: Option<File>) -> Result<Self> {
        let failed = |e| {
            let doing = format!(
                "start {}, which asks registries; install it beside brisk",
                program.display()
            );
            Error::io(doing, e)
        };
        let (out, theirs) = UnixStream::pair().map_err(failed)?;
        let child = Command::new(program)
            .arg(JOB)
            .arg(directory)
            .stdin(input.map_or_else(Stdio::null, Stdio::from))
            .stdout(Stdio::from(OwnedFd::from(theirs)))
            .spawn()
            .map_err(failed)?;
        let lines = Lines::new(out.try_clone().map_err(failed)?);
        Ok(Self { child, out, lines })
    }

    /// Does what `ask` says. `login` says what the user has for a registry; `moved` gets the numbers of bytes that were moved.
    ///
    /// # Errors
    ///
    /// `Server`, and `Fetcher` if the process ends.
    pub fn run(&mut self, ask: &Ask, login: Login, mut moved: impl FnMut(u64)) -> Result<Done> {
        let failed = |e| Error::io("reach brisk-fetch", e);
        write_line(&mut self.out, ask).map_err(failed)?;
        loop {
            match self.lines.next(SILENCE).map_err(failed)? {
                Some(Tell::Moved { bytes }) => moved(bytes),
                Some(Tell::Done { digest, realm }) => return Ok(Done { digest, realm }),
                Some(Tell::Login { registry }) => {
                    let login = log_in(ask, registry, login)?;
                    write_line(&mut self.out, &login).map_err(failed)?;
                }
                Some(Tell::Refused { why }) => return Err(Error::new(ErrorKind::Server, why)),
                other => {
                    let text = format!("brisk-fetch says {other:?} of a job");
                    return Err(Error::new(ErrorKind::Fetcher, text));
                }
            }
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // It may have ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
