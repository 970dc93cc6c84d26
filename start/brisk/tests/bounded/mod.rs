//! Runs verbs on images that may be anything, to their end.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use wait4::Wait4;

use crate::looking::{self, Place};

/// What is taken for being without end. On a machine that does nothing else, each verb takes less than 2 s.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes that a verb may print, which are kept in memory by none of them.
const MOST_OUT: u64 = 256 << 20;

/// The verbs that read an image, with IMAGE for it.
pub const VERBS: &[&str] = &[
    "info IMAGE",
    "info --json IMAGE",
    "ls IMAGE",
    "ls -R IMAGE",
    "ls --tree IMAGE",
    "ls -R -l IMAGE",
    "ls -R --json IMAGE",
    "cat --range ..4M IMAGE zeros",
    "cat --range ..4M IMAGE 00",
    "extract IMAGE out",
    "extract --no-xattrs --no-owners IMAGE out",
    "diff IMAGE IMAGE",
    "diff --ignore xattrs ordinary.img IMAGE",
    "verify IMAGE",
    "verify --json IMAGE",
    "verify --rebuild IMAGE",
    "repack IMAGE -o again.img",
    "hot IMAGE --profile a.profile -o a.hot",
    "profile check a.profile IMAGE",
    "warm IMAGE",
    "verity IMAGE -o a.verity",
    "run --at at --linger 0 IMAGE -- true",
    "run --at at --linger 0 --auto IMAGE -- true",
    "run --at at --linger 0 IMAGE",
    "trace --at at -o a-launch.profile IMAGE -- true",
    "wrap -o launcher IMAGE",
];

/// What a verb took, or what the processes that serve an image took.
#[derive(Debug, Clone, Copy, Default)]
pub struct Used {
    pub time: Duration,
    /// The most memory at one time. Of a verb, this is at least what the test itself has.
    pub bytes: u64,
}

/// The most that any of several took, and which.
#[derive(Default)]
pub struct Worst {
    pub time: (Duration, String),
    pub bytes: (u64, String),
    count: usize,
}

impl Worst {
    pub fn add(&mut self, used: Used, what: String) {
        self.count += 1;
        if used.time > self.time.0 {
            self.time = (used.time, what.clone());
        }
        if used.bytes > self.bytes.0 {
            self.bytes = (used.bytes, what);
        }
    }

    pub fn print(&self, of: &str) {
        println!(
            "{of}: {} on hostile images; the slowest took {} ms ({}), the largest {} KiB ({})",
            self.count,
            self.time.0.as_millis(),
            self.time.1,
            self.bytes.0 >> 10,
            self.bytes.1
        );
    }
}

/// A program that was started, and is killed when it is forgotten.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It has mostly ended.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// A directory for the sessions of the place.
fn sessions(place: &Place) -> std::path::PathBuf {
    let path = place.path("sessions");
    fs::create_dir_all(&path).expect("the place is ours");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    fs::set_permissions(&path, mode).expect("it is ours");
    path
}

