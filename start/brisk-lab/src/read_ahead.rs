//! How much the kernel reads ahead on the disks below.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use brisk_io::BlockDevice;
use serde::{Deserialize, Serialize};

use super::undo::Undo;

/// Sets the read-ahead of devices to one value.
#[derive(Debug)]
pub struct ReadAhead {
    kib: u32,
    /// The values before, by device.
    before: BTreeMap<String, u32>,
}

/// A device whose read-ahead was set.
#[derive(Debug, Serialize, Deserialize)]
pub struct Device {
    name: String,
    read_ahead_kib: u32,
    read_ahead_kib_before: u32,
}

impl ReadAhead {
    pub fn new(kib: u32) -> Self {
        Self {
            kib,
            before: BTreeMap::new(),
        }
    }

    /// Sets the read-ahead of the device that holds `path`, if there is one.
    pub fn set(&mut self, path: &Path, undo: &mut Undo) -> Result<()> {
        let Some(device) = device_of(path)? else {
            return Ok(());
        };
        let knob = device.join("queue/read_ahead_kb");
        let text =
            fs::read_to_string(&knob).with_context(|| format!("cannot read {}", knob.display()))?;
        let found: u32 = text.trim().parse().unwrap_or(0);
        if found == self.kib {
            return Ok(());
        }
        let name = device.file_name().unwrap_or(device.as_os_str());
        let name = name.to_string_lossy().into_owned();
        if let std::collections::btree_map::Entry::Vacant(entry) = self.before.entry(name) {
            undo.write(&knob, text.trim())?;
            entry.insert(found);
        }
        fs::write(&knob, self.kib.to_string())
            .with_context(|| format!("cannot write {}", knob.display()))
    }

    /// The devices that were changed.
    pub fn devices(&self) -> Vec<Device> {
        let device = |(name, before): (&String, &u32)| Device {
            name: name.clone(),
            read_ahead_kib: self.kib,
            read_ahead_kib_before: *before,
        };
        self.before.iter().map(device).collect()
    }
}

/// The KiB that the kernel reads ahead on the disk that holds `path`, if there is one.
pub fn present(path: &Path) -> Result<Option<u32>> {
    let Some(device) = device_of(path)? else {
        return Ok(None);
    };
    let knob = device.join("queue/read_ahead_kb");
    let text =
        fs::read_to_string(&knob).with_context(|| format!("cannot read {}", knob.display()))?;
    Ok(text.trim().parse().ok())
}

/// The directory in `/sys` of the whole disk that holds `path`. None if that is in memory, on a network, or
/// on more than one disk.
pub fn device_of(path: &Path) -> Result<Option<PathBuf>> {
    let device = fs::metadata(path)
        .with_context(|| format!("cannot examine {}", path.display()))?
        .dev();
    Ok(BlockDevice::of(device).map(|disk| disk.directory().to_owned()))
}
