//! System calls that a filter refuses, as container runtimes have them: another way is taken, and told.
//!
//! A filter concerns the thread that installs it, so each test has one of its own.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::thread;

use brisk_io::{AsyncFile, Need, ReadAt, Strategy, load_as};

/// A system call that is refused, always or if bits of an argument are set.
struct Refused {
    call: libc::c_long,
    /// The argument, from 0, and the bits.
    bits: Option<(usize, libc::c_int)>,
}

const fn always(call: libc::c_long) -> Refused {
    Refused { call, bits: None }
}

/// Has the kernel answer `EPERM` to these system calls of this thread, from now on.
fn refuse(calls: &[Refused]) {
    let step = |code: u32, k: u32, skip: u8| libc::sock_filter {
        code: u16::try_from(code).unwrap(),
        jt: 0,
        jf: skip,
        k,
    };
    let load = |at: usize| {
        let at = u32::try_from(at).unwrap();
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at, 0)
    };
    let refusal = libc::SECCOMP_RET_ERRNO | u32::try_from(libc::EPERM).unwrap();
    let refusal = step(libc::BPF_RET | libc::BPF_K, refusal, 0);
    let mut program = Vec::new();
    for refused in calls {
        program.push(load(std::mem::offset_of!(libc::seccomp_data, nr)));
        let call = u32::try_from(refused.call).unwrap();
        let is_it = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        match refused.bits {
            None => program.push(step(is_it, call, 1)),
            Some((argument, bits)) => {
                program.push(step(is_it, call, 3));
                // Its lower half, where that comes first in memory.
                let at = std::mem::offset_of!(libc::seccomp_data, args) + 8 * argument;
                program.push(load(at + if cfg!(target_endian = "big") { 4 } else { 0 }));
                let has = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
                program.push(step(has, u32::try_from(bits).unwrap(), 1));
            }
        }
        program.push(refusal);
    }
    program.push(step(
        libc::BPF_RET | libc::BPF_K,
        libc::SECCOMP_RET_ALLOW,
        0,
    ));
    let filter = libc::sock_fprog {
        len: u16::try_from(program.len()).unwrap(),
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the call takes numbers only.
    let bound = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(bound, 0);
    // SAFETY: `filter` points to `len` instructions, which the kernel copies and checks.
    let installed = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const filter,
        )
    };
    assert_eq!(installed, 0, "{}", std::io::Error::last_os_error());
}

fn file() -> File {
    let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    file.write_all_at(&[7; 300_000], 0).unwrap();
    file
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
    filtered(|| {
        refuse(&[always(libc::SYS_io_uring_setup)]);
        for strategy in [Strategy::Uring, Strategy::UringDirect] {
            let e = load_as(strategy, &file(), 0..300_000, Need::default()).unwrap_err();
            assert_eq!(e.kind(), std::io::ErrorKind::Unsupported, "{strategy}");
            assert_eq!(
                e.to_string(),
                "this system lets nobody, or not this process, use io_uring: Operation not permitted (os error 1)"
            );
        }
    });
}

#[test]
fn a_mapping_that_is_refused_is_replaced_by_a_copy() {
    filtered(|| {
        let file = file();
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
        let file = file();
        // Advice about large pages and populating go the same way.
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
            // The pool's threads were not filtered.
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
        assert_eq!((counts.inline, counts.hopped, counts.refused), (0, 3, 1));
        assert_eq!(ReadAt::len(&file).unwrap(), 300_000);
    });
}
