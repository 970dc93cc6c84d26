//! Random reads of 4 KiB, warm, within this process.

use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use brisk_bench::{Bench, Timed};
use brisk_image::rules::PlanRules;
use brisk_image::{FileReader, Image, ImageWriter, OpenOptions, Tree, TreeRules};
use brisk_io::{ByteSource, ImmutableFile};

use crate::{Setup, clear};

const FILE_LEN: u64 = 256 << 20;
const READ_LEN: usize = 4096;
const READS: usize = 1_000_000;

/// Where to read, in multiples of the length of a read, and the expected sum of the reads.
struct Work {
    offsets: Vec<u64>,
    sum: u64,
}

/// The goal: a read through brisk may cost this share of a `pread`.
const GOAL: f64 = 0.15;

pub(crate) fn measure(bench: &mut Bench, setup: &Setup) -> Result<()> {
    let (tree, image) = (setup.work.join("plain"), setup.work.join("plain.img"));
    let contents = random_bytes(FILE_LEN);
    std::fs::create_dir(&tree).with_context(|| format!("cannot make {}", tree.display()))?;
    let path = tree.join("file");
    File::create(&path)
        .and_then(|mut file| file.write_all(&contents))
        .with_context(|| format!("cannot write {}", path.display()))?;
    let rules = PlanRules::new(Vec::new(), vec!["file".to_owned()])?;
    let source = Tree::from_directory(&tree, &TreeRules::default())?;
    ImageWriter::new().rules(rules).write(&source, &image)?;
    rustix::fs::sync();
    let work = Work::over(&contents);
    drop(contents);

    let file = File::open(&path).context("cannot open the plain file")?;
    brisk_io::measure::prove_warm(&file).context("the plain file does not stay warm")?;
    let stored = File::open(&image).context("cannot open the image")?;
    brisk_io::measure::prove_warm(&stored).context("the image does not stay warm")?;
    #[allow(unsafe_code)] // The promise that a mapped image asks for.
    // SAFETY: the benchmark has made the image in its own directory, and does not write to it any more.
    let immutable = unsafe { ImmutableFile::new(stored) };
    let opened = Image::open_mapped(&image, &immutable, &OpenOptions::new())?;
    let inode = opened
        .lookup("file")?
        .context("the file is not in its image")?;
    let reader = opened.file(&inode)?;
    let (work, file, reader) = (&work, &file, &reader);
    bench.compare(
        "read",
        "4 KiB at random, 256 MiB file stored raw",
        "file and image warm, proven; the image is open and mapped",
        Timed {
            name: "pread",
            work: Box::new(move || work.time(|at, buf| Ok(file.read_bytes_at(at, buf)?))),
        },
        vec![
            (
                Timed {
                    name: "brisk read_at",
                    work: Box::new(move || work.time(|at, buf| Ok(reader.read_at(at, buf)?))),
                },
                Some(GOAL),
            ),
            (
                Timed {
                    name: "brisk as_slice",
                    work: Box::new(move || work.time_borrowed(reader)),
                },
                Some(GOAL),
            ),
        ],
    )?;
    clear(&tree)?;
    clear(&image)
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
    fn time(&self, read: impl Fn(u64, &mut [u8]) -> Result<usize>) -> Result<Duration> {
        let mut buf = [0; READ_LEN];
        let mut sum = 0u64;
        let start = Instant::now();
        for &offset in &self.offsets {
            let len = read(offset, &mut buf)?;
            sum = sum.wrapping_add(ends_of(&buf[..len]));
        }
        self.checked(sum, start.elapsed())
    }

    /// Like [`Work::time`], but without a copy: each read borrows its bytes from the mapping.
    fn time_borrowed(&self, reader: &FileReader) -> Result<Duration> {
        let mut sum = 0u64;
        let start = Instant::now();
        for &offset in &self.offsets {
            let at = offset as usize;
            let bytes = reader
                .as_slice()
                .and_then(|file| file.get(at..at + READ_LEN));
            let bytes = bytes.context("the file cannot be borrowed from its image")?;
            sum = sum.wrapping_add(ends_of(bytes));
        }
        self.checked(sum, start.elapsed())
    }

    fn checked(&self, sum: u64, elapsed: Duration) -> Result<Duration> {
        ensure!(
            sum == self.sum,
            "the reads add up to {sum:#x}, but must to {:#x}",
            self.sum
        );
        Ok(elapsed)
    }
}

/// The sum of the first and the last 8 bytes as numbers. It reveals a wrong or short read, and costs little
/// compared with the read.
fn ends_of(bytes: &[u8]) -> u64 {
    let number = |part: Option<&[u8; 8]>| part.map_or(0, |part| u64::from_le_bytes(*part));
    number(bytes.first_chunk()).wrapping_add(number(bytes.last_chunk()))
}

fn random_bytes(len: u64) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    fastrand::Rng::with_seed(1).fill(&mut bytes);
    bytes
}
