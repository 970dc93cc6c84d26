/*!
Measures `brisk run` and `brisk mount` against the plain directory and against the kernel's SquashFS.

It launches the applications of `workshop/lab/tree`. Each launch must print the application's text, a walk must find every byte
of the tree, and a listing every name. The benchmark has a private mount namespace, so the rest of the system does not
see its mounts.
*/

mod application;
mod find;
mod launch;
mod memory;
mod page_cache;
mod walk;
mod world;

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use brisk_bench::{Options, Tool};
use clap::{Parser, ValueEnum};

use application::Application;
use page_cache::ReadAhead;
use world::World;

/// Measure sessions of brisk: warm, user, cold, eight, memory, walk, find.
#[derive(Parser)]
struct Args {
    /// The tree that `workshop/lab/tree python` makes
    #[arg(long, value_name = "DIR")]
    python: Option<PathBuf>,

    /// The tree that `workshop/lab/tree chromium` makes
    #[arg(long, value_name = "DIR")]
    chromium: Option<PathBuf>,

    /// The release binary of brisk
    #[arg(long, value_name = "PATH")]
    brisk: PathBuf,

    /// Only these figures; may be repeated [default: all]
    #[arg(long, value_name = "FIGURE")]
    only: Vec<Figure>,

    #[command(flatten)]
    options: Options,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Figure {
    /// A launch that joins a session, everything cached
    Warm,
    /// The same as an ordinary user, beside root
    User,
    /// A launch with nothing cached and no session
    Cold,
    /// Eight launches at once, everything cached
    Eight,
    /// Memory in use while eight programs are loaded
    Memory,
    /// Reading every file, with nothing cached
    Walk,
    /// `find` over 100,000 files, everything cached
    Find,
}

/// Set in the process that has a mount namespace of its own.
const INSIDE: &str = "BRISK_BENCH_NAMESPACE";

fn main() -> ExitCode {
    brisk_bench::end(run(&Args::parse()))
}

fn run(args: &Args) -> Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "this needs root, to mount, to empty the page cache and to become an ordinary user"
    );
    if std::env::var_os(INSIDE).is_none() {
        let failed = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "--"])
            .arg(std::env::current_exe()?)
            .args(std::env::args_os().skip(1))
            .env(INSIDE, "1")
            .exec();
        return Err(failed).context("cannot enter a mount namespace by unshare");
    }
    let figures = match args.only.as_slice() {
        [] => Figure::value_variants().to_vec(),
        only => only.to_vec(),
    };
    let wanted = |figure| figures.contains(&figure);

    let work = args.options.work()?;
    let now = jiff::Timestamp::now();
    let brisk = Tool::find("brisk", Some(&args.brisk), "--version", now.as_second())?;
    let world = World::new(&args.brisk, work.path())?;
    let processors = brisk_bench::give_processors(None)?;

    let mut applications = Vec::new();
    for (tree, make) in [
        (&args.python, Application::python as fn(_, _) -> _),
        (&args.chromium, Application::chromium),
    ] {
        if let Some(tree) = tree {
            applications.push(make(&world, tree)?);
        }
    }
    ensure!(
        !applications.is_empty() || figures == [Figure::Find],
        "no tree to measure; add --python DIR or --chromium DIR, made by workshop/lab/tree"
    );
    let read_ahead = ReadAhead::set(128)?;
    let about = serde_json::json!({
        "tools": [&brisk],
        "read_ahead_kib": read_ahead.kib(),
        "trees": applications.iter().map(Application::describe).collect::<Vec<_>>(),
    });
    let mut bench = args.options.bench(work.path(), processors, about)?;

    for application in &applications {
        if wanted(Figure::Warm) {
            launch::warm(&mut bench, &world, application)?;
        }
        if wanted(Figure::User) {
            launch::user(&mut bench, &world, application)?;
        }
        if wanted(Figure::Cold) {
            launch::cold(&mut bench, &world, application)?;
        }
        if wanted(Figure::Walk) {
            walk::measure(&mut bench, &world, application)?;
        }
        if application.name == "python" {
            if wanted(Figure::Eight) {
                launch::eight(&mut bench, &world, application)?;
            }
            if wanted(Figure::Memory) {
                memory::measure(&mut bench, &world, application, args.options.runs)?;
            }
        }
    }
    if wanted(Figure::Find) {
        find::measure(&mut bench, &world)?;
    }
    println!("{}", bench.table());
    Ok(())
}
