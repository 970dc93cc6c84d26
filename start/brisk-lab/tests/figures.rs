//! The tables of the README and of docs/benchmarks.md, and the picture, are what `make figures` makes from
//! the raw runs.

use std::fs;
use std::path::Path;
use std::process::Command;

#[path = "../../brisk/tests/staging/mod.rs"]
mod staging;

#[test]
fn published_figures_are_made_of_raw_runs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let copy = tempfile::tempdir().unwrap();
    for directory in ["lab", "docs/runs"] {
        let to = copy.path().join(directory);
        fs::create_dir_all(&to).unwrap();
        for entry in fs::read_dir(root.join(directory)).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() {
                fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
            }
        }
    }
    for file in ["Makefile", "README.md", "docs/benchmarks.md"] {
        fs::copy(root.join(file), copy.path().join(file)).unwrap();
    }
    let output = Command::new("make")
        // Not the program itself, which is the one under test.
        .args(["--old-file=all", "figures"])
        .arg(format!("BRISK={}", staging::built().display()))
        .current_dir(copy.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    for file in ["README.md", "docs/benchmarks.md", "docs/launches.svg"] {
        let [ours, made] = [&root, copy.path()].map(|at| fs::read(at.join(file)).unwrap());
        assert!(
            ours == made,
            "{file} is not what its raw runs make: run make figures"
        );
    }
}
