//! A future whose thread reads for itself. This test has a process of its own, because it looks at all
//! threads of the process and forks it.

#![cfg(feature = "io-uring")]

mod machine;
mod refuse;

use std::fs;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};

use brisk_io::measure::try_io_uring;
use brisk_io::{AsyncFile, block_on};
use refuse::refuse_inline;

/// The addresses of this process's rings.
fn rings() -> Vec<Range<usize>> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let rings = maps.lines().filter(|line| line.ends_with("[io_uring]"));
    let number = |text: &str| usize::from_str_radix(text, 16).unwrap();
    rings
        .map(|line| {
            let (start, rest) = line.split_once('-').unwrap();
            number(start)..number(rest.split_once(' ').unwrap().0)
        })
        .collect()
}

/// A page of a forked child that lies where its parent has a ring.
static PAGE: AtomicUsize = AtomicUsize::new(0);

/// Ends the child. If the page is gone, a signal does.
extern "C" fn use_page_and_end() {
    let page = PAGE.load(Ordering::SeqCst) as *mut u8;
    // SAFETY: the child has mapped it, and nobody but the test's subject could unmap it.
    unsafe { page.write_volatile(7) };
    // SAFETY: it takes a number and does not return.
    unsafe { libc::_exit(0) };
}

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
    // A child that ends drops what its thread has, and first of all its copy of the ring.
    let rings = rings();
    let ring = rings.first().expect("this thread has one");
    // SAFETY: the child makes system calls and runs what the end of a process runs; the other thread holds no lock that
    // it takes.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: nothing is mapped there: the kernel does not give a child its parent's ring.
            let page = unsafe {
                libc::mmap(
                    ring.start as *mut libc::c_void,
                    ring.len(),
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
                    -1,
                    0,
                )
            };
            let status = i32::from(page.addr() != ring.start);
            PAGE.store(ring.start, Ordering::SeqCst);
            // SAFETY: the function may be called at the end of this process: the page was mapped, or the process ends
            // without it.
            if status != 0 || unsafe { libc::atexit(use_page_and_end) } != 0 {
                // SAFETY: it takes a number and does not return.
                unsafe { libc::_exit(2) };
            }
            // SAFETY: no other thread of this child exists.
            unsafe { libc::exit(3) };
        }
        child => {
            let mut status = 0;
            // SAFETY: it writes a number to where one is.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0, "a signal ended it, or the exit status is not 0");
        }
    }
    assert!(read());
    for thread in fs::read_dir("/proc/self/task").unwrap() {
        let name = fs::read_to_string(thread.unwrap().path().join("comm")).unwrap();
        assert!(!name.starts_with("brisk-io"), "{name}");
    }
}
