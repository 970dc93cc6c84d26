//! Any packets, with any descriptors, are sent to a session's guardian by its peers and by its server. Each answer
//! is one that a run understands, descriptors do not pile up, and none is left open.
#![no_main]

use std::path::Path;
use std::sync::LazyLock;

use brisk_serve::fuzzing::session::{Stage, exercise};
use libfuzzer_sys::fuzz_target;

static STAGE: LazyLock<Stage> = LazyLock::new(|| {
    let directory = tempfile::tempdir_in("/dev/shm").expect("/dev/shm can be written");
    let bad = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../start/brisk-image/testdata/bad");
    Stage::new(&directory.keep(), &bad.join("section-valid.img"))
});

fuzz_target!(|case: &[u8]| {
    exercise(case, &STAGE);
});
