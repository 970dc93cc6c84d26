//! The index: a process of its own that serves the frozen pages, so that its time is not that of a way.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::jobs::Program;

/// How long an answer on the loopback may take.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Server {
    process: Child,
    port: u16,
}

/// What a server has answered so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answers {
    /// Pages that it sent.
    pub sent: u64,
    /// How often it said that a page still holds.
    pub held: u64,
}

impl Answers {
    pub fn since(self, before: Self) -> Self {
        Self {
            sent: self.sent.saturating_sub(before.sent),
            held: self.held.saturating_sub(before.held),
        }
    }
}

impl Server {
    pub fn start(program: &Program, pages: &Path) -> Result<Self> {
        let mut command = program.command("serve");
        command.arg(pages);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().context("cannot start the index")?;
        let mut line = String::new();
        let said = process.stdout.take().context("the index has no output")?;
        BufReader::new(said).read_line(&mut line)?;
        let Ok(port) = line.trim().parse() else {
            process.wait()?;
            bail!("the index has printed {line:?} and no port; see above what it says");
        };
        Ok(Self { process, port })
    }

    /// Ends with a slash.
    pub fn address(&self) -> String {
        format!("http://{}:{}/", Ipv4Addr::LOCALHOST, self.port)
    }

    pub fn answers(&self) -> Result<Answers> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream
            .write_all(b"GET /counts HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let last = answer.lines().last().unwrap_or_default();
        let counts = last.split_once(' ').and_then(|(sent, held)| {
            Some(Answers {
                sent: sent.parse().ok()?,
                held: held.parse().ok()?,
            })
        });
        counts.with_context(|| format!("the index counts {last:?}, and allowed are two numbers"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It ends with its input. If it does not, there is nobody to tell.
        drop(self.process.stdin.take());
        if self.process.wait().is_err() {
            self.process.kill().ok();
        }
    }
}
