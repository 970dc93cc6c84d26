//! A directory to try the command in, and the command.

// Each test binary uses a part of it.
#![allow(dead_code, reason = "each test binary uses a part of the sandbox")]

#[allow(clippy::duplicate_mod, reason = "some test binaries have a stage, too")]
#[path = "../staging/programs.rs"]
mod programs;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use brisk_image::Image;
use programs::make_executable;

/// A temporary directory.
pub struct Sandbox(tempfile::TempDir);

/// What the command did.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Sandbox {
    /// An empty one.
    pub fn empty() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    /// With the tree `app`: two programs, one of them with a second name, a symbolic link, a configuration
    /// file, an empty directory, and a file of several blocks.
    pub fn with_app() -> Self {
        let sandbox = Self::empty();
        sandbox.program("app/bin/run", b"#!/bin/sh\nexec true\n");
        sandbox.file("app/bin/tool", b"tool");
        sandbox.file("app/etc/app.conf", b"colour = no\n");
        sandbox.file("app/lib/big.bin", &noise(300_000));
        fs::create_dir(sandbox.path("app/empty")).expect("a directory");
        symlink("run", sandbox.path("app/bin/start")).expect("a symbolic link");
        fs::hard_link(sandbox.path("app/bin/tool"), sandbox.path("app/bin/alias"))
            .expect("a hard link");
        sandbox
    }

    /// With `app` packed as `app.img`: every time is 2023-11-14 22:13 in UTC, user and group are
    /// 10 and 20.
    pub fn with_image() -> Self {
        let sandbox = Self::with_app();
        for directory in ["app", "app/bin", "app/empty", "app/etc", "app/lib"] {
            sandbox.mode(directory, 0o755);
        }
        sandbox.pack(&["--time", "1700000000", "--owner", "10:20"]);
        sandbox
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file, and makes its directories.
    pub fn file(&self, name: &str, contents: &[u8]) {
        let path = self.path(name);
        let directory = path.parent().expect("a file is in a directory");
        fs::create_dir_all(directory).expect("a directory");
        fs::write(&path, contents).expect("a file");
        self.mode(name, 0o644);
    }

    /// A file that may be started at once.
    pub fn program(&self, name: &str, contents: &[u8]) {
        self.file(name, contents);
        make_executable(self.path(name));
    }

    pub fn mode(&self, name: &str, mode: u32) {
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).expect("a mode");
    }

    /// The command in this directory, with an environment without brisk's variables.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_brisk"));
        command
            .args(args)
            .current_dir(self.0.path())
            .env_remove("SOURCE_DATE_EPOCH")
            .stdin(Stdio::null());
        command
    }

    pub fn run(&self, args: &[&str]) -> Outcome {
        outcome(self.command(args).output().expect("the command starts"))
    }

    /// Runs the command, which must succeed and print nothing on stderr, and returns its stdout.
    #[track_caller]
    pub fn stdout(&self, args: &[&str]) -> String {
        let outcome = self.run(args);
        assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{args:?}");
        outcome.stdout
    }

    /// Runs the command, which must fail with exit code 2 and nothing on stdout, and returns its
    /// stderr.
    #[track_caller]
    pub fn failure(&self, args: &[&str]) -> String {
        let outcome = self.run(args);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (2, ""), "{args:?}");
        outcome.stderr
    }

    /// Packs `app` with `options`, and opens the image.
    #[track_caller]
    pub fn pack(&self, options: &[&str]) -> Image {
        let mut args = vec!["pack", "app", "-q", "-o", "app.img"];
        args.extend(options);
        assert_eq!(self.stdout(&args), "");
        self.image("app.img")
    }

    pub fn image(&self, name: &str) -> Image {
        Image::open(self.path(name)).expect("an image")
    }

    pub fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).expect("a file")
    }
}

pub fn outcome(output: Output) -> Outcome {
    Outcome {
        code: output.status.code().expect("an exit code"),
        stdout: String::from_utf8(output.stdout).expect("UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

/// Bytes that no codec can compress, the same each time.
pub fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    (0..len).map(|_| next()).collect()
}

/// The paths of everything in `image` except the root.
pub fn paths(image: &Image) -> Vec<String> {
    let walk = image.walk().expect("a root").skip(1);
    walk.map(|entry| shown(entry.expect("an entry").path()))
        .collect()
}

fn shown(path: &Path) -> String {
    path.to_str().expect("UTF-8").to_owned()
}
