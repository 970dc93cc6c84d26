//! What memory the machine has in use while eight programs are loaded.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use brisk_bench::Bench;

use crate::application::Application;
use crate::launch::AT_ONCE;
use crate::page_cache;
use crate::world::{As, World};

const GOAL: f64 = 1.15;

/// Everything counts: the programs' own memory, the page cache of the files, of the image and of
/// the mount, the server, and what the kernel keeps of inodes and entries.
pub(crate) fn measure(
    bench: &mut Bench,
    world: &World,
    application: &Application,
    runs: u16,
) -> Result<()> {
    let waiting = application
        .waiting
        .as_deref()
        .context("the program cannot wait")?;
    world.furnish(&application.tree)?;
    let (mut directory, mut brisk) = (Vec::new(), Vec::new());
    for _ in 0..runs.min(5) {
        directory.push(in_use(world, &|| {
            world.chroot(As::Root, &application.tree, waiting)
        })?);
        brisk.push(in_use(world, &|| {
            world.brisk_run(As::Root, &application.image, waiting)
        })?);
        world.end_sessions(As::Root, &application.image)?;
    }
    world.unfurnish(&application.tree)?;
    bench.compare_bytes(
        "memory of eight programs",
        application.name,
        ("directory", median(directory)),
        ("brisk run", median(brisk)),
        Some(GOAL),
    )
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values[values.len() / 2]
}

/// Bytes of memory that eight programs, all loaded, keep from other uses.
fn in_use(world: &World, command: &dyn Fn() -> Command) -> Result<u64> {
    world.clear_scratch(As::Root)?;
    page_cache::drop_all()?;
    let before = free()?;
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
    let after = free()?;
    for mut program in programs {
        drop(program.stdin.take());
        let status = program.wait()?;
        ensure!(status.success(), "a program ended with {status}");
    }
    Ok(before.saturating_sub(after))
}

/// `MemFree`: memory that nothing uses, not even a cache.
fn free() -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let kib: u64 = text
        .lines()
        .find_map(|line| line.strip_prefix("MemFree:"))
        .and_then(|rest| rest.trim().strip_suffix(" kB"))
        .and_then(|number| number.parse().ok())
        .context("/proc/meminfo has no MemFree")?;
    Ok(kib * 1024)
}
