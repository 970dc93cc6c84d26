//! Running programs: those of others, and this one again in another place or as another user.

use std::env;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use brisk_image::summary::ExtractSummary;
use brisk_image::{Extractor, Image};

use super::programs::copy_program;

/// The user that a test is, where it must not be root.
pub const NOBODY: u32 = 65_534;

/// Set in a test that was started again.
const INNER: &str = "BRISK_TEST_INNER";

pub fn expect_root() {
    assert!(
        rustix::process::geteuid().is_root(),
        "this test makes devices and owners, and mounts: run it as root"
    );
}

/// Runs `program`, which must be there and succeed.
#[track_caller]
pub fn run(program: &str, args: impl IntoIterator<Item = impl AsRef<std::ffi::OsStr>>) -> Output {
    let mut command = Command::new(program);
    command.args(args);
    command.env("RUST_BACKTRACE", "0");
    let output = command.output().unwrap_or_else(|e| {
        panic!("cannot run {program}: {e}; install squashfs-tools, squashfs-tools-ng, util-linux and tar")
    });
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// Runs `program`, which must succeed and have nothing to complain about.
#[track_caller]
pub fn run_quiet(
    program: &str,
    args: impl IntoIterator<Item = impl AsRef<std::ffi::OsStr>>,
) -> Output {
    let output = run(program, args);
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "",
        "standard error of {program}"
    );
    output
}

/// Starts the test `name` of this program again, behind `prefix`; true in the started one.
#[track_caller]
fn again(name: &str, prefix: &[&str]) -> bool {
    if env::var_os(INNER).is_some_and(|inner| inner == name) {
        return true;
    }
    let exe = env::current_exe().expect("a test has a path");
    let (program, args) = prefix.split_first().expect("a prefix is a program");
    let mut command = Command::new(program);
    command
        .args(args)
        .arg(exe)
        .args(["--exact", name, "--nocapture", "--include-ignored"]);
    command.env(INNER, name);
    finished(command, name);
    false
}

/// Runs this program for the test `name`, and says what it measured.
#[track_caller]
fn finished(mut command: Command, name: &str) {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("cannot run {command:?}: {e}"));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{name} failed as {command:?}: {}\n{said}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    for line in said.lines().filter(|line| line.contains("peak memory")) {
        println!("{line}");
    }
}

/// Runs `test` in a mount namespace of its own, so that no mount outlives it.
#[track_caller]
pub fn alone_in_namespace(name: &str, test: impl FnOnce()) {
    expect_root();
    if again(
        name,
        &["unshare", "--mount", "--propagation", "private", "--"],
    ) {
        test();
    }
}

/// Runs `test` as an ordinary user in a directory that belongs to it, between `before` and `after`,
/// which are root there.
#[track_caller]
pub fn as_nobody(
    name: &str,
    before: impl FnOnce(&Path),
    test: impl FnOnce(&Path),
    after: impl FnOnce(&Path),
) {
    if let Some(own) = env::var_os(INNER) {
        assert_eq!(rustix::process::geteuid().as_raw(), NOBODY);
        return test(&PathBuf::from(own));
    }
    expect_root();
    let dir = tempfile::tempdir().expect("a temporary directory");
    // The program may be where only root can look; a copy is not.
    let exe = dir.path().join("test");
    copy_program(env::current_exe().expect("a test has a path"), &exe);
    let own = dir.path().join("own");
    fs::create_dir(&own).expect("the directory is ours");
    chown(&own, Some(NOBODY), Some(NOBODY)).expect("root may");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    before(&own);
    let id = NOBODY.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"]);
    command.arg(&exe).args(["--exact", name, "--nocapture"]);
    command.env(INNER, &own).current_dir(&own);
    finished(command, name);
    after(&own);
}

/// Runs `test` in a process of its own, so that what is measured is its own.
pub fn in_own_process(name: &str, test: impl FnOnce()) {
    if again(name, &["env", "--"]) {
        test();
    }
}

/// The most memory that this process had at once, in KiB.
pub fn vm_hwm() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number
        .and_then(|n| n.parse().ok())
        .expect("the kernel says VmHWM")
}

/// Mounts `image` through the kernel; to be called in a namespace of its own.
pub fn mounted<R>(image: &Path, look: impl FnOnce(&Path) -> R) -> R {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let paths = [image.as_os_str(), dir.path().as_os_str()];
    run(
        "mount",
        ["-t", "squashfs", "-o", "loop,ro"]
            .map(std::ffi::OsStr::new)
            .into_iter()
            .chain(paths),
    );
    let result = look(dir.path());
    run("umount", [dir.path()]);
    result
}

/// Extracts `image` with the library on `threads` threads.
pub fn brisk_extract(image: &Path, target: &Path, threads: usize) -> ExtractSummary {
    let image = Image::open(image).expect("it is an image");
    let extractor = Extractor::new().threads(threads);
    extractor
        .extract(&image, target)
        .expect("the image is whole")
}
