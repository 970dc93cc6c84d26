//! Sets the read-ahead.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

/// Sets the read-ahead of every disk and loop device to that of most machines. Restores the old values when
/// it is dropped.
pub(crate) struct ReadAhead {
    kib: u32,
    before: Vec<(PathBuf, String)>,
}

impl ReadAhead {
    pub(crate) fn set(kib: u32) -> Result<Self> {
        // From here on they are restored, even if one of them cannot be set.
        let mut all = Self {
            kib,
            before: Vec::new(),
        };
        for device in fs::read_dir("/sys/block").context("cannot list block devices")? {
            let knob = device?.path().join("queue/read_ahead_kb");
            let Ok(old) = fs::read_to_string(&knob) else {
                continue;
            };
            let set = fs::write(&knob, kib.to_string());
            set.with_context(|| format!("cannot write {}", knob.display()))?;
            all.before.push((knob, old));
        }
        Ok(all)
    }

    pub(crate) fn kib(&self) -> u32 {
        self.kib
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        for (knob, old) in &self.before {
            if let Err(e) = fs::write(knob, old.trim()) {
                eprintln!("session: cannot restore {}: {e}", knob.display());
            }
        }
    }
}
