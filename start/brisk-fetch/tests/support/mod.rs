//! A web server that does what a test says, and the programs of brisk beside a cache of their own.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use data_encoding::BASE64;
use rcgen::{CertificateParams, CertifiedIssuer, KeyPair};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

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
    /// The same, and breaks off in the middle.
    HalfOfWhole,
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
    /// Sends a byte of the head, or of the body behind its first half, now and then.
    DrippingHead,
    DrippingBody,
    /// Hangs up at once.
    Down,
    /// Hangs up at once, whatever is asked for.
    Gone,
    /// Says nothing, whatever is asked for, until the manner changes.
    Mute,
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
    /// The `Authorization` without which nothing is given.
    lock: Option<String>,
}

/// A web server.
pub struct Server {
    pub address: SocketAddr,
    /// None if it speaks no TLS.
    pub authority: Option<String>,
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
    /// Serves the files in `root`. It is a proxy, too, which has itself all that it is asked for.
    pub fn start(root: &Path) -> Self {
        Self::start_with(root, None)
    }

    /// The same by TLS, for this host. As a proxy it first speaks none, and makes a tunnel.
    pub fn start_tls(root: &Path, host: &str) -> Self {
        Self::start_with(root, Some(certified(host)))
    }

    fn start_with(root: &Path, tls: Option<(ServerConfig, String)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            root: root.to_owned(),
            state: Mutex::new(State {
                manner: Manner::Sound,
                times: 0,
                moved: String::new(),
                lock: None,
            }),
            changed: Condvar::new(),
            asked: Mutex::default(),
            sent: AtomicU64::new(0),
        });
        let server = Arc::clone(&shared);
        let (config, authority) = tls.unzip();
        let config = config.map(Arc::new);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (server, config) = (Arc::clone(&server), config.clone());
                // A client that has gone is no fault.
                thread::spawn(move || match config {
                    Some(config) => server.answer_tls(stream, config).ok(),
                    None => server.answer(stream).ok(),
                });
            }
        });
        Self {
            address,
            authority,
            shared,
        }
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

    /// Gives nothing any more without this user and password.
    pub fn lock(&self, pair: &str) {
        let value = format!("Basic {}", BASE64.encode(pair.as_bytes()));
        self.shared.state.lock().expect("alive").lock = Some(value);
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
    fn answer_tls(&self, mut stream: TcpStream, config: Arc<ServerConfig>) -> std::io::Result<()> {
        let mut first = [0];
        stream.peek(&mut first)?;
        if first == *b"C" {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                stream.read_exact(&mut first)?;
                head.push(first[0]);
            }
            let head = String::from_utf8_lossy(&head);
            self.asked.lock().expect("alive").push(Asked {
                path: head.split("\r\n").next().unwrap_or("").to_owned(),
                range: None,
                has_credentials: false,
            });
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
        }
        let connection = ServerConnection::new(config).map_err(std::io::Error::other)?;
        self.answer(StreamOwned::new(connection, stream))
    }

    fn answer(&self, stream: impl Read + Write) -> std::io::Result<()> {
        let mut lines = BufReader::new(stream);
        loop {
            let (mut path, mut range, mut has_credentials) = (String::new(), None, false);
            let mut authorization = None;
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
                    "authorization" => {
                        has_credentials = true;
                        authorization = Some(value.to_owned());
                    }
                    "x-amz-security-token" => has_credentials = true,
                    _ => {}
                }
            }
            self.asked.lock().expect("alive").push(Asked {
                path: path.clone(),
                range: range.clone(),
                has_credentials,
            });
            let lock = self.state.lock().expect("alive").lock.clone();
            if lock.is_some() && lock != authorization {
                let head = "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"it\"";
                write!(lines.get_mut(), "{head}\r\nContent-Length: 0\r\n\r\n")?;
                continue;
            }
            self.reply(lines.get_mut(), &path, range.as_deref())?;
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
        stream: &mut (impl Read + Write),
        path: &str,
        range: Option<&str>,
    ) -> std::io::Result<()> {
        if self.state.lock().expect("alive").manner == Manner::Gone {
            return Err(std::io::ErrorKind::ConnectionReset.into());
        }
        let state = self.state.lock().expect("alive");
        let is_mute = |state: &mut State| state.manner == Manner::Mute;
        drop(self.changed.wait_while(state, is_mute).expect("alive"));
        if let Some(rest) = path.strip_prefix("/moved/") {
            let to = self.state.lock().expect("alive").moved.clone();
            return write!(
                stream,
                "HTTP/1.1 302 Found\r\nLocation: {to}{rest}\r\nContent-Length: 0\r\n\r\n"
            );
        }
        // A proxy is asked for whole URLs.
        let of_url = path
            .split_once("://")
            .and_then(|(_, rest)| rest.split_once('/'));
        let name = of_url.map_or(path.trim_start_matches('/'), |(_, name)| name);
        // What a URL is signed with says nothing of the file.
        let name = name.split('?').next().unwrap_or("");
        let Ok(bytes) = fs::read(self.root.join(name)) else {
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
            Manner::Down | Manner::Gone | Manner::Mute => {
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
            Manner::Whole | Manner::HalfOfWhole => {
                head = "HTTP/1.1 200 OK\r\n".into();
                body = bytes;
            }
            Manner::Gzip => head.push_str("Content-Encoding: gzip\r\n"),
            Manner::Flipped => {
                let middle = body.len() / 2;
                body[middle] ^= 1;
            }
            Manner::DrippingHead => return drip(stream),
            // As web servers say it of files. A cache takes what is so old for fresh.
            _ if range.is_none() => {
                head = "HTTP/1.1 200 OK\r\nLast-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\n".into();
            }
            _ => {}
        }
        write!(
            stream,
            "{head}ETag: {tag}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        )?;
        let breaks_off = matches!(manner, Manner::Short | Manner::HalfOfWhole);
        if breaks_off || manner == Manner::DrippingBody {
            body.truncate(body.len() / 2);
        }
        stream.write_all(&body)?;
        self.sent.fetch_add(body.len() as u64, Ordering::Relaxed);
        match manner {
            Manner::DrippingBody => drip(stream),
            _ if breaks_off => Err(std::io::ErrorKind::ConnectionReset.into()),
            _ => Ok(()),
        }
    }
}

/// Sends a byte now and then, until the client has gone.
fn drip(stream: &mut impl Write) -> std::io::Result<()> {
    loop {
        stream.write_all(b"H")?;
        stream.flush()?;
        thread::sleep(Duration::from_millis(20));
    }
}

/// What a server needs to be this host, and the certificate of its authority.
fn certified(host: &str) -> (ServerConfig, String) {
    let mut authority = CertificateParams::new(Vec::new()).expect("no names");
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let own = KeyPair::generate().expect("a key");
    let authority = CertifiedIssuer::self_signed(authority, own).expect("an authority");
    let key = KeyPair::generate().expect("a key");
    let certificate = CertificateParams::new([host.to_owned()]).expect("a name");
    let certificate = certificate.signed_by(&key, &authority).expect("signed");
    let key = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("it has them")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .expect("they fit");
    (config, authority.pem())
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
    /// What its programs have in their environment besides.
    pub variables: Vec<(&'static str, String)>,
}

impl Place {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        for name in ["cache", "run", "www", "home", "mnt"] {
            fs::create_dir(directory.path().join(name)).expect("room");
        }
        Self {
            directory,
            variables: Vec::new(),
        }
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
            .env_remove("SSL_CERT_FILE");
        for name in ["http_proxy", "https_proxy", "no_proxy", "all_proxy"] {
            command.env_remove(name).env_remove(name.to_uppercase());
        }
        for name in [
            "ACCESS_KEY_ID",
            "CONFIG_FILE",
            "DEFAULT_REGION",
            "ENDPOINT_URL",
            "ENDPOINT_URL_S3",
            "PROFILE",
            "REGION",
            "SECRET_ACCESS_KEY",
            "SESSION_TOKEN",
            "SHARED_CREDENTIALS_FILE",
        ] {
            command.env_remove(format!("AWS_{name}"));
        }
        command.envs(self.variables.iter().cloned());
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

/// The bytes of a file of the image.
pub fn contents(name: &str) -> Vec<u8> {
    let file = files().into_iter().find(|(of, _)| of == name);
    file.expect("one of them").1
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
