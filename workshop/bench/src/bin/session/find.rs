//! Runs `find` over 100,000 files, with everything cached.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use brisk_bench::{Bench, Timed};

use crate::world::{As, World, run};

const DIRECTORIES: usize = 1000;
const FILES_PER_DIRECTORY: usize = 100;
const GOAL: f64 = 1.2;

pub(crate) fn measure(bench: &mut Bench, world: &World) -> Result<()> {
    let tree = world.path("many");
    for directory in 0..DIRECTORIES {
        let dir = tree.join(format!("directory-{directory}"));
        fs::create_dir_all(&dir)?;
        for file in 0..FILES_PER_DIRECTORY {
            fs::write(dir.join(format!("file-{file}")), "contents")?;
        }
    }
    let image = world.pack(&tree, "many.img")?;
    run(world
        .brisk(As::Root, &["mount"])
        .arg(&image)
        .arg(&world.mount_point))?;
    let mut result = Ok(());
    // Names alone need no attributes, but -size needs those of every file.
    for (subject, test) in [("names", &[][..]), ("names and sizes", &["-size", "+0"])] {
        let find = |at: &Path| find(at, test);
        // Runs each once first, so that names and attributes are cached.
        result = find(&tree)
            .and_then(|_| find(&world.mount_point))
            .and_then(|_| {
                bench.compare(
                    "find over 100,000 files",
                    subject,
                    "everything, by a find before",
                    Timed {
                        name: "ext4",
                        work: Box::new(|| find(&tree)),
                    },
                    vec![(
                        Timed {
                            name: "brisk mount",
                            work: Box::new(|| find(&world.mount_point)),
                        },
                        Some(GOAL),
                    )],
                )
            });
        if result.is_err() {
            break;
        }
    }
    world.unmount()?;
    result
}

fn find(at: &Path, test: &[&str]) -> Result<Duration> {
    let mut command = Command::new("find");
    command
        .arg(at)
        .args(["-type", "f"])
        .args(test)
        .args(["-printf", "."])
        .stdin(Stdio::null());
    let start = Instant::now();
    let output = command.output().context("cannot start find")?;
    let elapsed = start.elapsed();
    ensure!(
        output.status.success() && output.stdout.len() == DIRECTORIES * FILES_PER_DIRECTORY,
        "find in {} ended with {} and found {} files",
        at.display(),
        output.status,
        output.stdout.len()
    );
    Ok(elapsed)
}
