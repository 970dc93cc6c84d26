//! Random reads of 4 KiB, warm, within this process.

use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use brisk_bench::{Bench, Timed};
use brisk_io::{Mapping, ReadAt};

use crate::{Setup, clear};

const FILE_LEN: u64 = 256 << 20;
const READ_LEN: usize = 4096;
const READS: usize = 1_000_000;

/// Where to read, at multiples of the length of a read, and what the reads must add up to.
struct Work {
    offsets: Vec<u64>,
    sum: u64,
}

pub(crate) fn measure(bench: &mut Bench, setup: &Setup) -> Result<()> {
    let path = setup.work.join("plain");
    let contents = random_bytes(FILE_LEN);
    File::create(&path)
        .and_then(|mut file| file.write_all(&contents))
        .with_context(|| format!("cannot write {}", path.display()))?;
    rustix::fs::sync();
    let work = Work::over(&contents);
    drop(contents);

    let file = File::open(&path).context("cannot open the plain file")?;
    brisk_io::prove_warm(&file).context("the plain file does not stay warm")?;
    let (work, file) = (&work, &file);
    bench.compare(
        "read",
        "4 KiB at random, 256 MiB plain file",
        "file warm, proven",
        Timed {
            name: "pread",
            work: Box::new(move || work.time(file)),
        },
        // What `read_at` of a mapped image can reach at best: no image around the bytes.
        vec![(
            Timed {
                name: "brisk-io mapping",
                // A new mapping each time: its first touches of each page are part of its cost.
                work: Box::new(move || work.time(&Mapping::shared(file)?)),
            },
            None,
        )],
    )?;
    clear(&path)
}

impl Work {
    fn over(contents: &[u8]) -> Self {
        let mut rng = fastrand::Rng::with_seed(2);
        let places = contents.len() / READ_LEN;
        let offsets: Vec<u64> = (0..READS)
            .map(|_| (rng.usize(..places) * READ_LEN) as u64)
            .collect();
        let sum = offsets.iter().fold(0, |sum: u64, &at| {
            let at = at as usize;
            sum.wrapping_add(ends_of(&contents[at..at + READ_LEN]))
        });
        Self { offsets, sum }
    }

    /// Does all reads into one buffer, adds up the ends of each, and checks the sum.
    fn time(&self, source: &impl ReadAt) -> Result<Duration> {
        let mut buf = [0; READ_LEN];
        let mut sum = 0u64;
        let start = Instant::now();
        for &offset in &self.offsets {
            let len = source.read_at(offset, &mut buf)?;
            sum = sum.wrapping_add(ends_of(&buf[..len]));
        }
        let elapsed = start.elapsed();
        ensure!(
            sum == self.sum,
            "the reads add up to {sum:#x}, and must to {:#x}",
            self.sum
        );
        Ok(elapsed)
    }
}

/// The first and the last 8 bytes as numbers, added: enough to tell a wrong or a short read, and
/// little beside the read.
fn ends_of(bytes: &[u8]) -> u64 {
    let number = |part: Option<&[u8; 8]>| part.map_or(0, |part| u64::from_le_bytes(*part));
    number(bytes.first_chunk()).wrapping_add(number(bytes.last_chunk()))
}

fn random_bytes(len: u64) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    fastrand::Rng::with_seed(1).fill(&mut bytes);
    bytes
}
