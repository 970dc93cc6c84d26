/*!
Measures `brisk proxy`: hits against nginx, `uv pip compile` with and without it, its memory, and what a 304 costs.

Everything is on the loopback. Both caches stand before one origin, and each must have the origin's bytes before it is
measured. uv must choose the same packages each time.
*/

mod caches;
mod client;
mod compile;
mod frozen;
mod hit;
mod memory;
mod origin;
mod page;
mod process;
mod revalidation;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use brisk_bench::{Options, Tool};
use clap::{Parser, ValueEnum};

/// Measure brisk proxy: hit, page, compile, memory, 304.
#[derive(Parser)]
struct Args {
    /// The release binary of brisk-proxy
    #[arg(long, value_name = "PATH")]
    proxy: PathBuf,

    /// An older release binary of brisk-proxy, for which pages are measured in the same run
    #[arg(long, value_name = "PATH")]
    before: Option<PathBuf>,

    /// The program uv
    #[arg(long, value_name = "PATH")]
    uv: Option<PathBuf>,

    /// What uv compiles
    #[arg(
        long,
        value_name = "FILE",
        default_value = "workshop/bench/testdata/requirements.txt"
    )]
    requirements: PathBuf,

    /// Where the recorded pages are; if the directory does not exist, they are recorded first
    #[arg(long, value_name = "DIR", default_value = "target/bench/frozen")]
    frozen: PathBuf,

    /// The package index to record
    #[arg(long, value_name = "URL")]
    index: Option<String>,

    /// How long each run of hits takes
    #[arg(long, value_name = "SECONDS", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,

    /// How large the cache is whose memory is measured
    #[arg(long, value_name = "BYTES", default_value_t = 10_000_000_000)]
    fill: u64,

    /// Only these figures; may be repeated [default: all]
    #[arg(long, value_name = "FIGURE")]
    only: Vec<Figure>,

    /// What raw.json says of the circumstances
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,

    #[command(flatten)]
    options: Options,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Figure {
    /// Answers from the cache, 1 KB and 10 MB
    Hit,
    /// Answers from the cache, an index page of 2 MB, and small hits beside it
    Page,
    /// `uv pip compile`
    Compile,
    /// Private memory with 1,000 connections
    Memory,
    /// A 304 for an entry of 1 MB
    #[value(name = "304")]
    Revalidation,
}

/// What all figures use.
struct Setting<'a> {
    proxy: &'a Path,
    before: Option<&'a Path>,
    work: &'a Path,
    processors: usize,
    runs: u32,
    seconds: u64,
}

fn main() -> ExitCode {
    brisk_bench::end(run(&Args::parse()))
}

fn run(args: &Args) -> Result<()> {
    let figures = match args.only.as_slice() {
        [] => Figure::value_variants().to_vec(),
        only => only.to_vec(),
    };
    let wanted = |figure| figures.contains(&figure);
    let work = args.options.work()?;
    let proxy = Tool::find("brisk-proxy", Some(&args.proxy), "--version", 0)?;
    let mut tools = vec![proxy];
    if let Some(before) = &args.before {
        tools.push(Tool::find(
            "brisk-proxy before",
            Some(before),
            "--version",
            0,
        )?);
    }
    if wanted(Figure::Hit) || wanted(Figure::Page) {
        for (name, flag) in [("nginx", "-v"), ("wrk", "-v")] {
            tools.push(Tool::find(name, None, flag, 0)?);
        }
    }
    let processors = brisk_bench::give_processors(None)?;
    raise_descriptors()?;
    let about = serde_json::json!({
        "note": args.note,
        "seconds": args.seconds,
        "load": fs::read_to_string("/proc/loadavg")?.trim(),
        "tools": tools,
    });
    let mut bench = args.options.bench(work.path(), processors, about)?;
    let runtime = tokio::runtime::Runtime::new().context("cannot start threads")?;
    let program = args.proxy.canonicalize()?;
    let setting = Setting {
        proxy: &program,
        before: args.before.as_deref(),
        work: work.path(),
        processors,
        runs: args.options.runs,
        seconds: args.seconds,
    };
    if wanted(Figure::Hit) {
        hit::measure(&mut bench, &runtime, &setting)?;
    }
    if wanted(Figure::Page) {
        page::measure(&mut bench, &runtime, &setting)?;
    }
    if wanted(Figure::Revalidation) {
        revalidation::measure(&mut bench, &setting)?;
    }
    if wanted(Figure::Compile) {
        let uv = compile::Uv {
            program: args.uv.as_deref().context("--uv PATH is missing")?,
            requirements: &args.requirements,
            frozen: &args.frozen,
            index: args.index.as_deref(),
        };
        compile::measure(&mut bench, &runtime, &setting, &uv)?;
    }
    if wanted(Figure::Memory) {
        memory::measure(&mut bench, &runtime, &setting, args.fill)?;
    }
    println!("{}", bench.table());
    Ok(())
}

/// A thousand connections and their ends need more descriptors than a shell gives.
fn raise_descriptors() -> Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let had = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: had.maximum,
        maximum: had.maximum,
    };
    setrlimit(Resource::Nofile, raised).context("cannot raise the limit of descriptors")
}
