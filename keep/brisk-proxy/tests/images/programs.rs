use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::Image;
use crate::staging::HANG;

/// The program docker-registry.
pub struct Registry {
    pub address: String,
    _daemon: Daemon,
}

impl Registry {
    /// Starts it, with an empty storage.
    pub fn start(directory: &Path) -> Self {
        let config = format!(
            "version: 0.1\nlog:\n  level: info\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: 127.0.0.1:0\n",
            directory.join("storage").display()
        );
        let path = directory.join("registry.yml");
        fs::write(&path, config).unwrap();
        let mut command = Command::new("docker-registry");
        command.arg("serve").arg(path);
        let (daemon, address) = Daemon::start(command, "docker-registry", |line| {
            let (_, address) = line.split_once("listening on ")?;
            Some(address.split(['"', ' ']).next()?.to_owned())
        });
        Self {
            address,
            _daemon: daemon,
        }
    }
}

/// Runs a command of a program to its end. `package` has the program. Returns what it said if it fails.
fn run(home: &Path, program: &str, package: &str, args: &[&str]) -> Result<Vec<u8>, String> {
    let output = Command::new("timeout")
        .arg(HANG.as_secs().to_string())
        .arg(program)
        .args(args)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home)
        .env("XDG_RUNTIME_DIR", home)
        .env("CONTAINERS_REGISTRIES_CONF", home.join("registries.conf"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_ne!(
        output.status.code(),
        Some(127),
        "this test needs {program}, which {package} has; workshop/lab/deps installs it"
    );
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// Pulls `registry.example/app:1` with podman, which has a mirror of this registry there. Returns the digest of its
/// configuration.
pub fn podman_pulls(mirror: &str) -> String {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
    let text = format!(
        "[[registry]]\nlocation = \"registry.example\"\n[[registry.mirror]]\nlocation = \"{mirror}\"\ninsecure = true\n"
    );
    fs::write(path("registries.conf"), text).unwrap();
    fs::write(
        path("policy.json"),
        "{\"default\":[{\"type\":\"insecureAcceptAnything\"}]}",
    )
    .unwrap();
    let (root, state, policy) = (path("root"), path("state"), path("policy.json"));
    let args = [
        "--root",
        &root,
        "--runroot",
        &state,
        "--storage-driver",
        "vfs",
        "--cgroup-manager",
        "cgroupfs",
        "pull",
        "--quiet",
        "--signature-policy",
        &policy,
        "registry.example/app:1",
    ];
    let id = run(home.path(), "podman", "podman", &args).unwrap();
    format!("sha256:{}", String::from_utf8(id).unwrap().trim())
}

/// Fetches `registry.example/app:1` with containerd, which has a mirror of this registry there. Returns the blobs of these
/// digests.
pub fn containerd_fetches(mirror: &str, digests: &[&str]) -> Vec<Vec<u8>> {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
    let (socket, hosts) = (path("socket"), path("hosts"));
    let config = format!(
        "version = 2\nroot = {:?}\nstate = {:?}\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n\
         [grpc]\naddress = {socket:?}\n[ttrpc]\naddress = {:?}\n",
        path("root"),
        path("state"),
        path("ttrpc")
    );
    fs::write(path("config.toml"), config).unwrap();
    let directory = home.path().join("hosts/registry.example");
    fs::create_dir_all(&directory).unwrap();
    let text = format!(
        "server = \"https://registry.example\"\n[host.\"{mirror}\"]\ncapabilities = [\"pull\", \"resolve\"]\n\
         override_path = true\n"
    );
    fs::write(directory.join("hosts.toml"), text).unwrap();
    let mut command = Command::new("containerd");
    command.args(["--config", &path("config.toml")]);
    let _daemon = Daemon::start(command, "containerd", |line| {
        line.contains("containerd successfully booted")
            .then_some(())
    });
    let ctr = |args: &[&str]| {
        let args = [&["--address", &socket], args].concat();
        run(home.path(), "ctr", "containerd", &args).unwrap()
    };
    ctr(&[
        "content",
        "fetch",
        "--hosts-dir",
        &hosts,
        "registry.example/app:1",
    ]);
    digests
        .iter()
        .map(|digest| ctr(&["content", "get", digest]))
        .collect()
}

/// A program that runs until this is dropped.
struct Daemon(Child);

impl Daemon {
    /// Starts it, and waits for a line on stderr that `ready` makes something of.
    fn start<R>(
        mut command: Command,
        package: &str,
        ready: impl Fn(&str) -> Option<R>,
    ) -> (Self, R) {
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| {
                panic!("this test needs {package}, which workshop/lab/deps installs: {e}")
            });
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let this = Self(child);
        let mut said = String::new();
        loop {
            let line = lines
                .next()
                .unwrap_or_else(|| panic!("it ended: {said}"))
                .unwrap();
            if let Some(found) = ready(&line) {
                std::thread::spawn(move || lines.for_each(drop));
                return (this, found);
            }
            said.push_str(&line);
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// The program skopeo, in a room of its own.
pub struct Skopeo {
    directory: tempfile::TempDir,
}

impl Skopeo {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("registries.conf"), "").unwrap();
        Self { directory }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Copies an image. Returns what it said if that fails.
    pub fn copy(&self, args: &[&str], from: &str, to: &str) -> Result<(), String> {
        let own = [
            "--insecure-policy",
            "copy",
            "--quiet",
            "--src-tls-verify=false",
            "--dest-tls-verify=false",
        ];
        let args = [&own, args, &[from, to]].concat();
        run(self.directory.path(), "skopeo", "skopeo", &args).map(drop)
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
