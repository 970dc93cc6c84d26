//! Any packets are sent to the FUSE server of an image, and to that of a directory, as if the kernel had sent
//! them. Each request with an answer has exactly one, of the right form and of at most the size that was asked
//! for. Nothing outside of the directory is found.
#![no_main]

use std::path::Path;
use std::sync::LazyLock;

use brisk_image::Image;
use brisk_serve::fuzzing::fuse::{Directory, exercise, open_images};
use libfuzzer_sys::fuzz_target;

static IMAGES: LazyLock<Vec<Image>> = LazyLock::new(|| {
    let bad = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../start/brisk-image/testdata/bad");
    open_images(&bad)
});

static DIRECTORY: LazyLock<Directory> = LazyLock::new(|| {
    let above = tempfile::tempdir_in("/dev/shm").expect("/dev/shm can be written");
    Directory::make(&above.keep()).expect("/dev/shm can be written")
});

fuzz_target!(|case: &[u8]| {
    exercise(case, &IMAGES, &DIRECTORY);
});
