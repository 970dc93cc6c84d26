//! How much memory the machine uses while eight programs are loaded.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use brisk_bench::Bench;

use crate::application::Application;
use crate::launch::AT_ONCE;
use crate::world::{As, World};

const GOAL: f64 = 1.15;

/// Counts everything: the programs' own memory, the page cache of the files, of the image and of the mount,
/// the server, and what the kernel keeps of inodes and directory entries.
pub(crate) fn measure(
    bench: &mut Bench,
    world: &World,
    application: &Application,
    runs: u32,
) -> Result<()> {
    let waiting = application
        .waiting
        .as_deref()
        .context("the program cannot wait")?;
    world.furnish(&application.tree)?;
    const DIRECTORY: &str = "directory";
    let result = bench.compare_measured_bytes(
        "memory of eight programs",
        application.name,
        [DIRECTORY, "brisk run"],
        runs.min(5),
        Some(GOAL),
        |who| match who {
            DIRECTORY => in_use(world, &|| {
                world.chroot(As::Root, &application.tree, waiting)
            }),
            _ => {
                let bytes = in_use(world, &|| {
                    world.brisk_run(As::Root, &application.image, waiting)
                });
                world.end_sessions(As::Root, &application.image)?;
                bytes
            }
        },
    );
    world.unfurnish(&application.tree)?;
    result
}

/// How many bytes of memory eight loaded programs keep from other uses.
fn in_use(world: &World, command: &dyn Fn() -> Command) -> Result<u64> {
    world.clear_scratch(As::Root)?;
    brisk_bench::empty_caches()?;
    let before = used()?;
    let mut programs = (0..AT_ONCE)
        .map(|_| {
            command()
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .context("cannot start a program")
        })
        .collect::<Result<Vec<Child>>>()?;
    for program in &mut programs {
        let stdout = program.stdout.as_mut().context("a pipe was asked for")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        ensure!(line == "ready\n", "a program says {line:?}");
    }
    let after = used()?;
    for mut program in programs {
        drop(program.stdin.take());
        let status = program.wait()?;
        ensure!(status.success(), "a program ended with {status}");
    }
    Ok(after.saturating_sub(before))
}

/// The fields of `/proc/meminfo` for memory that is in use: by programs, by the page cache, and by the kernel
/// for both.
///
/// `MemFree` does not show that. The kernel adds freed memory to it late: between two looks it fell by 470 MB
/// while these fields rose by 750.
const USES: [&str; 7] = [
    "AnonPages",
    "Cached",
    "Buffers",
    "Slab",
    "PageTables",
    "KernelStack",
    "Percpu",
];

/// Bytes in use. A page that several programs map counts once.
fn used() -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let kib = |name: &&str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .and_then(|rest| rest.trim().strip_suffix(" kB"))
            .and_then(|number| number.parse::<u64>().ok())
            .with_context(|| format!("/proc/meminfo has no {name}"))
    };
    let uses = USES.iter().map(kib).sum::<Result<u64>>()?;
    Ok(uses * 1024)
}
