//! A slower disk: what programs can read from one in a second, bounded by the kernel.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::undo::Undo;
use crate::disk_rate::Rate;

/// The group of all processes, of the controller of cgroup v1.
const GROUP: &str = "/sys/fs/cgroup/blkio";

impl Rate {
    fn knob(self) -> PathBuf {
        Path::new(GROUP).join(match self {
            Self::Bytes(_) => "blkio.throttle.read_bps_device",
            Self::Operations(_) => "blkio.throttle.read_iops_device",
        })
    }

    /// Bounds reads from the disk with this directory in `/sys`, and returns what lifts the bound.
    pub fn set(self, disk: &Path, undo: &mut Undo) -> Result<Lift> {
        let number = fs::read_to_string(disk.join("dev"))
            .with_context(|| format!("cannot ask for the number of {}", disk.display()))?;
        let number = number.trim();
        let knob = self.knob();
        let before = fs::read_to_string(&knob).with_context(|| {
            format!(
                "cannot bound what is read in a second: there is no {}; it needs the controller \
                 blkio of cgroup v1, with its throttle",
                knob.display()
            )
        })?;
        // 0 is none.
        let before = before
            .lines()
            .find(|line| line.split(' ').next() == Some(number))
            .map_or_else(|| format!("{number} 0"), str::to_owned);
        undo.write(&knob, &before)?;
        let (Self::Bytes(limit) | Self::Operations(limit)) = self;
        write(&knob, &format!("{number} {limit}"))?;
        Ok(Lift { knob, before })
    }

    /// Whether `bytes` can have been read in so many seconds. The kernel lets some through at first.
    pub fn allows(self, bytes: u64, seconds: f64) -> bool {
        match self {
            Self::Bytes(limit) => bytes as f64 <= limit as f64 * (seconds * 1.2 + 0.2),
            Self::Operations(_) => true,
        }
    }
}

/// What was there before a [`Rate`].
#[derive(Debug)]
pub struct Lift {
    knob: PathBuf,
    before: String,
}

impl Lift {
    pub fn lift(self) -> Result<()> {
        write(&self.knob, &self.before)
    }
}

fn write(knob: &Path, text: &str) -> Result<()> {
    fs::write(knob, text).with_context(|| format!("cannot write {text} to {}", knob.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_binds() {
        assert!(Rate::Bytes(1000).allows(1000, 1.0));
        assert!(!Rate::Bytes(1000).allows(2000, 1.0));
    }
}
