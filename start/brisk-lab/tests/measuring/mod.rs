//! Tests that measure. Whoever measures changes the whole machine for a time: the read-ahead of a disk, and what takes pages out of
//! memory.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use crate::staging::watched_for;

/// Runs `test`, which may take `limit`, under a lock that all tests share which measure: by `File::lock` alone, which those need that
/// look whether the machine is put back, and by `File::lock_shared` beside others. Waiting for it does not count as hanging.
pub fn measuring(
    lock: fn(&File) -> io::Result<()>,
    limit: Duration,
    test: impl FnOnce() + Send + 'static,
) {
    let held = File::create(Path::new(env!("CARGO_TARGET_TMPDIR")).join("measuring")).unwrap();
    lock(&held).unwrap();
    watched_for(limit, test);
}
