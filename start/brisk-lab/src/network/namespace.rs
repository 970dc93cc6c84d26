//! A network namespace: a host of its own, as far as networks go.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::Path;

use anyhow::{Context, Result};
use rustix::process::getpid;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::ip::{NAMES, end_processes, ip};
use crate::undo::Undo;

/// A network namespace with a name. [`Undo`] removes it.
pub struct Namespace {
    name: String,
    file: File,
}

impl Namespace {
    /// Makes a namespace with this name, which no other has.
    pub fn add(name: String, undo: &mut Undo) -> Result<Self> {
        undo.remove_network(&name)?;
        ip(&["netns", "add", &name])?;
        let path = Path::new(NAMES).join(&name);
        let file = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
        let namespace = Self { name, file };
        namespace.ip(&["link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Moves this thread into it, and so the processes that it starts.
    pub fn enter(&self) -> Result<()> {
        let kind = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(self.file.as_fd(), kind)
            .with_context(|| format!("cannot enter the network namespace {}", self.name))?;
        // A connection would begin as fast as the one before to the same host has ended.
        let path = "/proc/sys/net/ipv4/tcp_no_metrics_save";
        fs::write(path, "1").with_context(|| format!("cannot write {path}"))
    }

    /// Runs `ip` in it.
    pub fn ip(&self, arguments: &[&str]) -> Result<()> {
        ip(&[&["-n", &self.name], arguments].concat())
    }

    /// Ends all processes in it, but not this one.
    pub fn end_processes(&self) -> Result<()> {
        end_processes(&self.name, Some(getpid()))
    }
}
