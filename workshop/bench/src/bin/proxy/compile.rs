//! `uv pip compile` without a cache of its own, with and without the proxy.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use brisk_bench::{Bench, Timed, Tool};
use tokio::runtime::Runtime;

use super::Setting;
use super::caches::Cache;
use super::frozen::{BITS_PER_SECOND, DELAY, Frozen, Manner};

/// How long it may take with the proxy, where it takes 1 without.
const GOAL: f64 = 0.5;

/// What is needed to compile.
pub struct Uv<'a> {
    pub program: &'a Path,
    pub requirements: &'a Path,
    /// Where the recorded pages are.
    pub frozen: &'a Path,
    /// The index that is recorded, if there are none.
    pub index: Option<&'a str>,
}

pub fn measure(
    bench: &mut Bench,
    runtime: &Runtime,
    setting: &Setting<'_>,
    uv: &Uv<'_>,
) -> Result<()> {
    let tool = Tool::find("uv", Some(uv.program), "--version", 0)?;
    let work = setting.work.join("compile");
    fs::create_dir_all(&work)?;
    if !uv.frozen.is_dir() {
        record(runtime, setting, uv, &work)?;
    }
    let frozen = Arc::new(Frozen::open(uv.frozen, None)?);
    let (answers, bytes) = frozen.size();
    let compile = |at: SocketAddr| Compile {
        uv: uv.program.to_owned(),
        requirements: uv.requirements.to_owned(),
        work: work.clone(),
        url: format!("http://{at}/simple"),
    };
    let near = runtime.block_on(frozen.serve(Manner::Near))?;
    let far = runtime.block_on(frozen.serve(Manner::Far))?;
    let stale = runtime.block_on(frozen.serve(Manner::FarAndStale))?;
    let mut proxies = Vec::new();
    for (name, upstream) in [("fresh", far), ("stale", stale)] {
        let map = format!("/simple=python:http://{upstream}/simple");
        let arguments = ["--map".to_owned(), map];
        let directory = work.join(name);
        let proxy = Cache::brisk(setting.proxy, &directory, &arguments);
        proxies.push(runtime.block_on(proxy)?);
    }
    let expected = compile(near).run()?.0;
    let pins = expected.lines().filter(|line| line.contains("==")).count();
    let lines = fs::read_to_string(uv.requirements)?;
    let lines = lines
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    ensure!(
        pins >= lines.clone().count(),
        "uv has pinned {pins} packages"
    );
    let timed = |at: SocketAddr| {
        let (compile, expected) = (compile(at), expected.clone());
        move || -> Result<Duration> {
            let (found, elapsed) = compile.run()?;
            ensure!(found == expected, "uv chose other packages");
            Ok(elapsed)
        }
    };
    // They become warm.
    for proxy in &proxies {
        timed(proxy.address)()?;
    }
    bench.keep(
        "compile",
        serde_json::json!({
            "uv": tool,
            "requirements": lines.count(),
            "pins": pins,
            "answers": answers,
            "answer_bytes": bytes,
            "answers_blake3": frozen.digest(),
            "delay_milliseconds": DELAY.as_millis(),
            "bits_per_second": BITS_PER_SECOND,
        }),
    )?;
    bench.compare(
        "compile",
        &format!("{pins} packages, 30 ms, 50 Mbit/s"),
        "everything",
        Timed {
            name: "without",
            work: Box::new(timed(far)),
        },
        vec![
            (
                Timed {
                    name: "brisk proxy",
                    work: Box::new(timed(proxies[0].address)),
                },
                Some(GOAL),
            ),
            (
                Timed {
                    name: "brisk proxy, pages asked for anew",
                    work: Box::new(timed(proxies[1].address)),
                },
                None,
            ),
            (
                Timed {
                    name: "at once",
                    work: Box::new(timed(near)),
                },
                None,
            ),
        ],
    )
}

struct Compile {
    uv: PathBuf,
    requirements: PathBuf,
    work: PathBuf,
    url: String,
}

impl Compile {
    /// Returns what uv chose, and how long it took.
    fn run(&self) -> Result<(String, Duration)> {
        let output = self.work.join("pins.txt");
        // uv would keep what a former run chose.
        fs::remove_file(&output).or_else(|e| match e.kind() {
            std::io::ErrorKind::NotFound => Ok(()),
            _ => Err(e),
        })?;
        let mut command = Command::new(&self.uv);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy().to_ascii_lowercase();
            if text.starts_with("uv_") || text.starts_with("pip_") || text.ends_with("_proxy") {
                command.env_remove(name);
            }
        }
        command
            .args(["pip", "compile", "--no-cache", "--no-config", "--no-build"])
            .args(["--no-header", "--no-annotate", "--quiet"])
            .args(["--python-version", "3.13", "--no-python-downloads"])
            .args(["--python-platform", "x86_64-manylinux_2_28"])
            .args(["--index-url", &self.url])
            .arg("--output-file")
            .args([&output, &self.requirements])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let begun = Instant::now();
        let done = command.output().context("cannot start uv")?;
        let elapsed = begun.elapsed();
        ensure!(
            done.status.success(),
            "uv ended with {}: {}",
            done.status,
            String::from_utf8_lossy(&done.stderr)
        );
        Ok((fs::read_to_string(&output)?, elapsed))
    }
}

/// Compiles once through a proxy before the real index, and keeps what uv asks for.
fn record(runtime: &Runtime, setting: &Setting<'_>, uv: &Uv<'_>, work: &Path) -> Result<()> {
    let preset = match uv.index {
        Some(url) => format!("/simple=python:{url}"),
        None => anyhow::bail!(
            "{} does not exist; --index URL says which index to record",
            uv.frozen.display()
        ),
    };
    eprintln!("compile: recording what uv asks for");
    let arguments = ["--map".to_owned(), preset];
    let directory = work.join("recorder");
    let proxy = Cache::brisk(setting.proxy, &directory, &arguments);
    let proxy = runtime.block_on(proxy)?;
    let new = uv.frozen.with_extension("new");
    let frozen = Arc::new(Frozen::open(&new, Some(proxy.address))?);
    let at = runtime.block_on(frozen.serve(Manner::Near))?;
    let compile = Compile {
        uv: uv.program.to_owned(),
        requirements: uv.requirements.to_owned(),
        work: work.to_owned(),
        url: format!("http://{at}/simple"),
    };
    compile.run()?;
    fs::rename(&new, uv.frozen)?;
    Ok(())
}
