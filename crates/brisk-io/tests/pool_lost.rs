//! Reads that were given to `io_uring` when the system takes it away: threads do them. The pool of a process is
//! made once, so this test has a process of its own.

#[allow(dead_code)]
mod reads;
#[allow(dead_code)]
mod refuse;

use refuse::Refused;

/// `IORING_ENTER_GETEVENTS`.
const WAIT: libc::c_int = 1;

#[test]
fn threads_read_what_io_uring_was_given() {
    // A ring can be made and tried, and is refused when it is waited for.
    reads::threads_read(&[Refused {
        call: libc::SYS_io_uring_enter,
        bits: Some((3, WAIT)),
    }]);
}
