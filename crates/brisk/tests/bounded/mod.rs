//! Runs verbs on images that may be anything, to their end.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::looking::Place;

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
];

/// A program that was started, and is killed when it is forgotten.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It has mostly ended.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Runs a verb on `image` in `place`, to its end.
pub fn run(place: &Place, verb: &str, image: &str) {
    for name in ["out", "again.img", "a.hot"] {
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
    let status = loop {
        if let Some(status) = child.0.try_wait().expect("it can be waited for") {
            break status;
        }
        assert!(
            started.elapsed() < PATIENCE,
            "brisk {verb}: no end after {PATIENCE:?}"
        );
        std::thread::sleep(Duration::from_millis(2));
    };
    let (_, printed) = out.join().expect("it only reads");
    let (err, _) = err.join().expect("it only reads");
    let code = status.code();
    assert!(
        code.is_some_and(|code| code < 3),
        "brisk {verb}: {status}\n{err}"
    );
    assert!(!err.contains("panicked"), "brisk {verb}: {err}");
    assert!(err.len() < 10_000, "brisk {verb} says {} bytes", err.len());
    assert!(
        code != Some(2) || err.starts_with("brisk: "),
        "brisk {verb}: {err}"
    );
    assert!(printed < MOST_OUT, "brisk {verb} prints {printed} bytes");
}

/// Mounts `image` at `at`, and lists and reads a part of what is there. An image that cannot be mounted is none.
pub fn mount_and_walk(place: &Place, image: &str) {
    let mounted = place.brisk(&["mount", image, "at"]);
    if mounted.code != Some(0) {
        assert_eq!(mounted.code, Some(2), "{image}: {mounted:?}");
        return;
    }
    let started = Instant::now();
    walk(&place.path("at"), started);
    let took = started.elapsed();
    let ended = place.brisk(&["umount", "at"]);
    assert_eq!(ended.code, Some(0), "{image}: {ended:?}");
    assert!(took < PATIENCE, "{image}: {took:?}");
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
