//! Copies of programs, for users who may not look where the tests are built, and for trees of programs.

// Each test binary uses a part of it.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::path::Path;
use std::process::Command;

/// Copies the file of a program, which may be started at once. Another process writes it.
///
/// If this one wrote it, a child that another thread starts meanwhile would have it open for writing until its own `exec`, and
/// the kernel starts no file that is open for writing (ETXTBSY).
#[track_caller]
pub fn copy_program(program: impl AsRef<Path>, to: impl AsRef<Path>) {
    let mut copy = Command::new("cp");
    copy.arg("--").args([program.as_ref(), to.as_ref()]);
    let status = copy.status().expect("there is cp");
    assert!(status.success(), "{copy:?}: {status}");
}

/// Makes a file that this process has written one that may be started at once: another process copies it, as above.
#[track_caller]
pub fn make_executable(program: impl AsRef<Path>) {
    let (program, copy) = (program.as_ref(), program.as_ref().with_extension("copy"));
    copy_program(program, &copy);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&copy, mode).expect("it is ours");
    std::fs::rename(copy, program).expect("it is ours");
}
