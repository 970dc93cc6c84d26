//! Any slots in the index of a cache, also with right checks: what is found was inserted under the key, and nothing else.
//! Handles read, write, remove and evict as ever.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../../keep/brisk-cache/tests/support/hostile.rs"]
#[allow(dead_code, reason = "each target uses a part")]
mod hostile;

fuzz_target!(|bytes: &[u8]| {
    drop(hostile::index(bytes));
});
