//! `pyindex best -r` beside `uv pip compile --no-deps`, as whole processes, warm: both find the best version of each
//! requirement in what they have stored of an index.
//!
//! Both caches are filled first, from the index that `--index-url` names. Then both run with `--offline`, in a random order in
//! each repetition. A run counts only if it names the same versions as the first run of the other.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use brisk_bench::{Options, Timed, Tool, bytes_on_disk};
use clap::Parser;

#[derive(Debug, Parser)]
struct Args {
    /// The requirements.
    #[arg(long, default_value = "workshop/bench/testdata/index-requirements.txt")]
    requirements: PathBuf,

    /// The index, which is asked once to fill both caches.
    #[arg(long, env = "PIP_INDEX_URL")]
    index_url: String,

    /// The release build.
    #[arg(long, default_value = "target/release/pyindex")]
    pyindex: PathBuf,

    /// uv. By default the one on PATH.
    #[arg(long)]
    uv: Option<PathBuf>,

    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    brisk_bench::end(run(&Args::parse()))
}

fn run(args: &Args) -> Result<()> {
    let work = args.options.work()?;
    let pyindex = Tool::find("pyindex", Some(&args.pyindex), "--version", 0)?;
    let uv = Tool::find("uv", args.uv.as_deref(), "--version", 0)?;
    let (ours, theirs) = (
        work.path().join("pyindex-cache"),
        work.path().join("uv-cache"),
    );
    let (said_by_us, said_by_uv) = (work.path().join("pyindex.txt"), work.path().join("uv.txt"));
    let text = |path: &Path| {
        path.to_str()
            .map(str::to_owned)
            .context("a path that is no text")
    };
    let requirements = text(&args.requirements)?;
    let our_args = |offline: bool| -> Result<Vec<String>> {
        let mut all = [
            "best",
            "-r",
            &requirements,
            "--python",
            "3.12",
            "--platform",
            "manylinux_2_28_x86_64",
        ]
        .map(str::to_owned)
        .to_vec();
        all.extend(["--index-url".to_owned(), args.index_url.clone()]);
        all.extend(["--cache".to_owned(), text(&ours)?]);
        all.extend(offline.then(|| "--offline".to_owned()));
        Ok(all)
    };
    let uv_args = |offline: bool| -> Result<Vec<String>> {
        let mut all = [
            "pip",
            "compile",
            "--no-deps",
            "--no-annotate",
            "--no-header",
            "--quiet",
            "--no-config",
            &requirements,
            "--python-version",
            "3.12",
            "--python-platform",
            "x86_64-manylinux_2_28",
        ]
        .map(str::to_owned)
        .to_vec();
        all.extend(["--default-index".to_owned(), args.index_url.clone()]);
        all.extend(["--cache-dir".to_owned(), text(&theirs)?]);
        all.extend(offline.then(|| "--offline".to_owned()));
        Ok(all)
    };
    pyindex.time(&our_args(false)?, &said_by_us)?;
    uv.time(&uv_args(false)?, &said_by_uv)?;
    let (found, expected) = (versions(&said_by_us)?, versions(&said_by_uv)?);
    ensure!(expected.len() > 100, "uv names {} versions", expected.len());
    for (name, version) in &expected {
        let ours = found.get(name);
        ensure!(
            ours == Some(version),
            "{name}: uv finds {version}, and pyindex {ours:?}"
        );
    }

    let about = serde_json::json!({
        "tools": [&pyindex, &uv],
        "requirements": expected.len(),
        "state": "warm: both caches were filled before, and both tools run with --offline",
    });
    let processors = brisk_bench::give_processors(None)?;
    let mut bench = args.options.bench(work.path(), processors, about)?;
    let peer = Timed {
        name: "uv",
        work: Box::new(|| {
            let elapsed = uv.time(&uv_args(true)?, &said_by_uv)?;
            ensure!(
                versions(&said_by_uv)? == expected,
                "uv names other versions than before"
            );
            Ok(elapsed)
        }),
    };
    let contender = Timed {
        name: "pyindex",
        work: Box::new(|| {
            let elapsed = pyindex.time(&our_args(true)?, &said_by_us)?;
            ensure!(
                versions(&said_by_us)? == found,
                "pyindex names other versions than before"
            );
            Ok(elapsed)
        }),
    };
    let subject = format!("{} requirements", expected.len());
    bench.compare("best", &subject, "warm", peer, vec![(contender, Some(0.3))])?;
    let stored = fs::read_dir(&theirs)?
        .map(|entry| Ok(entry?.path()))
        .filter(|path: &Result<PathBuf>| {
            let name = path
                .as_ref()
                .ok()
                .and_then(|path| path.file_name()?.to_str());
            name.is_some_and(|name| name.starts_with("simple-"))
        })
        .collect::<Result<Vec<_>>>()?;
    ensure!(
        !stored.is_empty(),
        "uv has no directory of index pages in its cache"
    );
    let theirs = stored
        .iter()
        .map(|path| bytes_on_disk(path))
        .sum::<Result<u64>>()?;
    let ours = bytes_on_disk(&ours.join("pages"))?;
    bench.compare_bytes(
        "stored",
        &subject,
        ("uv", theirs),
        ("pyindex", ours),
        Some(0.8),
    )?;
    println!("{}", bench.table());
    Ok(())
}

/// What a tool has printed: versions by name.
fn versions(file: &Path) -> Result<BTreeMap<String, String>> {
    let text = fs::read_to_string(file)?;
    let lines = text
        .lines()
        .filter_map(|line| line.split_ascii_whitespace().next());
    Ok(lines
        .filter_map(|pair| pair.split_once("=="))
        .map(|(name, version)| (name.to_owned(), version.to_owned()))
        .collect())
}
