//! Reads that have to wait where the system lets nobody use `io_uring`: threads do them. The pool of a process
//! is made once, so this test has a process of its own.

// The other functions are those of other tests.
#[allow(dead_code)]
mod reads;
#[allow(dead_code)]
mod refuse;

use refuse::always;

#[test]
fn threads_read_where_io_uring_is_refused() {
    reads::threads_read(&[always(libc::SYS_io_uring_setup)]);
}
