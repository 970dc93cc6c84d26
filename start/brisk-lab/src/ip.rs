//! The command `ip`, of iproute2, and the network namespaces that it has given a name.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use super::command_output::output_of;

/// The directory with the named namespaces.
pub const NAMES: &str = "/run/netns";

/// Ends all processes in the namespace with this name but one, and removes it.
pub fn remove_namespace(name: &str, but: Option<Pid>) -> Result<()> {
    if !Path::new(NAMES).join(name).exists() {
        return Ok(());
    }
    end_processes(name, but)?;
    ip(&["netns", "del", name])
}

/// Ends all processes in the namespace with this name but one.
pub fn end_processes(name: &str, but: Option<Pid>) -> Result<()> {
    let listed = output_of(Command::new("ip").args(["netns", "pids", name]))?;
    let listed = String::from_utf8_lossy(&listed);
    let numbers = listed.split_whitespace();
    for process in numbers.filter_map(|number| Pid::from_raw(number.parse().ok()?)) {
        if Some(process) != but {
            // It may have ended meanwhile.
            kill_process(process, Signal::KILL).ok();
        }
    }
    Ok(())
}

/// Runs `ip`, which must succeed.
pub fn ip(arguments: &[&str]) -> Result<()> {
    let done = output_of(Command::new("ip").args(arguments)).map(drop);
    done.context("brisk lab remote needs ip, of iproute2, and a kernel with network namespaces")
}
