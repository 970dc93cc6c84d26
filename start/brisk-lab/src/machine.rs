//! What a measurement depends on but cannot choose.

use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use brisk_io::measure_charge;
use brisk_serve::KernelSupport;
use serde::{Deserialize, Serialize};

/// The machine that a measurement ran on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    /// `uname -r`.
    pub kernel: String,
    /// The architecture of the processor, as Rust names it.
    pub architecture: String,
    /// The name that the processor gives itself, if the kernel says it.
    pub processor: Option<String>,
    /// Processors that the measured programs could run on.
    pub processors: usize,
    /// The frequency governor of the first processor, if there is one.
    pub governor: Option<String>,
    /// Memory in KiB, if the kernel says it.
    pub memory_kib: Option<u64>,
    /// The file system that images and unpacked trees are written to.
    pub filesystem: String,
    /// How the kernel decodes SquashFS. "unknown" if it does not say; None in older results.
    #[serde(default)]
    pub squashfs_decoding: Option<String>,
    /// The rates of the disk of that file system, measured by direct reads. None if it has no disk, and in
    /// older results.
    #[serde(default)]
    pub disk_rates: Option<DiskRates>,
}

impl Machine {
    /// A sentence about it, for pages whose figures depend little on the disk.
    pub fn words(&self) -> String {
        let processor = self.processor.as_ref().unwrap_or(&self.architecture);
        format!(
            "Linux {}, {} processors of {processor}, files on {}.",
            self.kernel, self.processors, self.filesystem
        )
    }
}

/// How much a disk reads in a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskRates {
    /// Bytes, in reads of 1 MiB.
    pub bytes_per_second: u64,
    /// Reads of 4 KiB at random places.
    pub operations_per_second: u64,
}

impl fmt::Display for DiskRates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let megabytes = self.bytes_per_second as f64 / 1e6;
        let reads = self.operations_per_second;
        write!(f, "{megabytes:.0} MB/s and {reads} random reads/s")
    }
}

/// The size of the file that a disk is measured with, and how long that takes.
const MEASURED: usize = 64 << 20;
const MEASURING: Duration = Duration::from_millis(600);

impl DiskRates {
    /// The rates of the disk that holds `directory`. Makes a file there for the measurement.
    fn measure(directory: &Path) -> io::Result<Self> {
        let mut file = tempfile::NamedTempFile::new_in(directory)?;
        let mut bytes = vec![0; MEASURED];
        fastrand::fill(&mut bytes);
        file.write_all(&bytes)?;
        file.as_file().sync_all()?;
        let charge = measure_charge(&[file.as_file()], MEASURING)?;
        Ok(Self {
            bytes_per_second: charge.bytes_per_second.get(),
            operations_per_second: charge.operations_per_second.get(),
        })
    }
}

impl Machine {
    /// Describes this machine. Outputs go to `work`.
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
            squashfs_decoding: Some(
                KernelSupport::probe()
                    .squashfs_decoding
                    .map_or_else(|| "unknown".to_owned(), |decoding| decoding.to_string()),
            ),
            // A file system in memory or on a network has no direct reads, or no disk.
            disk_rates: DiskRates::measure(work).ok(),
        })
    }
}

impl Machine {
    /// What tables say about the kernel's decoders.
    pub fn decoding(&self) -> String {
        let decoding = self.squashfs_decoding.as_ref();
        decoding.map_or_else(
            || "how the kernel decodes SquashFS is not recorded".to_owned(),
            |decoding| format!("the kernel decodes SquashFS with {decoding}"),
        )
    }

    /// What tables say about how images are read here: the kernel's decoders, and the disk.
    pub fn reading(&self) -> String {
        let rates = self.disk_rates.map_or_else(
            || "the disk's rates are not recorded".to_owned(),
            |rates| format!("the disk gives {rates}"),
        );
        format!("{}; {rates}", self.decoding())
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
