//! Reads that `io_uring` has when the system refuses it: threads do them. A process makes its pool once, so
//! this test has a process of its own.

#[allow(dead_code)]
mod reads;
#[allow(dead_code)]
mod refuse;

use refuse::Refused;

/// `IORING_ENTER_GETEVENTS`.
const WAIT: libc::c_int = 1;

#[test]
fn threads_read_what_io_uring_was_given() {
    // A ring can be made and tried, but waiting for it is refused.
    reads::threads_read(&[Refused {
        call: libc::SYS_io_uring_enter,
        bits: Some((3, WAIT)),
    }]);
}
