//! Who is told which pages of a file are in memory: some users are told nothing, or something wrong.

mod machine;

use std::fs::{self, File};
use std::os::unix::fs::chown;
use std::process::Command;

use brisk_io::{Residency, residency};

const FILE: &str = "BRISK_RESIDENCY_FILE";

/// A user number that no namespace here has.
const STRANGER: u32 = 54321;

#[test]
fn root_of_a_namespace_is_told_nothing_of_the_files_of_strangers() {
    if let Some(path) = std::env::var_os(FILE) {
        let found = residency(&File::open(path).unwrap()).unwrap();
        assert_eq!(found, Residency::Unknown);
        return;
    }
    let root = rustix::process::geteuid().is_root();
    // Only root can give a file away.
    if !machine::has("root", root.then_some(()).ok_or("it runs as another user")) {
        return;
    }
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    fs::write(file.path(), [7; 100_000]).unwrap();
    chown(file.path(), Some(STRANGER), Some(STRANGER)).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    fs::set_permissions(file.path(), mode).unwrap();
    // Root is told.
    let Residency::Pages { total, .. } = residency(&File::open(file.path()).unwrap()).unwrap()
    else {
        panic!("root is told");
    };
    assert!(total > 0);
    let name = "root_of_a_namespace_is_told_nothing_of_the_files_of_strangers";
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(FILE, file.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}
