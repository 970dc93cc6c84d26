use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The real program, with a home of its own.
pub struct Program {
    pub address: SocketAddr,
    pub home: Arc<tempfile::TempDir>,
    child: Child,
    messages: Arc<Mutex<String>>,
}

/// A command with nothing of the surroundings of the tests but `PATH`.
pub fn command(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_brisk-proxy"));
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home)
        .env("XDG_CACHE_HOME", home.join("cache"))
        .current_dir(home);
    command
}

impl Program {
    /// Starts it, and waits until it listens.
    pub fn start(args: &[&str]) -> Self {
        Self::start_with(Arc::new(tempfile::tempdir().unwrap()), args, &[])
    }

    /// With one map.
    pub fn mapping(map: &str) -> Self {
        Self::start(&["--map", map])
    }

    /// With a home that may have been another's, and with variables.
    pub fn start_with(
        home: Arc<tempfile::TempDir>,
        args: &[&str],
        variables: &[(&str, &str)],
    ) -> Self {
        let mut command = command(home.path());
        command.args(["--listen", "127.0.0.1:0"]).args(args);
        command.envs(variables.iter().copied());
        Self::spawn(home, command)
    }

    /// Starts a command that ends up as the program.
    pub fn spawn(home: Arc<tempfile::TempDir>, command: Command) -> Self {
        Self::try_spawn(home, command).unwrap_or_else(|messages| panic!("it ended: {messages}"))
    }

    /// The same. If it ends instead of listening, this returns what it said.
    pub fn try_spawn(home: Arc<tempfile::TempDir>, mut command: Command) -> Result<Self, String> {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut messages = String::new();
        let address = loop {
            let start = messages.len();
            if stderr.read_line(&mut messages).unwrap() == 0 {
                child.wait().unwrap();
                return Err(messages);
            }
            if let Some((_, address)) = messages[start..].split_once("listening at http://") {
                break address.trim().parse().unwrap();
            }
        };
        let messages = Arc::new(Mutex::new(messages));
        let more = Arc::clone(&messages);
        std::thread::spawn(move || {
            let mut line = String::new();
            while stderr.read_line(&mut line).is_ok_and(|length| length > 0) {
                more.lock().unwrap().push_str(&line);
                line.clear();
            }
        });
        Ok(Self {
            address,
            home,
            child,
            messages,
        })
    }

    /// What it said.
    pub fn messages(&self) -> String {
        self.messages.lock().unwrap().clone()
    }

    /// Its process.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// A number of `/-/metrics`, by its name and labels.
    pub fn metric(&self, name: &str) -> Option<u64> {
        let text = super::get(self.address, "/-/metrics").text();
        let found = text
            .lines()
            .find_map(|found| found.strip_prefix(name)?.strip_prefix(' '))?;
        found.parse().ok()
    }

    /// The processes that it started.
    pub fn children(&self) -> Vec<Pid> {
        let own = self.pid().as_raw_nonzero();
        let path = PathBuf::from(format!("/proc/{own}/task/{own}/children"));
        let text = std::fs::read_to_string(path).unwrap();
        text.split_whitespace()
            .map(|pid| Pid::from_raw(pid.parse().unwrap()).unwrap())
            .collect()
    }

    /// Asks it to end.
    pub fn terminate(&self) {
        kill_process(self.pid(), Signal::TERM).unwrap();
    }

    /// Waits for its end.
    pub fn wait(&mut self, most: Duration) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(
                begun.elapsed() < most,
                "it has not ended: {}",
                self.messages()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Runs it to its end. Returns its exit code, stdout and stderr.
pub fn outcome(
    home: &Path,
    args: &[&str],
    variables: &[(&str, &str)],
) -> (Option<i32>, String, String) {
    let mut child = command(home)
        .args(args)
        .envs(variables.iter().copied())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut texts = (String::new(), String::new());
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut texts.0)
        .unwrap();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut texts.1)
        .unwrap();
    (child.wait().unwrap().code(), texts.0, texts.1)
}
