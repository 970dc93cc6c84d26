//! A directory on a disk, in which the programs of the bench run.

// Each test binary uses a part of it.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The directory for temporary files may be in memory, where nothing is ever cold.
pub struct Place(tempfile::TempDir);

impl Place {
    pub fn new() -> Self {
        Self(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Copies a program, by another process: a descriptor of this one, which another test may just have given to a child,
    /// would keep the copy from being executed.
    pub fn install(&self, program: &str, name: &str) {
        let status = Command::new("install")
            .args(["-m", "755", program])
            .arg(self.path(name))
            .status();
        assert!(status.unwrap().success(), "{name}");
    }

    /// Runs a program to its end. STUB is for the stubs of the contenders.
    pub fn run(&self, program: &str, arguments: &[&str], stub: &str) -> Output {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.0.path());
        command.env("STUB", stub).output().unwrap()
    }

    /// What the directory `out` has, sorted.
    pub fn left(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("out")).into_iter().flatten();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    pub fn json(&self, path: impl AsRef<Path>) -> serde_json::Value {
        let text = fs::read_to_string(self.0.path().join(path)).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    /// The tables in Markdown of kept results.
    pub fn tables(&self, results: &str) -> String {
        let output = self.run(env!("CARGO_BIN_EXE_report"), &[results], "");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}
