//! Reads that have to wait, on a system without `io_uring`: threads do them. A process makes its pool once,
//! so this test has a process of its own.

// Other tests use the other functions.
#[allow(dead_code)]
mod reads;
#[allow(dead_code)]
mod refuse;

use refuse::always;

#[test]
fn threads_read_where_io_uring_is_refused() {
    reads::threads_read(&[always(libc::SYS_io_uring_setup)]);
}
