//! Reads that have to wait, on a system that does not let `io_uring` do them.

use std::fs;
use std::os::unix::fs::FileExt;
use std::task::{Context, Poll, Waker};
use std::thread;

use brisk_io::AsyncFile;

use crate::refuse::{Refused, always, refuse};

/// Reads with these calls refused, and checks that threads did it.
pub fn threads_read(refused: &[Refused]) {
    // The threads that this one starts are filtered too.
    refuse(refused);
    // None ends without a wait.
    refuse(&[always(libc::SYS_preadv2)]);
    let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let bytes: Vec<u8> = (0..2_000_000_u32).map(|n| (n % 251) as u8).collect();
    file.write_all_at(&bytes, 0).unwrap();
    let file = AsyncFile::new(file);
    let mut context = Context::from_waker(Waker::noop());
    let mut bufs = vec![[0; 100]; 32];
    let mut reads: Vec<_> = bufs
        .iter_mut()
        .enumerate()
        .map(|(number, buf)| Box::pin(file.read_at(number as u64 * 60_000, buf)))
        .collect();
    let mut done = [false; 32];
    while done.contains(&false) {
        for (read, done) in reads.iter_mut().zip(&mut done).filter(|(_, done)| !**done) {
            if let Poll::Ready(n) = read.as_mut().poll(&mut context) {
                assert_eq!(n.unwrap(), 100);
                *done = true;
            }
        }
        thread::yield_now();
    }
    drop(reads);
    for (number, buf) in bufs.iter().enumerate() {
        assert_eq!(*buf, bytes[number * 60_000..][..100], "read {number}");
    }
    assert_eq!(file.counts().waited, 32);
    let threads = fs::read_dir("/proc/self/task").unwrap();
    let readers = threads.filter(|thread| {
        let name = fs::read_to_string(thread.as_ref().unwrap().path().join("comm")).unwrap();
        name.starts_with("brisk-io")
    });
    assert!(readers.count() > 1);
}
