//! Proves that files are not in the page cache.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use brisk_io::measure::evict_and_prove;
use brisk_io::{Residency, residency};

/// The kernel's file for emptying its caches.
pub const CACHES: &str = "/proc/sys/vm/drop_caches";

/// How long processes that are ending may keep files mapped.
const STRAGGLERS: Duration = Duration::from_secs(5);

/// What to empty before a cold launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Chill {
    /// The page cache, and what the kernel keeps of names and attributes, of the whole system.
    System,
    /// The files that the launch reads from: names, attributes and the files of the system stay in
    /// memory.
    Files,
}

impl Chill {
    /// Makes sure that no page of `files` is in memory.
    ///
    /// # Errors
    ///
    /// Names the first file that keeps pages in memory.
    pub fn prove<'a>(self, files: impl IntoIterator<Item = &'a Path>) -> Result<()> {
        for path in files {
            let evicted = || {
                let file = File::open(path)?;
                // Most files are cold already, and evicting one costs a flush of the disk.
                match residency(&file)? {
                    Residency::Pages { resident: 0, .. } => Ok(()),
                    _ => evict_for_good(&file),
                }
            };
            evicted().with_context(|| {
                format!(
                    "{} cannot be made cold; end the programs that use it, or move it to a disk if it is in memory",
                    path.display()
                )
            })?;
        }
        if self == Self::System {
            // After the proof, because the proof has looked at every name.
            empty_caches()?;
        }
        Ok(())
    }
}

/// Takes the page cache, and what the kernel keeps of names and attributes, out of memory.
pub fn empty_caches() -> Result<()> {
    rustix::fs::sync();
    fs::write(CACHES, "3").with_context(|| format!("cannot empty the page cache ({CACHES})"))
}

fn evict_for_good(file: &File) -> io::Result<()> {
    let deadline = Instant::now() + STRAGGLERS;
    loop {
        match evict_and_prove(file) {
            Err(e) if e.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(10));
            }
            result => return result,
        }
    }
}
