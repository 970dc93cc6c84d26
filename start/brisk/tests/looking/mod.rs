//! Trees, images of them, and the tested program.
#![allow(dead_code, reason = "each test program uses a part")]

#[allow(clippy::duplicate_mod, reason = "some test binaries have a stage, too")]
#[path = "../staging/programs.rs"]
mod programs;

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use brisk_image::{ImageWriter, Tree, TreeRules};
use programs::make_executable;

/// The output of a program, and how it ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        Self {
            code: output.status.code(),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }
}

/// A temporary directory, in which brisk is run.
pub struct Place(tempfile::TempDir);

impl Place {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).expect("it is ours");
        Self(dir)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_brisk"));
        command
            .args(arguments)
            .current_dir(self.0.path())
            .env_remove("TMPDIR")
            .env("COLUMNS", "100");
        command
    }

    pub fn brisk(&self, arguments: &[&str]) -> Said {
        let output = self.command(arguments).output();
        output.expect("brisk can be started").into()
    }

    /// Copies brisk's programs into the place, because others may not enter the directory that cargo builds
    /// in.
    pub fn copy_programs(&self) {
        let built = Path::new(env!("CARGO_BIN_EXE_brisk"));
        // With another process: a file that a thread of this one writes may be open in a child of another
        // thread. Then it could not be executed.
        let copied = Command::new("cp")
            .args(["brisk", "brisk-run", "brisk-tools"].map(|name| built.with_file_name(name)))
            .arg(self.0.path())
            .status();
        assert!(copied.expect("cp can be started").success());
    }

    /// A small tree with every kind of file that needs no rights. All times are the same.
    pub fn tree(&self, name: &str) -> PathBuf {
        let root = self.path(name);
        fs::create_dir_all(root.join("bin")).expect("a directory");
        fs::create_dir(root.join("sub")).expect("a directory");
        write(&root.join("sub/inside"), b"from the image");
        write(&root.join("noise"), &noise(300_000));
        write(&root.join("text"), "brisk ".repeat(50_000).as_bytes());
        write(&root.join("bin/app"), b"#!/bin/sh\nexec \"$@\"\n");
        make_executable(root.join("bin/app"));
        symlink("bin/app", root.join("link")).expect("a link");
        for name in ["bin/app", "sub/inside", "noise", "text", "bin", "sub", "."] {
            set_time(&root.join(name), 1_700_000_000);
        }
        set_time(&root.join("link"), 1_700_000_000);
        root
    }

    /// Packs the tree `tree` into `image`.
    pub fn pack(&self, writer: &ImageWriter, tree: &str, image: &str) {
        let tree = Tree::from_directory(self.path(tree), &TreeRules::default());
        let tree = tree.expect("the tree can be read");
        writer
            .write(&tree, self.path(image))
            .expect("the tree can be packed");
    }

    /// Packs the tree `tree` into `image` with mksquashfs.
    pub fn mksquashfs(&self, tree: &str, image: &str, options: &[&str]) {
        let output = Command::new("mksquashfs")
            .args([tree, image])
            .args(["-quiet", "-no-progress", "-noappend", "-all-root"])
            .args(options)
            .current_dir(self.0.path())
            .output()
            .expect("mksquashfs is needed for this test: install squashfs-tools");
        assert!(output.status.success(), "mksquashfs: {output:?}");
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).expect("it can be read")
    }
}

pub fn write(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}

/// Bytes that no codec can compress.
pub fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let next = || {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    std::iter::repeat_with(next).take(len).collect()
}

pub fn set_time(path: &Path, seconds: i64) {
    use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
    let time = Timespec {
        tv_sec: seconds,
        tv_nsec: 0,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).expect("it is ours");
}

/// Compares the help of a verb with `tests/help/VERB.txt`.
pub fn assert_help(verb: &str) {
    let said = Place::new().brisk(&[verb, "--help"]);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/help/{verb}.txt"));
    let known = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        said.out == known,
        "{} is not what `brisk {verb} --help` says:\n{}",
        path.display(),
        said.out
    );
}
