use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::Installed;
use crate::frozen::archives::sha256;
use crate::staging::HANG;
use crate::staging::program::outcome;

/// A place where a client runs.
pub struct Room {
    directory: tempfile::TempDir,
    pub proxy: SocketAddr,
}

/// How a client ended.
#[derive(Debug)]
pub struct Ran {
    pub done: bool,
    /// What it said.
    pub output: String,
}

impl Room {
    pub fn new(proxy: SocketAddr) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("home")).unwrap();
        Self { directory, proxy }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The path as text.
    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Writes a file, and makes its directory.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// What `brisk proxy env` says.
    pub fn settings(&self, client: &str) -> String {
        let url = format!("http://{}", self.proxy);
        let (code, text, messages) =
            outcome(self.directory.path(), &["env", client, "--url", &url], &[]);
        assert_eq!(code, Some(0), "{messages}");
        text
    }

    /// A command that knows nothing of this user, to be run in a directory of the room.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>, directory: &str) -> Command {
        let directory = self.path(directory);
        fs::create_dir_all(&directory).unwrap();
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.path("home"))
            .env("LC_ALL", "C.UTF-8")
            .current_dir(directory);
        command
    }

    /// Runs a command to its end. `package` has it.
    pub fn run(&self, mut command: Command, package: &str) -> Ran {
        let output = self.path("output");
        let file = File::create(&output).unwrap();
        command.stdin(std::process::Stdio::null());
        command.stdout(file.try_clone().unwrap()).stderr(file);
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(e) if e.kind() == io::ErrorKind::NotFound => panic!(
                "this test needs {:?}, which {package} has; workshop/lab/deps installs it",
                command.get_program()
            ),
            Err(e) => panic!("{command:?}: {e}"),
        };
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break Some(status);
            }
            if begun.elapsed() > HANG {
                // It may end in this moment.
                child.kill().ok();
                child.wait().unwrap();
                break None;
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        let text = String::from_utf8_lossy(&fs::read(output).unwrap()).into_owned();
        assert!(status.is_some(), "{command:?} hangs: {text}");
        Ran {
            done: status.is_some_and(|status| status.success()),
            output: text,
        }
    }

    /// What is in some files, as far as they are there.
    pub fn digests(&self, files: &[(&str, PathBuf)]) -> Installed {
        let there = files.iter().filter_map(|(name, path)| {
            let bytes = fs::read(path).ok()?;
            Some(((*name).to_owned(), sha256(&bytes)))
        });
        there.collect()
    }
}

/// What should be there.
pub fn expected(files: &[(&str, &[u8])]) -> Installed {
    let files = files.iter();
    files
        .map(|(name, bytes)| ((*name).to_owned(), sha256(bytes)))
        .collect()
}

/// The directories in a directory that is there.
pub fn directories(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(path) else {
        return Vec::new();
    };
    entries.map(|entry| entry.unwrap().path()).collect()
}