/// Runs a verb on `image` in `place`, to its end. `run` mounts it on the directory `at`.
pub fn run(place: &Place, verb: &str, image: &str) -> Used {
    let starts = verb.starts_with("run ") || verb.starts_with("trace ");
    let made = [
        "out",
        "again.img",
        "a.hot",
        "a.verity",
        "a.roothash",
        "launcher",
        "a-launch.profile",
    ];
    for name in made {
        let path = place.path(name);
        if path.is_dir() {
            fs::remove_dir_all(&path).expect("it is ours");
        } else if path.exists() {
            fs::remove_file(&path).expect("it is ours");
        }
    }
    let verb = verb.replace("IMAGE", image);
    let arguments: Vec<&str> = verb.split(' ').collect();
    let mut command = place.command(&arguments);
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped());
    command.env("XDG_RUNTIME_DIR", sessions(place));
    command.env("XDG_CACHE_HOME", place.path("cache"));
    let started = Instant::now();
    let child = command.stderr(Stdio::piped()).spawn();
    let mut child = Killed(child.expect("brisk can be started"));
    let drain = |from: Option<Box<dyn Read + Send>>| {
        let from = from.expect("it is a pipe");
        std::thread::spawn(move || {
            let mut text = Vec::new();
            let mut from = from.take(MOST_OUT);
            let n = std::io::copy(&mut from.by_ref().take(100_000), &mut text);
            let rest = std::io::copy(&mut from, &mut std::io::sink());
            let n = n.unwrap_or(0) + rest.unwrap_or(0);
            (String::from_utf8_lossy(&text).into_owned(), n)
        })
    };
    let out = child
        .0
        .stdout
        .take()
        .map(|out| Box::new(out) as Box<dyn Read + Send>);
    let err = child
        .0
        .stderr
        .take()
        .map(|err| Box::new(err) as Box<dyn Read + Send>);
    let (out, err) = (drain(out), drain(err));
    let pid = Pid::from_child(&child.0);
    // It stays a zombie, so that the kernel still knows what it took.
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    let has_ended = || waitid(WaitId::Pid(pid), ended).expect("it can be waited for");
    while has_ended().is_none() {
        assert!(
            started.elapsed() < PATIENCE,
            "brisk {verb}: no end after {PATIENCE:?}"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
    let time = started.elapsed();
    let used = child.0.wait4().expect("it has ended");
    let status = used.status;
    let (_, printed) = out.join().expect("it only reads");
    let (err, _) = err.join().expect("it only reads");
    let code = status.code();
    assert!(
        code.is_some_and(|code| code < 3 || starts && (125..=127).contains(&code)),
        "brisk {verb}: {status}\n{err}"
    );
    assert!(!err.contains("panicked"), "brisk {verb}: {err}");
    assert!(err.len() < 10_000, "brisk {verb} says {} bytes", err.len());
    assert!(
        !matches!(code, Some(2 | 125)) || err.starts_with("brisk: "),
        "brisk {verb}: {err}"
    );
    assert!(printed < MOST_OUT, "brisk {verb} prints {printed} bytes");
    let bytes = used.rusage.maxrss;
    Used { time, bytes }
}

/// Mounts `image` at `at`, and lists and reads a part of what is there. An image that cannot be mounted is none. Returns
/// what `brisk mount` took until the image was there, and the memory of the process that serves it.
pub fn mount_and_walk(place: &Place, image: &str) -> Used {
    let brisk = |arguments: &[&str]| {
        let mut command = place.command(arguments);
        let output = command.env("XDG_RUNTIME_DIR", sessions(place)).output();
        looking::Said::from(output.expect("brisk can be started"))
    };
    let started = Instant::now();
    let mounted = brisk(&["mount", image, "at"]);
    let time = started.elapsed();
    if mounted.code != Some(0) {
        assert_eq!(mounted.code, Some(2), "{image}: {mounted:?}");
        return Used { time, bytes: 0 };
    }
    let started = Instant::now();
    walk(&place.path("at"), started);
    let took = started.elapsed();
    let stat = brisk(&["stat", "--json", "at"]);
    let sessions: serde_json::Value = serde_json::from_str(&stat.out).expect("JSON");
    let server = sessions[0]["images"][0]["server_pid"].as_i64();
    let server = server.unwrap_or_else(|| panic!("{image}: nobody serves it: {stat:?}"));
    let bytes = most_memory(server);
    let ended = brisk(&["umount", "at"]);
    assert_eq!(ended.code, Some(0), "{image}: {ended:?}");
    assert!(took < PATIENCE, "{image}: {took:?}");
    Used { time, bytes }
}

/// The most memory that a process has had so far, in bytes.
fn most_memory(pid: i64) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it serves");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|line| line.trim().strip_suffix(" kB"));
    let kib: u64 = line
        .expect("the kernel says VmHWM")
        .parse()
        .expect("a number");
    kib << 10
}

/// Goes through a part of what is below `directory`: 2000 names of each, and 64 KiB of each file. What cannot be
/// read is an error, and no hanging.
fn walk(directory: &Path, started: Instant) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries.take(2000) {
        let Ok(entry) = entry else { return };
        if started.elapsed() > PATIENCE / 6 {
            return;
        }
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => walk(&path, started),
            Ok(kind) if kind.is_file() => {
                let mut bytes = Vec::new();
                if let Ok(file) = fs::File::open(&path) {
                    // An error is as good an end.
                    file.take(64 << 10).read_to_end(&mut bytes).ok();
                }
            }
            Ok(kind) if kind.is_symlink() => drop(fs::read_link(&path)),
            _ => {}
        }
    }
}
