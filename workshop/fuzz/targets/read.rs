//! Any bytes are either an image without a fault, or an error. They never cause a panic, an endless loop, or
//! more memory than the run allows.
#![no_main]

use brisk_image::{Limits, OpenOptions};
use libfuzzer_sys::fuzz_target;

#[path = "../../../start/brisk-image/tests/support/exercise.rs"]
#[allow(dead_code, reason = "each target uses a part")]
mod exercise;

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits::new()
        .memory(1 << 20)
        .block_cache(256 << 10)
        .metadata_cache(64 << 10)
        .depth(32);
    for rust in [false, true] {
        let options = OpenOptions::new().limits(limits).rust_decoders(rust);
        exercise::exercise(bytes.to_vec(), &options);
    }
});
