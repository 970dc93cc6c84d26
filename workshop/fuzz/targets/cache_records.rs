//! Any records in the segments of a cache, also with right checks: a handle that copies and one that borrows find the same
//! bytes, and both write, remove and evict as ever.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../../keep/brisk-cache/tests/support/hostile.rs"]
#[allow(dead_code, reason = "each target uses a part")]
mod hostile;

fuzz_target!(|bytes: &[u8]| {
    drop(hostile::records(bytes));
});
