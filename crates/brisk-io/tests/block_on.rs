//! A future whose thread reads for itself. It is alone in its process, whose threads are looked at.

use std::fs;
use std::os::unix::fs::FileExt;

use brisk_io::{AsyncFile, block_on, try_io_uring};

#[test]
fn no_other_thread_reads() {
    if try_io_uring().is_err() || cfg!(not(feature = "io-uring")) {
        return;
    }
    let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    file.write_all_at(&[7; 300_000], 0).unwrap();
    let file = AsyncFile::new(file).always_hop();
    block_on(async {
        for at in [0, 100_000, 200_000] {
            let mut buf = [0; 100];
            assert_eq!(file.read_at(at, &mut buf).await.unwrap(), 100);
            assert_eq!(buf, [7; 100]);
        }
    });
    assert_eq!(file.counts().hopped, 3);
    for thread in fs::read_dir("/proc/self/task").unwrap() {
        let name = fs::read_to_string(thread.unwrap().path().join("comm")).unwrap();
        assert!(!name.starts_with("brisk-io"), "{name}");
    }
}
