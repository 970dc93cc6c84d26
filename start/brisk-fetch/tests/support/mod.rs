//! A web server that does what a test says, and the programs of brisk beside a cache of their own.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// How long a test waits for what takes milliseconds.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// How a server answers a request for a part of a file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Manner {
    Sound,
    /// This status, and this `Retry-After`.
    Status(u16, Option<&'static str>),
    /// The whole file, whatever was asked for.
    Whole,
    /// Breaks off in the middle.
    Short,
    /// Says that the file has other length.
    OtherLength,
    /// Has another `ETag`.
    OtherTag,
    Gzip,
    /// Says nothing until the manner changes.
    Silent,
    /// One bit of each answer is wrong.
    Flipped,
    /// Hangs up at once.
    Down,
    /// Hangs up at once, whatever is asked for.
    Gone,
}

/// What a server was asked for.
#[derive(Debug, Clone)]
pub struct Asked {
    pub path: String,
    pub range: Option<String>,
    pub has_credentials: bool,
}

struct State {
    manner: Manner,
    /// So many requests for parts are answered in this manner, and later ones soundly. `u32::MAX`: all.
    times: u32,
    /// Where `/moved/` leads.
    moved: String,
}

/// A web server.
pub struct Server {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    root: PathBuf,
    state: Mutex<State>,
    changed: Condvar,
    asked: Mutex<Vec<Asked>>,
    sent: AtomicU64,
}

