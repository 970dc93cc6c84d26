//! The tables of the README and of pages in docs, and the picture, are what `make figures` makes from the raw runs.
//!
//! The launches among them need brisk: the one that BRISK names, or that the tests of the main workspace have built.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The command, with the lab beside it.
fn brisk() -> PathBuf {
    if let Some(brisk) = std::env::var_os("BRISK") {
        return brisk.into();
    }
    // All workspaces may have one directory for what they build.
    let own = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../debug");
    let main = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/debug");
    let built = [own, main].map(|directory| directory.join("brisk"));
    let lab = |brisk: &&PathBuf| brisk.exists() && brisk.with_file_name("brisk-lab").exists();
    let found = built.iter().find(lab);
    let found = found.expect(
        "no brisk with a brisk-lab beside it is built: run make test, or name one with BRISK",
    );
    found.canonicalize().unwrap()
}

#[test]
fn published_figures_are_made_of_raw_runs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let copy = tempfile::tempdir().unwrap();
    let pages = [
        "README.md",
        "docs/benchmarks.md",
        "docs/bundle.md",
        "docs/python.md",
    ];
    fs::create_dir_all(copy.path().join("docs/runs")).unwrap();
    for entry in fs::read_dir(root.join("docs/runs")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(
            entry.path(),
            copy.path().join("docs/runs").join(entry.file_name()),
        )
        .unwrap();
    }
    for page in pages {
        fs::copy(root.join(page), copy.path().join(page)).unwrap();
    }
    let output = Command::new(root.join("workshop/lab/figures"))
        .arg(brisk())
        .arg(env!("CARGO_BIN_EXE_report"))
        .args(pages)
        .current_dir(copy.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    for file in pages.into_iter().chain(["docs/launches.svg"]) {
        let [ours, made] = [&root, copy.path()].map(|at| fs::read(at.join(file)).unwrap());
        assert!(
            ours == made,
            "{file} is not what its raw runs make: run make figures"
        );
    }
}
