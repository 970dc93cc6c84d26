//! A future whose thread reads for itself. This test has a process of its own, because it looks at all
//! threads of the process and forks it.

#![cfg(feature = "io-uring")]

mod machine;
mod refuse;

use std::fs;
use std::os::unix::fs::FileExt;

use brisk_io::measure::try_io_uring;
use brisk_io::{AsyncFile, block_on};
use refuse::refuse_inline;

#[test]
fn no_other_thread_reads() {
    if !machine::has("io_uring", try_io_uring()) {
        return;
    }
    let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    file.write_all_at(&[7; 300_000], 0).unwrap();
    let file = AsyncFile::new(file);
    refuse_inline();
    let read = || {
        block_on(async {
            let mut same = true;
            for at in [0, 100_000, 200_000] {
                let mut buf = [0; 100];
                same &= matches!(file.read_at(at, &mut buf).await, Ok(100)) && buf == [7; 100];
            }
            same
        })
    };
    assert!(read());
    assert_eq!(file.counts().waited, 3);
    // SAFETY: the child allocates, which the C library allows it; the other thread, which waits for this one, holds no
    // lock that it takes. It ends by `_exit`.
    match unsafe { libc::fork() } {
        0 => {
            let status = if read() { 0 } else { 1 };
            // SAFETY: it takes a number and does not return.
            unsafe { libc::_exit(status) };
        }
        child => {
            let mut status = 0;
            // SAFETY: it writes a number to where one is.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0);
        }
    }
    assert!(read());
    for thread in fs::read_dir("/proc/self/task").unwrap() {
        let name = fs::read_to_string(thread.unwrap().path().join("comm")).unwrap();
        assert!(!name.starts_with("brisk-io"), "{name}");
    }
}