impl Server {
    /// Serves the files in `root`.
    pub fn start(root: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            root: root.to_owned(),
            state: Mutex::new(State {
                manner: Manner::Sound,
                times: 0,
                moved: String::new(),
            }),
            changed: Condvar::new(),
            asked: Mutex::default(),
            sent: AtomicU64::new(0),
        });
        let server = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = Arc::clone(&server);
                // A client that has gone is no fault.
                thread::spawn(move || server.answer(&stream).ok());
            }
        });
        Self { address, shared }
    }

    pub fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.address)
    }

    /// Answers all requests for parts in this manner, from now on.
    pub fn behave(&self, manner: Manner) {
        self.behave_for(manner, u32::MAX);
    }

    /// Answers so many requests for parts in this manner.
    pub fn behave_for(&self, manner: Manner, times: u32) {
        let mut state = self.shared.state.lock().expect("alive");
        (state.manner, state.times) = (manner, times);
        self.shared.changed.notify_all();
    }

    /// Has `/moved/X` lead to `to` and X.
    pub fn move_to(&self, to: &str) {
        self.shared.state.lock().expect("alive").moved = to.to_owned();
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().expect("alive").clone()
    }

    /// Bytes of bodies that were sent.
    pub fn sent(&self) -> u64 {
        self.shared.sent.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn answer(&self, stream: &TcpStream) -> std::io::Result<()> {
        let mut lines = BufReader::new(stream);
        loop {
            let (mut path, mut range, mut has_credentials) = (String::new(), None, false);
            let mut line = String::new();
            if lines.read_line(&mut line)? == 0 {
                return Ok(());
            }
            path.push_str(line.split(' ').nth(1).unwrap_or(""));
            loop {
                line.clear();
                lines.read_line(&mut line)?;
                let Some((name, value)) = line.trim_end().split_once(": ") else {
                    break;
                };
                match &*name.to_ascii_lowercase() {
                    "range" => range = Some(value.to_owned()),
                    "authorization" => has_credentials = true,
                    _ => {}
                }
            }
            self.asked.lock().expect("alive").push(Asked {
                path: path.clone(),
                range: range.clone(),
                has_credentials,
            });
            self.reply(stream, &path, range.as_deref())?;
        }
    }

    /// The manner of an answer to a request for a part.
    fn manner(&self) -> Manner {
        let mut state = self.state.lock().expect("alive");
        loop {
            if state.times == 0 {
                return Manner::Sound;
            }
            if state.manner != Manner::Silent {
                state.times = match state.times {
                    u32::MAX => u32::MAX,
                    times => times - 1,
                };
                return state.manner;
            }
            state = self.changed.wait(state).expect("alive");
        }
    }

    fn reply(
        &self,
        mut stream: &TcpStream,
        path: &str,
        range: Option<&str>,
    ) -> std::io::Result<()> {
        if self.state.lock().expect("alive").manner == Manner::Gone {
            stream.shutdown(std::net::Shutdown::Both)?;
            return Err(std::io::ErrorKind::ConnectionReset.into());
        }
        if let Some(rest) = path.strip_prefix("/moved/") {
            let to = self.state.lock().expect("alive").moved.clone();
            return write!(
                stream,
                "HTTP/1.1 302 Found\r\nLocation: {to}{rest}\r\nContent-Length: 0\r\n\r\n"
            );
        }
        let Ok(bytes) = fs::read(self.root.join(path.trim_start_matches('/'))) else {
            return write!(
                stream,
                "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
            );
        };
        let manner = match range {
            Some(_) => self.manner(),
            None => Manner::Sound,
        };
        let len = bytes.len();
        let (start, end) = range.map_or((0, len), |range| parse(range, len));
        let tag = if manner == Manner::OtherTag {
            "\"2\""
        } else {
            "\"1\""
        };
        let total = if manner == Manner::OtherLength {
            len + 1
        } else {
            len
        };
        let mut body = bytes[start..end].to_vec();
        let mut head = format!(
            "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {start}-{}/{total}\r\n",
            end - 1
        );
        match manner {
            Manner::Down | Manner::Gone => {
                stream.shutdown(std::net::Shutdown::Both)?;
                return Err(std::io::ErrorKind::ConnectionReset.into());
            }
            Manner::Status(status, after) => {
                let after =
                    after.map_or(String::new(), |after| format!("Retry-After: {after}\r\n"));
                return write!(
                    stream,
                    "HTTP/1.1 {status} No\r\n{after}Content-Length: 0\r\n\r\n"
                );
            }
            Manner::Whole => {
                head = "HTTP/1.1 200 OK\r\n".into();
                body = bytes;
            }
            Manner::Gzip => head.push_str("Content-Encoding: gzip\r\n"),
            Manner::Flipped => {
                let middle = body.len() / 2;
                body[middle] ^= 1;
            }
            _ if range.is_none() => head = "HTTP/1.1 200 OK\r\n".into(),
            _ => {}
        }
        write!(
            stream,
            "{head}ETag: {tag}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        )?;
        if manner == Manner::Short {
            body.truncate(body.len() / 2);
        }
        stream.write_all(&body)?;
        self.sent.fetch_add(body.len() as u64, Ordering::Relaxed);
        if manner == Manner::Short {
            stream.shutdown(std::net::Shutdown::Both)?;
            return Err(std::io::ErrorKind::ConnectionReset.into());
        }
        Ok(())
    }
}

fn parse(range: &str, len: usize) -> (usize, usize) {
    let range = range.strip_prefix("bytes=").expect("bytes");
    let (first, last) = range.split_once('-').expect("one range");
    match (first.parse(), last.parse::<usize>()) {
        (Ok(first), Ok(last)) => (first, (last + 1).min(len)),
        (Ok(first), Err(_)) => (first, len),
        (Err(_), last) => (len.saturating_sub(last.expect("a number")), len),
    }
}

/// Directories of a test, and the programs of brisk that use them.
pub struct Place {
    pub directory: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        for name in ["cache", "run", "www", "home", "mnt"] {
            fs::create_dir(directory.path().join(name)).expect("room");
        }
        Self { directory }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn brisk(&self, arguments: &[&str]) -> Command {
        let brisk = Path::new(env!("CARGO_BIN_EXE_brisk-fetch")).with_file_name("brisk");
        let mut command = Command::new(brisk);
        command
            .args(arguments)
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("XDG_RUNTIME_DIR", self.path("run"))
            .env("HOME", self.path("home"))
            .env_remove("http_proxy")
            .env_remove("https_proxy")
            .env_remove("HTTPS_PROXY")
            .env_remove("SSL_CERT_FILE");
        command
    }

    pub fn output(&self, arguments: &[&str]) -> Output {
        self.brisk(arguments).output().expect("brisk is built")
    }

    /// What brisk prints. It must end well.
    pub fn done(&self, arguments: &[&str]) -> Vec<u8> {
        let output = self.output(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
        output.stdout
    }

    /// What brisk says when it fails.
    pub fn fails(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert!(!output.status.success(), "{arguments:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Publishes an image of some files as `app.img` in `www`. Returns its root hash.
    pub fn publish(&self) -> String {
        let tree = self.path("tree");
        for (name, bytes) in files() {
            let path = tree.join(name);
            fs::create_dir_all(path.parent().expect("a directory")).expect("room");
            fs::write(&path, bytes).expect("room");
        }
        let image = self.path("made.img");
        let (tree, image, www) = (text(&tree), text(&image), text(&self.path("www")));
        self.done(&["pack", &tree, "-o", &image, "--verity", "-q"]);
        self.done(&["publish", &image, &www, "--name", "app.img"]);
        let root = fs::read_to_string(self.path("made.img.roothash")).expect("written");
        root.trim().to_owned()
    }

    /// What fetcher and sessions have said, for whoever looks into a test that failed.
    fn print_logs(&self) {
        let find = Command::new("find")
            .arg(self.directory.path())
            .args([
                "-name", "*log", "-type", "f", "-print", "-exec", "cat", "{}", ";",
            ])
            .output();
        if let Ok(found) = find {
            eprintln!("{}", String::from_utf8_lossy(&found.stdout));
        }
    }

    /// The processes of this cache's fetcher: the one that watches, and the one that asks.
    pub fn fetchers(&self) -> Vec<i32> {
        let cache = text(&self.path("cache/brisk/remote"));
        let processes = fs::read_dir("/proc").expect("mounted").flatten();
        let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let mut found: Vec<_> = numbers
            .filter(|pid| {
                let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                let line = String::from_utf8_lossy(&line).into_owned();
                line.contains("brisk-fetch") && line.contains(&cache)
            })
            .collect();
        found.sort_unstable();
        found
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if thread::panicking() {
            self.print_logs();
        }
        self.output(&["umount", "--all"]);
        for pid in self.fetchers() {
            Command::new("kill")
                .args(["-9", &pid.to_string()])
                .status()
                .ok();
        }
    }
}

/// The files of the image: one that compresses, and others that do not.
pub fn files() -> Vec<(String, Vec<u8>)> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut noise = |len: usize| {
        let words = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        });
        words.flatten().take(len).collect::<Vec<u8>>()
    };
    let mut files = vec![(
        "bin/app".to_owned(),
        b"#!/bin/sh\ncat \"$BRISK_TREE/etc/text\"\n".to_vec(),
    )];
    files.push(("etc/text".into(), b"brisk ".repeat(2000)));
    files.extend((0..40).map(|number| (format!("data/{number}"), noise(150_000 + number))));
    files
}

pub fn text(path: &Path) -> String {
    path.to_str().expect("UTF-8").to_owned()
}

/// Waits until `is_true`.
pub fn await_that(what: &str, is_true: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_true() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}
