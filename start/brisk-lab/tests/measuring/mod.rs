//! Tests that measure. Whoever measures changes the whole machine for a time: the read-ahead of a disk, and what takes pages out of
//! memory. So those that look whether it is put back run alone, whatever other test program runs. Waiting for that does not count as
//! hanging.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use crate::staging::watched_for;

/// Runs `test`, which may take `limit`, while no other one measures.
#[allow(dead_code, reason = "most programs measure beside others")]
pub fn alone(limit: Duration, test: impl FnOnce() + Send + 'static) {
    let held = file();
    held.lock().unwrap();
    watched_for(limit, test);
}

/// Runs `test`, which may take `limit`, while none measures alone.
#[allow(dead_code, reason = "one program measures alone")]
pub fn beside_others(limit: Duration, test: impl FnOnce() + Send + 'static) {
    let held = file();
    held.lock_shared().unwrap();
    watched_for(limit, test);
}

/// What is locked.
fn file() -> File {
    File::create(Path::new(env!("CARGO_TARGET_TMPDIR")).join("measuring")).unwrap()
}
