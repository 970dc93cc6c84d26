//! How much was read from disks, and by which process.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Bytes read so far, by process and by device. The same read may count for both.
#[derive(Debug, Clone, Default)]
pub struct DiskReads {
    processes: BTreeMap<String, u64>,
    devices: BTreeMap<String, u64>,
}

impl DiskReads {
    /// Adds what this process has read, and all processes that it has waited for.
    pub fn add_own(&mut self) -> Result<()> {
        self.add_process("self")
    }

    /// Adds what the process `pid` has read.
    pub fn add_process(&mut self, pid: &str) -> Result<()> {
        let path = format!("/proc/{pid}/io");
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let bytes = text
            .lines()
            .find_map(|line| line.strip_prefix("read_bytes: ")?.parse().ok())
            .with_context(|| format!("{path} has no line read_bytes"))?;
        self.processes.insert(path, bytes);
        Ok(())
    }

    /// Adds what was read from the device with this directory in `/sys`.
    pub fn add_device(&mut self, directory: &Path) -> Result<()> {
        let path = directory.join("stat");
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        // Documentation/block/stat.rst: reads, merged reads, sectors of 512 bytes.
        let sectors: u64 = text
            .split_whitespace()
            .nth(2)
            .and_then(|field| field.parse().ok())
            .with_context(|| format!("{} has no third number", path.display()))?;
        self.devices
            .insert(path.display().to_string(), sectors * 512);
        Ok(())
    }

    /// Adds every loop device, because one of them will be a mount's.
    pub fn add_loop_devices(&mut self) -> Result<()> {
        for entry in fs::read_dir("/sys/block").context("cannot list block devices")? {
            let entry = entry?;
            if entry.file_name().as_encoded_bytes().starts_with(b"loop") {
                // The directory itself is a link.
                self.add_device(&entry.path().canonicalize()?)?;
            }
        }
        Ok(())
    }

    /// Bytes read since `before`, by processes or from devices, whichever is more. The kernel also charges a
    /// process for what it reads from a loop device, so the sum would count that twice.
    pub fn since(&self, before: &Self) -> u64 {
        let processes = read_since(&self.processes, &before.processes);
        processes.max(read_since(&self.devices, &before.devices))
    }
}

/// A process or device that is new had read nothing before.
fn read_since(after: &BTreeMap<String, u64>, before: &BTreeMap<String, u64>) -> u64 {
    let read =
        |(who, bytes): (&String, &u64)| bytes.saturating_sub(before.get(who).copied().unwrap_or(0));
    after.iter().map(read).sum()
}
