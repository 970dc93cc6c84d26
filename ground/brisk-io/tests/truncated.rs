//! Files that are truncated while they are mapped or loaded: the result is an error, and the process goes on.
//!
//! Cases that end a process, or that concern the handlers of others, run in processes of their own: this
//! program, called again with the name of a case.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

use brisk_io::measure::load_as;
use brisk_io::{
    ByteSource, Form, ImmutableFile, ImmutableMapping, Mapping, Need, Strategy, guard_mappings,
    page_size,
};

const CASE: &str = "BRISK_TRUNCATED_CASE";

fn pages(count: usize) -> File {
    let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    file.write_all_at(&vec![7; count * page_size()], 0).unwrap();
    file
}

/// Copies a byte of page `page`. The result must be used, because an optimising compiler removes a copy that
/// nobody uses.
fn copy_of(mapping: &Mapping, page: usize) -> io::Result<u8> {
    let mut byte = [0];
    mapping.read_bytes_at((page * page_size()) as u64, &mut byte)?;
    Ok(std::hint::black_box(byte)[0])
}

/// A file whose bytes are borrowed, though its test truncates it. Bytes past the new end are never checked,
/// trusted or read twice.
fn immutable(file: &File) -> ImmutableFile {
    // SAFETY: the file has no name, and its test does not write to it any more. It only truncates it, and
    // then expects zeros.
    unsafe { ImmutableFile::new(file.try_clone().unwrap()) }
}

/// A mapping of 8 pages. The file has lost all but the first 4.
fn cut() -> (File, Mapping) {
    let file = pages(8);
    let mapping = Mapping::shared(&file).unwrap();
    file.set_len(4 * page_size() as u64).unwrap();
    (file, mapping)
}

#[test]
fn a_page_that_is_gone_is_an_error_to_who_copies_it() {
    guard_mappings().unwrap();
    guard_mappings().unwrap();
    let (file, mapping) = cut();
    let mut buf = vec![0; page_size()];
    mapping.read_exact_bytes_at(0, &mut buf).unwrap();
    assert!(buf.iter().all(|&b| b == 7));
    mapping.check().unwrap();
    let e = mapping
        .read_bytes_at(5 * page_size() as u64, &mut buf)
        .unwrap_err();
    assert_eq!(e.kind(), io::ErrorKind::UnexpectedEof);
    assert_eq!(
        e.to_string(),
        "a page of the mapped file cannot be read: the file was truncated after it was mapped, or its disk failed; \
         open it again"
    );
    // From then on, no read of it succeeds.
    mapping.read_bytes_at(0, &mut buf).unwrap_err();
    mapping.check().unwrap_err();
    // Another mapping of the file still works.
    let other = Mapping::shared(&file).unwrap();
    other.read_exact_bytes_at(0, &mut buf).unwrap();
    other.check().unwrap();
}

#[test]
fn a_slice_reads_zeros_and_the_check_tells() {
    guard_mappings().unwrap();
    let file = pages(8);
    let mapping = ImmutableMapping::new(&immutable(&file)).unwrap();
    file.set_len(4 * page_size() as u64).unwrap();
    let sum: usize = mapping.as_slice().iter().map(|&b| usize::from(b)).sum();
    assert_eq!(sum, 4 * 7 * page_size());
    mapping.check().unwrap_err();
}

#[test]
fn a_private_page_that_is_gone_can_be_written_all_the_same() {
    guard_mappings().unwrap();
    let file = pages(8);
    let need = Need::new().form(Form::Patched);
    let bytes = 0..8 * page_size() as u64;
    let mut loaded = load_as(Strategy::PrivateMap, &immutable(&file), bytes, need).unwrap();
    let last = 8 * page_size() - 1;
    loaded.as_mut_slice().unwrap()[last - page_size()] = 9;
    file.set_len(0).unwrap();
    loaded.as_mut_slice().unwrap()[last] = 1;
    assert_eq!(loaded.as_slice()[last], 1);
    loaded.check().unwrap_err();
}

