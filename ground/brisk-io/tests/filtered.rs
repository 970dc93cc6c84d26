//! System calls that a filter refuses, as those of container runtimes do. Another strategy is used, and
//! reported.
//!
//! A filter applies to the thread that installs it, so each test has its own thread.

mod refuse;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::thread;

use brisk_io::measure::load_as;
use brisk_io::{AsyncFile, ByteSource, ImmutableFile, Need, Strategy};
use refuse::{Refused, always, refuse};

fn file() -> File {
    let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    file.write_all_at(&[7; 300_000], 0).unwrap();
    file
}

/// The same, to be mapped.
fn immutable() -> ImmutableFile {
    // SAFETY: the file has no name, and nobody writes to it after `file` has.
    unsafe { ImmutableFile::new(file()) }
}

/// Runs `test` in a thread of its own.
fn filtered(test: impl FnOnce() + Send + 'static) {
    if let Err(panic) = thread::spawn(test).join() {
        std::panic::resume_unwind(panic);
    }
}

#[cfg(feature = "io-uring")]
#[test]
fn io_uring_that_is_refused_is_told() {
    // A filter may let a process make rings but not use them.
    for call in [
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_register,
        libc::SYS_io_uring_enter,
    ] {
        filtered(move || {
            refuse(&[always(call)]);
            for strategy in [Strategy::Uring, Strategy::UringDirect] {
                let e = load_as(strategy, &file(), 0..300_000, Need::default()).unwrap_err();
                assert_eq!(e.kind(), std::io::ErrorKind::Unsupported, "{strategy}");
                assert_eq!(
                    e.to_string(),
                    "this system does not let this process use io_uring: Operation not permitted (os error 1)"
                );
            }
        });
    }
}

#[test]
fn a_mapping_that_is_refused_is_replaced_by_a_copy() {
    filtered(|| {
        let file = immutable();
        let shared = Refused {
            call: libc::SYS_mmap,
            bits: Some((3, libc::MAP_SHARED)),
        };
        refuse(&[shared]);
        let loaded = brisk_io::load(&file, 0..300_000, Need::default()).unwrap();
        assert_eq!(loaded.strategy(), Strategy::Read);
        let refused = loaded.refused().iter();
        let refused: Vec<_> = refused.map(|(way, e)| (*way, e.raw_os_error())).collect();
        let expected = [Strategy::SharedMap, Strategy::PopulatedMap];
        assert_eq!(refused, expected.map(|way| (way, Some(libc::EPERM))));
        assert!(loaded.as_slice() == [7; 300_000]);
    });
}

#[test]
fn advice_that_is_refused_is_done_without() {
    filtered(|| {
        let file = immutable();
        // Advice about large pages and populating use the same call.
        refuse(&[always(libc::SYS_madvise)]);
        let loaded = brisk_io::load(&file, 0..300_000, Need::default()).unwrap();
        assert_eq!(loaded.strategy(), Strategy::SharedMap);
        let e = load_as(Strategy::PopulatedMap, &file, 0..300_000, Need::default()).unwrap_err();
        assert_eq!(e.raw_os_error(), Some(libc::EPERM));
        let loaded = load_as(Strategy::Read, &file, 0..300_000, Need::default()).unwrap();
        assert!(loaded.as_slice() == [7; 300_000]);
    });
}

#[test]
fn reads_that_may_not_wait_are_refused_once() {
    filtered(|| {
        let file = AsyncFile::new(file());
        refuse(&[always(libc::SYS_preadv2)]);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        for _ in 0..3 {
            let mut buf = [0; 100];
            // The thread that reads instead uses other calls.
            let mut read = std::pin::pin!(file.read_at(1000, &mut buf));
            let n = loop {
                match read.as_mut().poll(&mut context) {
                    std::task::Poll::Ready(n) => break n.unwrap(),
                    std::task::Poll::Pending => thread::yield_now(),
                }
            };
            assert_eq!(n, 100);
        }
        let counts = file.counts();
        assert_eq!((counts.inline, counts.waited, counts.refused), (0, 3, 1));
        assert_eq!(ByteSource::size(&file).unwrap(), 300_000);
    });
}
