//! Proves that a disk is as slow as asked for.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use brisk_io::AlignedBuf;
use serde::{Deserialize, Serialize};

use super::statistics::Spread;
use brisk::Rate;

/// By how much the measured rate may differ from the limit.
const TOLERANCE: f64 = 0.2;

/// How often to measure, because other programs may read too.
const TRIES: usize = 3;

/// The kernel lets more through at first, for this long.
const BURST: Duration = Duration::from_millis(400);

/// How many threads read at once. A single one may be slower than the limit, although the disk is not. A read
/// that was requested before the clock starts counts when it completes within the time, so large reads have
/// few threads.
const READERS_OF_BYTES: usize = 2;
const READERS_OF_OPERATIONS: usize = 8;

/// The smallest and the largest read.
const SMALLEST: u64 = 4096;
const LARGEST: u64 = 1 << 20;

/// The smallest file that can be used for a proof.
pub const ENOUGH: u64 = 4 << 20;

/// A limit, and the rate that was measured under it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Proven {
    /// Its name, such as `vda`.
    pub disk: String,
    /// `bytes` or `operations`.
    pub of: String,
    /// The limit.
    pub asked_per_second: f64,
    /// The rate of direct reads.
    pub got_per_second: f64,
}

/// Makes a file in `directory`, for a proof on its disk.
pub fn make_file(directory: &Path) -> Result<std::path::PathBuf> {
    let path = directory.join("proof");
    let mut bytes = vec![0; usize::try_from(ENOUGH).unwrap_or(usize::MAX)];
    fastrand::fill(&mut bytes);
    let write = || {
        fs::write(&path, &bytes)?;
        File::open(&path)?.sync_all()
    };
    write().with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// Proves that each of `limits` holds, by direct reads of the file, which is on `disk`.
///
/// # Errors
///
/// If one does not hold: says what was measured.
pub fn prove(limits: &[Rate], disk: &Path, file: &Path) -> Result<Vec<Proven>> {
    let name = disk.file_name().unwrap_or(disk.as_os_str());
    let name = name.to_string_lossy().into_owned();
    // How much the kernel asks the disk for at once.
    let largest = fs::read_to_string(disk.join("queue/max_sectors_kb")).ok();
    let largest = largest.and_then(|text| text.trim().parse::<u64>().ok());
    let largest = largest.map_or(LARGEST, |kib| kib << 10);
    let opened = fs::OpenOptions::new()
        .read(true)
        .custom_flags(i32::try_from(rustix::fs::OFlags::DIRECT.bits()).unwrap_or(0))
        .open(file);
    let opened = opened.with_context(|| {
        format!(
            "cannot open {} for direct reads, which prove that --disk works",
            file.display()
        )
    })?;
    let len = opened.metadata()?.len();
    ensure!(
        len >= ENOUGH,
        "{} has {len} bytes, but a proof that --disk works needs {ENOUGH}",
        file.display()
    );
    let mut proven = Vec::new();
    for limit in limits {
        let (of, unit, readers) = match limit {
            Rate::Bytes(_) => ("bytes", 1.0, READERS_OF_BYTES),
            Rate::Operations(_) => ("operations", SMALLEST as f64, READERS_OF_OPERATIONS),
        };
        let size = match limit {
            Rate::Bytes(bytes) => (bytes / 16 / SMALLEST * SMALLEST).clamp(SMALLEST, LARGEST),
            Rate::Operations(_) => SMALLEST,
        };
        // Each limit also limits the reads in the other's proof.
        let allowed = |limit: &Rate| match limit {
            Rate::Bytes(bytes) => *bytes as f64,
            Rate::Operations(number) => *number as f64 * size.min(largest) as f64,
        };
        let bytes = limits.iter().map(allowed).fold(f64::INFINITY, f64::min);
        let asked = bytes / unit;
        // At least twenty reads.
        let time = Duration::from_secs_f64((20.0 * size as f64 / bytes).clamp(1.0, 60.0));
        let (mut tries, mut got) = (Vec::new(), 0.0);
        let is_near = |got: f64| (got / asked - 1.0).abs() <= TOLERANCE;
        while tries.len() < TRIES && !is_near(got) {
            tries.push(bytes_per_second(&opened, len, size, time, readers)? / unit);
            got = Spread::of(&tries).map_or(0.0, |spread| spread.median);
        }
        if !is_near(got) {
            let what = match got > asked {
                true => "the throttle has no effect on this disk",
                false => "the disk itself is slower, or other programs read from it; ask for less",
            };
            bail!(
                "--disk does not hold: direct reads got {got:.0} {of}/s from {name}, in reads of \
                 {size} bytes (median of {TRIES} tries); expected are {asked:.0} within {:.0} %; {what}",
                TOLERANCE * 100.0
            );
        }
        proven.push(Proven {
            disk: name.clone(),
            of: of.to_owned(),
            asked_per_second: asked,
            got_per_second: got,
        });
    }
    Ok(proven)
}

fn bytes_per_second(
    file: &File,
    len: u64,
    size: u64,
    time: Duration,
    readers: usize,
) -> Result<f64> {
    let (read, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let reader = || -> Result<()> {
        let size_of = usize::try_from(size)?;
        let mut buffer = AlignedBuf::zeroed(size_of, 4096);
        let places = len / size;
        while !over.load(Ordering::Relaxed) {
            let at = fastrand::u64(..places) * size;
            file.read_exact_at(&mut buffer, at)
                .context("cannot read directly from the disk")?;
            read.fetch_add(size, Ordering::Relaxed);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let readers: Vec<_> = (0..readers).map(|_| scope.spawn(reader)).collect();
        thread::sleep(BURST);
        let (before, clock) = (read.load(Ordering::Relaxed), Instant::now());
        thread::sleep(time);
        let bytes = read.load(Ordering::Relaxed).saturating_sub(before);
        let seconds = clock.elapsed().as_secs_f64();
        over.store(true, Ordering::Relaxed);
        for reader in readers {
            reader
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        Ok(bytes as f64 / seconds)
    })
}