#[test]
fn addresses_that_are_used_again_are_not_torn() {
    guard_mappings().unwrap();
    for _ in 0..50 {
        let (_file, mapping) = cut();
        copy_of(&mapping, 7).unwrap_err();
        drop(mapping);
        let whole = pages(8);
        let mapping = ImmutableMapping::new(&immutable(&whole)).unwrap();
        assert!(mapping.as_slice().iter().all(|&b| b == 7));
        mapping.check().unwrap();
    }
}

#[test]
fn a_file_that_is_cut_under_every_strategy_is_an_error_or_was_read_whole() {
    guard_mappings().unwrap();
    for strategy in Strategy::ALL {
        if !cfg!(feature = "io-uring")
            && matches!(strategy, Strategy::Uring | Strategy::UringDirect)
        {
            continue;
        }
        let need = Need::new().form(if strategy == Strategy::PrivateMap {
            Form::Patched
        } else {
            Form::Shared
        });
        let file = pages(64);
        let loaded = load_as(
            strategy,
            &immutable(&file),
            0..64 * page_size() as u64,
            need,
        )
        .unwrap();
        file.set_len(page_size() as u64).unwrap();
        let mut buf = vec![0; page_size()];
        let read = loaded.read_bytes_at(40 * page_size() as u64, &mut buf);
        if strategy.copies() {
            assert_eq!(read.unwrap(), page_size(), "{strategy}");
            assert!(buf.iter().all(|&b| b == 7), "{strategy}");
        } else {
            let e = read.unwrap_err();
            assert_eq!(e.kind(), io::ErrorKind::UnexpectedEof, "{strategy}");
        }
        // Loading it again is refused at once.
        let e = load_as(
            strategy,
            &immutable(&file),
            0..64 * page_size() as u64,
            need,
        )
        .unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::UnexpectedEof, "{strategy}");
    }
}

#[test]
fn a_torn_mapping_takes_no_more_of_the_process_however_often_it_is_read() {
    if !is_again() {
        assert!(
            again("a_torn_mapping_takes_no_more_of_the_process_however_often_it_is_read").success()
        );
        return;
    }
    guard_mappings().unwrap();
    let file = pages(400);
    let mapping = Mapping::shared(&file).unwrap();
    file.set_len(0).unwrap();
    copy_of(&mapping, 0).unwrap_err();
    let mappings = || {
        std::fs::read_to_string("/proc/self/maps")
            .unwrap()
            .lines()
            .count()
    };
    let before = mappings();
    for page in (1..400).step_by(2) {
        copy_of(&mapping, page).unwrap_err();
    }
    // Other threads of this program may map something.
    assert!(mappings() < before + 20, "{before} to {}", mappings());
}

#[test]
fn what_one_thread_patches_another_one_does_not_lose() {
    guard_mappings().unwrap();
    let file = pages(200);
    let len = 200 * page_size();
    let need = Need::new().form(Form::Patched);
    let mut loaded = load_as(Strategy::PrivateMap, &immutable(&file), 0..len as u64, need).unwrap();
    file.set_len(0).unwrap();
    let bytes = loaded.as_mut_slice().unwrap();
    for page in bytes.chunks_mut(page_size()) {
        let start = std::sync::Barrier::new(2);
        let (first, second) = page.split_at_mut(page_size() / 2);
        std::thread::scope(|scope| {
            for half in [first, second] {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    half[0] = 9;
                });
            }
        });
    }
    for (number, page) in bytes.chunks(page_size()).enumerate() {
        let halves = [page[0], page[page_size() / 2]];
        assert_eq!(halves, [9, 9], "page {number}");
    }
    loaded.check().unwrap_err();
}

