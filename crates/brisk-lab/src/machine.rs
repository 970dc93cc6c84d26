//! What a measurement depends on and cannot choose.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// The machine that a measurement ran on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    /// `uname -r`.
    pub kernel: String,
    /// That of the processor, as Rust names it.
    pub architecture: String,
    /// The name that the processor gives itself, if the kernel tells it.
    pub processor: Option<String>,
    /// Processors that the measured programs could run on.
    pub processors: usize,
    /// The frequency governor of the first processor, if there is one.
    pub governor: Option<String>,
    /// KiB of memory, if the kernel tells.
    pub memory_kib: Option<u64>,
    /// The file system that images and unpacked trees are written to.
    pub filesystem: String,
}

impl Machine {
    /// Describes this machine; outputs go to `work`.
    pub fn describe(work: &Path, processors: usize) -> Result<Self> {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")
            .context("cannot ask for the kernel's release")?;
        Ok(Self {
            kernel: kernel.trim().to_owned(),
            architecture: std::env::consts::ARCH.to_owned(),
            processor: field_of("/proc/cpuinfo", "model name"),
            processors,
            governor: fs::read_to_string("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
                .ok()
                .map(|text| text.trim().to_owned()),
            memory_kib: field_of("/proc/meminfo", "MemTotal")
                .and_then(|text| text.split(' ').next()?.parse().ok()),
            filesystem: filesystem_of(work)?,
        })
    }
}

/// The value of the first line `name : value` of `path`.
pub fn field_of(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let (_, value) = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(field, _)| field.trim() == name)?;
    Some(value.trim().to_owned())
}

fn filesystem_of(path: &Path) -> Result<String> {
    let kind = rustix::fs::statfs(path)
        .with_context(|| format!("cannot ask for the file system of {}", path.display()))?
        .f_type;
    Ok(match kind {
        0xef53 => "ext4".to_owned(),
        0x5846_5342 => "xfs".to_owned(),
        0x9123_683e => "btrfs".to_owned(),
        0x0102_1994 => "tmpfs".to_owned(),
        0x794c_7630 => "overlay".to_owned(),
        other => format!("{other:#x}"),
    })
}
