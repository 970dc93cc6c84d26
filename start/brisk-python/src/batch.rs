//! Many files at once.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::fault::Fault;

/// Threads besides that of the caller, at most. More than processors, because those wait for a disk that is cold.
const THREADS: usize = 8;

/// So many files pay for one thread more.
const FILES_PER_THREAD: usize = 16;

/// What a thread has read, each with its place in the batch, and which could not be read.
type Share = (Vec<(usize, Vec<u8>)>, Option<(usize, Fault)>);

/// What `read` gives for each of `paths`, in their order.
///
/// # Errors
///
/// The first of them that cannot be read, by its place in `paths`, and why.
pub fn read_many(
    paths: &[&Path],
    read: impl Fn(&Path) -> Result<Vec<u8>, Fault> + Sync,
) -> Result<Vec<Vec<u8>>, (usize, Fault)> {
    let next = AtomicUsize::new(0);
    let read_some = || -> Share {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(path) = paths.get(at) else {
                return (done, None);
            };
            match read(path) {
                Ok(bytes) => done.push((at, bytes)),
                Err(fault) => {
                    // Those before it are begun, and nobody begins another one.
                    next.store(paths.len(), Ordering::Relaxed);
                    return (done, Some((at, fault)));
                }
            }
        }
    };
    let shares: Vec<Share> = thread::scope(|scope| {
        let others = THREADS.min(paths.len() / FILES_PER_THREAD);
        // Where there can be no more threads, those that there are read all.
        let others: Vec<_> = (0..others)
            .map_while(|_| thread::Builder::new().spawn_scoped(scope, read_some).ok())
            .collect();
        let own = read_some();
        let joined = others.into_iter().map(|thread| thread.join());
        let joined =
            joined.map(|share| share.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.chain([own]).collect()
    });
    let (done, failed): (Vec<_>, Vec<_>) = shares.into_iter().unzip();
    if let Some(first) = failed.into_iter().flatten().min_by_key(|(at, _)| *at) {
        return Err(first);
    }
    let mut done: Vec<_> = done.into_iter().flatten().collect();
    done.sort_unstable_by_key(|(at, _)| *at);
    Ok(done.into_iter().map(|(_, bytes)| bytes).collect())
}
