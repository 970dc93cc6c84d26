use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::Image;

/// The program docker-registry.
pub struct Registry {
    pub address: String,
    child: Child,
}

impl Registry {
    /// Starts it, with an empty storage. `more` is added to its configuration.
    pub fn start(directory: &Path, more: &str) -> Self {
        let config = format!(
            "version: 0.1\nlog:\n  level: info\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: 127.0.0.1:0\n{more}",
            directory.join("storage").display()
        );
        let path = directory.join("registry.yml");
        fs::write(&path, config).unwrap();
        let mut child = Command::new("docker-registry")
            .arg("serve")
            .arg(path)
            .env("OTEL_TRACES_EXPORTER", "none")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| {
                panic!("this test needs docker-registry, which workshop/lab/deps installs: {e}")
            });
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut said = String::new();
        let address = loop {
            let line = lines
                .next()
                .unwrap_or_else(|| panic!("it ended: {said}"))
                .unwrap();
            if let Some((_, rest)) = line.split_once("listening on ") {
                break rest
                    .trim_end_matches(|c: char| !c.is_ascii_digit())
                    .split(['"', ' '])
                    .next()
                    .unwrap()
                    .to_owned();
            }
            said.push_str(&line);
        };
        std::thread::spawn(move || lines.for_each(drop));
        Self { address, child }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The program skopeo, in a room of its own.
pub struct Skopeo {
    directory: tempfile::TempDir,
}

impl Skopeo {
    pub fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Copies an image. Returns what it said if that fails.
    pub fn copy(&self, args: &[&str], from: &str, to: &str) -> Result<(), String> {
        let tls = ["--src-tls-verify=false", "--dest-tls-verify=false"];
        let output = Command::new("skopeo")
            .args(["--insecure-policy", "copy", "--quiet"])
            .args(tls)
            .args(args)
            .args([from, to])
            .env("HOME", self.directory.path())
            .env("XDG_RUNTIME_DIR", self.directory.path())
            .env_remove("REGISTRY_AUTH_FILE")
            .stdin(Stdio::null())
            .output()
            .unwrap_or_else(|e| {
                panic!("this test needs skopeo, which workshop/lab/deps installs: {e}")
            });
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    /// Pulls an image into a directory of this name, and compares what came.
    pub fn pulls(&self, args: &[&str], from: &str, name: &str, image: &Image) {
        let to = self.path(name);
        let copied = self.copy(
            args,
            &format!("docker://{from}"),
            &format!("oci:{}", to.display()),
        );
        copied.unwrap_or_else(|said| panic!("{from}: {said}"));
        for (digest, blob) in &image.blobs {
            let digest = digest.strip_prefix("sha256:").unwrap();
            let came = fs::read(to.join("blobs/sha256").join(digest)).unwrap();
            assert!(came == *blob, "{digest}");
        }
    }

    /// Pushes an image.
    pub fn pushes(&self, image: &Image, to: &str) -> Result<(), String> {
        let layout = self.path("made");
        image.write(&layout);
        let from = format!("oci:{}:made", layout.display());
        self.copy(&[], &from, &format!("docker://{to}"))
    }
}
