//! The web server of the other host: Debian's nginx.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// How long it may take until a connection over the line succeeds.
const STARTING: Duration = Duration::from_secs(60);

/// A running nginx. It ends when this value is dropped.
pub struct WebServer {
    process: Child,
    /// Has one line for each answer.
    answered: PathBuf,
}

/// What nginx is to do, in directories below its own. Everything may be readable for root alone, so it stays root.
const CONFIGURATION: &str = "\
user root;
daemon off;
worker_processes 1;
pid pid;
events { worker_connections 256; }
http {
    log_format answered .;
    access_log answered answered;
    sendfile on;
    tcp_nopush on;
    client_body_temp_path client_body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    server {
        listen 80;
        root shown;
    }
}
";

impl WebServer {
    /// Starts a server of this process's network that shows each directory below its name: `(name, directory)`. It
    /// keeps its own files in `place`, a directory to make.
    pub fn start(place: &Path, shown: &[(&str, &Path)]) -> Result<Self> {
        let made = || {
            fs::create_dir_all(place.join("shown"))?;
            for (name, directory) in shown {
                symlink(directory, place.join("shown").join(name))?;
            }
            fs::write(place.join("nginx.conf"), CONFIGURATION)
        };
        made().with_context(|| format!("cannot make {}", place.display()))?;
        let process = Command::new("nginx")
            .args(["-e", "messages", "-c", "nginx.conf", "-p"])
            .arg(place)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // An interrupt from the terminal reaches only the lab.
            .process_group(0)
            .spawn()
            .context("cannot start nginx, which serves the image; install nginx")?;
        Ok(Self {
            process,
            answered: place.join("answered"),
        })
    }

    /// How many requests it has answered so far.
    pub fn answered(&self) -> Result<u64> {
        let answered = fs::read(&self.answered)
            .with_context(|| format!("cannot read {}", self.answered.display()))?;
        let lines = answered.iter().filter(|byte| **byte == b'\n').count();
        Ok(u64::try_from(lines)?)
    }

    /// Waits until a client with this process's network can connect to this address.
    pub fn await_connection(&mut self, address: &SocketAddr, place: &Path) -> Result<()> {
        await_answer(&mut self.process, address).with_context(|| {
            let said = fs::read_to_string(place.join("messages")).unwrap_or_default();
            format!("nginx said: {}", said.trim().replace('\n', " / "))
        })
    }
}

/// Waits until this process, which is to listen at the address, answers there.
pub fn await_answer(process: &mut Child, address: &SocketAddr) -> Result<()> {
    let deadline = Instant::now() + STARTING;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let Err(e) = TcpStream::connect_timeout(address, left.max(Duration::from_millis(1))) else {
            return Ok(());
        };
        if process.try_wait()?.is_some() || left.is_zero() {
            bail!("nobody answers at {address}: {e}");
        }
        thread::sleep(Duration::from_millis(10));
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        // It may have ended already. Its workers end with it, or with their network.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}
