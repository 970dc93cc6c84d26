//! A program to measure.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;

/// A program to measure, and what identifies it.
#[derive(Debug, Clone, Serialize)]
pub struct Tool {
    /// Its name in runs and tables.
    pub name: &'static str,
    /// The first line that it prints about its version.
    pub version: String,
    /// The digest of its file.
    pub blake3: String,
    #[serde(skip)]
    path: PathBuf,
    #[serde(skip)]
    source_date_epoch: i64,
}

impl Tool {
    /// The program `name`, at `path` or else on `PATH`. It must answer `version_flag`.
    ///
    /// It runs with `SOURCE_DATE_EPOCH`. So a tool that can write the same image twice writes the same bytes
    /// twice.
    pub fn find(
        name: &'static str,
        path: Option<&Path>,
        version_flag: &str,
        source_date_epoch: i64,
    ) -> Result<Self> {
        let path = match path {
            Some(path) => path
                .canonicalize()
                .with_context(|| format!("cannot find {name} at {}", path.display()))?,
            None => on_path(name)?,
        };
        let output = Command::new(&path)
            .arg(version_flag)
            .output()
            .with_context(|| format!("cannot start {}", path.display()))?;
        // Releases of squashfs-tools differ in the exit code of -version.
        // Some programs say their version on stderr.
        let text = match output.stdout.is_empty() {
            true => String::from_utf8_lossy(&output.stderr),
            false => String::from_utf8_lossy(&output.stdout),
        };
        let version = text.lines().next().unwrap_or("").trim().to_owned();
        ensure!(
            !version.is_empty(),
            "{} {version_flag} says nothing",
            path.display()
        );
        let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Self {
            name,
            version,
            blake3: blake3::hash(&bytes).to_hex().to_string(),
            path,
            source_date_epoch,
        })
    }

    /// Runs the program with its standard output in `stdout`, and returns the time from before its start to
    /// its end.
    ///
    /// The output goes to a file. The reader of a pipe would use a processor, and a program can recognise
    /// `/dev/null` and do less for it.
    pub fn time<A: AsRef<OsStr>>(&self, args: &[A], stdout: &Path) -> Result<Duration> {
        let output =
            File::create(stdout).with_context(|| format!("cannot create {}", stdout.display()))?;
        let mut stderr = tempfile::tempfile().context("cannot create a file for messages")?;
        let mut command = Command::new(&self.path);
        command
            .args(args)
            .env("SOURCE_DATE_EPOCH", self.source_date_epoch.to_string())
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(stderr.try_clone()?);
        let start = Instant::now();
        let status = command
            .status()
            .with_context(|| format!("cannot start {}", self.path.display()))?;
        let elapsed = start.elapsed();
        if !status.success() {
            let mut said = String::new();
            std::io::Seek::rewind(&mut stderr)?;
            std::io::Read::read_to_string(&mut stderr, &mut said)?;
            bail!("{command:?} ended with {status}: {}", said.trim());
        }
        Ok(elapsed)
    }
}

fn on_path(name: &str) -> Result<PathBuf> {
    std::env::var_os("PATH")
        .iter()
        .flat_map(std::env::split_paths)
        .map(|dir| dir.join(name))
        .find(|path| path.is_file())
        .with_context(|| format!("cannot find {name} on PATH; install it"))
}
