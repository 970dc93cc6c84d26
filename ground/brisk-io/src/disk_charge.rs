//! Measures what a disk charges for reads.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::transfer::open_direct;
use crate::{AlignedBuf, ByteSource, Charge};

/// Reads in progress at once, in each of the two measurements.
const LARGE_AT_ONCE: u64 = 4;
const SMALL_AT_ONCE: u64 = 8;

/// Bytes of a large and of a small read. Both are multiples of every disk's block.
const LARGE: usize = 1 << 20;
const SMALL: usize = 4096;

/// [`measure_charge`] reads only files of at least this many bytes, because smaller ones say little.
pub const MEASURED_LEN: u64 = 4 << 20;

/// Measures a disk: reads `files`, which must all be on it, directly and past the page cache, for `time`.
/// Half of the time it reads large pieces, and half small ones.
///
/// # Errors
///
/// `InvalidInput` if no file has 4 MiB. Otherwise those of the system, such as `EINVAL` if the filesystem has
/// no direct reads.
pub fn measure_charge(files: &[&File], time: Duration) -> io::Result<Charge> {
    let mut direct = Vec::new();
    for file in files {
        let len = ByteSource::size(*file)?;
        if len >= MEASURED_LEN {
            direct.push((open_direct(file)?, len));
        }
    }
    if direct.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "no file has 4 MiB, which a measurement needs",
        ));
    }
    let large = reads_per_second(&direct, LARGE, LARGE_AT_ONCE, time / 2)?;
    let small = reads_per_second(&direct, SMALL, SMALL_AT_ONCE, time / 2)?;
    let at_least_one = |rate: f64| NonZeroU64::new(rate as u64).unwrap_or(NonZeroU64::MIN);
    Ok(Charge {
        bytes_per_second: at_least_one(large * LARGE as f64),
        operations_per_second: at_least_one(small),
    })
}

/// How many reads of `size` bytes, at scattered places, the disk does in a second.
fn reads_per_second(
    files: &[(File, u64)],
    size: usize,
    at_once: u64,
    time: Duration,
) -> io::Result<f64> {
    let started = Instant::now();
    let done = AtomicU64::new(0);
    let pieces: u64 = files.iter().map(|(_, len)| len / size as u64).sum();
    let read = |thread: u64| -> io::Result<()> {
        let mut buf = AlignedBuf::zeroed(size, 4096);
        let mut state = thread.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        loop {
            // xorshift64
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let mut piece = state % pieces.max(1);
            for (file, len) in files {
                let own = len / size as u64;
                if piece < own {
                    file.read_exact_bytes_at(piece * size as u64, &mut buf)?;
                    break;
                }
                piece -= own;
            }
            done.fetch_add(1, Ordering::Relaxed);
            if started.elapsed() >= time {
                return Ok(());
            }
        }
    };
    thread::scope(|scope| {
        let start = |n| thread::Builder::new().spawn_scoped(scope, move || read(n));
        let threads = (0..at_once).map(start).collect::<io::Result<Vec<_>>>()?;
        let ended = threads.into_iter().map(|thread| {
            let failed = |_| Err(io::Error::other("a thread that measured ended early"));
            thread.join().unwrap_or_else(failed)
        });
        ended
            .collect::<Vec<_>>()
            .into_iter()
            .collect::<io::Result<Vec<()>>>()
    })?;
    Ok(done.into_inner() as f64 / started.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_charge_is_measured_where_it_can_be() {
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let e = measure_charge(&[&file], Duration::from_millis(2)).unwrap_err();
        assert_eq!(
            e.to_string(),
            "no file has 4 MiB, which a measurement needs"
        );
        file.write_all(&vec![1; 5 << 20]).unwrap();
        file.sync_all().unwrap();
        // A file system without direct reads says so.
        match measure_charge(&[&file], Duration::from_millis(100)) {
            Ok(charge) => assert!(charge.bytes_per_second.get() > 4096, "{charge:?}"),
            Err(e) => assert_eq!(e.kind(), io::ErrorKind::InvalidInput, "{e}"),
        }
    }
}
