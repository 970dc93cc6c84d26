//! The files of an experiment: where they lie, and whether they are in memory.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use brisk_io::measure::prove_warm;
use rustix::fs::statvfs;

use super::cells::megabytes;
use super::cold::Chill;
use super::load::State;
use super::machine::Machine;

/// How often to repeat a run with a warm file because pages of it left memory.
pub const ATTEMPTS: u32 = 5;

/// Makes a directory in `parent`, which must not be in memory.
pub fn directory_on_disk(parent: &Path, prefix: &str) -> Result<PathBuf> {
    fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
    let parent = parent.canonicalize()?;
    ensure!(
        Machine::describe(&parent, 1)?.filesystem != "tmpfs",
        "{} is in memory (tmpfs), where no file is ever cold; name a directory on a disk with --dir, or a \
         file",
        parent.display()
    );
    let made = tempfile::Builder::new()
        .prefix(prefix)
        .tempdir_in(&parent)?;
    Ok(made.keep())
}

/// Checks that the directory of [`directory_on_disk`] has room for this many bytes.
pub fn ensure_room(work: &Path, needed: u64) -> Result<()> {
    let space = statvfs(work)?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    ensure!(
        needed <= free,
        "the files need {} MB, and {} has {} MB; choose smaller ones, or another directory with --dir",
        megabytes(needed),
        work.parent().unwrap_or(work).display(),
        megabytes(free)
    );
    Ok(())
}

/// Makes a file of random bytes, and writes it to the disk.
pub fn fill(path: &Path, length: u64, seed: u64) -> io::Result<()> {
    let mut file = File::create(path)?;
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut piece = vec![0; 1 << 20];
    let mut left = length;
    while left > 0 {
        rng.fill(&mut piece);
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(piece.len());
        file.write_all(&piece[..len])?;
        left -= len as u64;
    }
    file.sync_all()
}

/// Makes sure that no page of a file is in memory, or that every page is.
pub fn prepare(file: &Path, state: State) -> Result<()> {
    if state == State::Cold {
        return Chill::Files.prove([file]);
    }
    for _ in 0..ATTEMPTS {
        if is_warm(file)? {
            return Ok(());
        }
        let mut reader = File::open(file)?;
        let mut piece = vec![0; 1 << 20];
        while reader.read(&mut piece)? > 0 {}
    }
    bail!(
        "{} cannot be made warm: its pages leave memory while it is read; make sure that enough memory is free",
        file.display()
    )
}

/// Whether all pages of a file are in memory.
pub fn is_warm(file: &Path) -> Result<bool> {
    match prove_warm(&File::open(file)?) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e).with_context(|| format!("{} cannot be proven warm", file.display())),
    }
}
