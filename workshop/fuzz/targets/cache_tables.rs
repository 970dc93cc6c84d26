//! Any bytes are a table or none. A view of all of it and one of its parts show the same rows and texts, all of them inside.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../../keep/brisk-cache/tests/support/hostile.rs"]
#[allow(dead_code, reason = "each target uses a part")]
mod hostile;

fuzz_target!(|bytes: &[u8]| {
    drop(hostile::table(bytes));
});
