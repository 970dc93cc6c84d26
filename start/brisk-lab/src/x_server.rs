//! An X server without a screen, for programs that show windows.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::undo::{ENDING, Undo};

/// An X server. It ends when this value is dropped, or with the lab.
pub struct XServer {
    process: Child,
    /// The name of its display, such as `:99`.
    pub name: String,
}

impl XServer {
    /// Starts a server on a free number.
    pub fn start(undo: &mut Undo) -> Result<Self> {
        let mut process = Command::new("Xvfb")
            .args(["-displayfd", "1", "-screen", "0", "1280x800x24"])
            .args(["-ac", "-nolisten", "tcp", "-noreset"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("cannot start Xvfb, which field display needs; install xvfb")?;
        undo.display(Some(process.id()))?;
        let stdout = process.stdout.take().context("a pipe was asked for")?;
        let mut server = Self {
            process,
            name: String::new(),
        };
        let mut number = String::new();
        BufReader::new(stdout).read_line(&mut number)?;
        let number = number.trim();
        ensure!(!number.is_empty(), "Xvfb ended before it was ready");
        server.name = format!(":{number}");
        Ok(server)
    }

    /// Ends it.
    pub fn end(self, undo: &mut Undo) -> Result<()> {
        drop(self);
        undo.display(None)
    }
}

impl Drop for XServer {
    fn drop(&mut self) {
        // It has ended already if it crashed.
        let pid = i32::try_from(self.process.id())
            .ok()
            .and_then(Pid::from_raw);
        if let Some(pid) = pid {
            kill_process(pid, Signal::TERM).ok();
        }
        let deadline = Instant::now() + ENDING;
        while matches!(self.process.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        self.process.kill().ok();
        self.process.wait().ok();
    }
}