#[test]
fn populating_says_what_a_touch_would_end_by() {
    let (_file, mapping) = cut();
    let e = mapping.populate().unwrap_err();
    assert_eq!(e.kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn many_threads_that_fault_at_once_all_learn_it() {
    guard_mappings().unwrap();
    for _ in 0..20 {
        let (_file, mapping) = cut();
        std::thread::scope(|scope| {
            for first in 0..4 {
                let mapping = &mapping;
                scope.spawn(move || {
                    for page in 0..4 {
                        let at = 4 + (first + page) % 4;
                        copy_of(mapping, at).unwrap_err();
                    }
                });
            }
        });
    }
}

/// Runs this program again, for the test with this name, and returns how it ended.
fn again(test: &str) -> ExitStatus {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new(program);
    command
        .args(["--exact", test, "--nocapture"])
        .env(CASE, test);
    // A process that SIGBUS ends would leave a core file.
    command.output().unwrap().status
}

fn is_again() -> bool {
    std::env::var_os(CASE).is_some()
}

#[test]
fn without_the_guard_the_process_ends() {
    if is_again() {
        let (_file, mapping) = cut();
        unreachable!("{:?}", copy_of(&mapping, 5));
    }
    let status = again("without_the_guard_the_process_ends");
    assert_eq!(status.signal(), Some(libc::SIGBUS));
}

/// Touches a lost page of memory that brisk-io does not know.
fn touch_foreign() {
    let file = pages(1);
    let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
    // SAFETY: no address is given, so the kernel picks a free range.
    let map = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            page_size(),
            libc::PROT_READ,
            libc::MAP_SHARED,
            fd,
            0,
        )
    };
    assert_ne!(map, libc::MAP_FAILED);
    file.set_len(0).unwrap();
    // SAFETY: it was mapped above. That its page is gone is the point: the kernel raises SIGBUS.
    let byte = unsafe { map.cast::<u8>().read_volatile() };
    unreachable!("{byte}");
}

#[test]
fn a_fault_of_somebody_else_ends_the_process_as_before() {
    if is_again() {
        guard_mappings().unwrap();
        touch_foreign();
    }
    let status = again("a_fault_of_somebody_else_ends_the_process_as_before");
    assert_eq!(status.signal(), Some(libc::SIGBUS));
}

#[test]
fn a_signal_that_was_ignored_and_is_sent_is_ignored() {
    if is_again() {
        // SAFETY: to ignore a signal is an action that the call takes in place of a handler.
        unsafe { libc::signal(libc::SIGBUS, libc::SIG_IGN) };
        guard_mappings().unwrap();
        // SAFETY: the call takes no pointers.
        unsafe { libc::raise(libc::SIGBUS) };
        std::process::exit(42);
    }
    let status = again("a_signal_that_was_ignored_and_is_sent_is_ignored");
    assert_eq!(status.code(), Some(42));
}

extern "C" fn exit_with_42(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel, and who chains to this, give a whole `siginfo_t`.
    let code = unsafe { (*info).si_code };
    let right = signal == libc::SIGBUS && code > 0;
    // SAFETY: the call takes no pointers, and is allowed in a signal handler.
    unsafe { libc::_exit(if right { 42 } else { 1 }) };
}

#[test]
fn the_handler_of_a_virtual_machine_is_still_called() {
    if is_again() {
        // SAFETY: all zero is a whole action.
        let mut theirs: libc::sigaction = unsafe { std::mem::zeroed() };
        theirs.sa_sigaction = exit_with_42 as *const () as usize;
        theirs.sa_flags = libc::SA_SIGINFO;
        // SAFETY: `theirs` is a whole action, with a handler of the type that SA_SIGINFO asks for.
        unsafe { libc::sigaction(libc::SIGBUS, &raw const theirs, std::ptr::null_mut()) };
        guard_mappings().unwrap();
        // Our fault does not go to their handler.
        let (_file, mapping) = cut();
        copy_of(&mapping, 5).unwrap_err();
        touch_foreign();
    }
    let status = again("the_handler_of_a_virtual_machine_is_still_called");
    assert_eq!(status.code(), Some(42));
}
