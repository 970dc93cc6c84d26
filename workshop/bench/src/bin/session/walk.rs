//! Reads every file of a mounted image, with nothing cached.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use brisk_bench::{Bench, Timed};

use crate::application::Application;
use crate::world::{As, World, run};

const GOAL: f64 = 0.8;

pub(crate) fn measure(bench: &mut Bench, world: &World, application: &Application) -> Result<()> {
    let expected = digest(&application.tree)?;
    let walk = |kernel: bool| -> Result<Duration> {
        brisk_bench::empty_caches()?;
        let mut mount = world.brisk(As::Root, &["mount"]);
        if kernel {
            mount.arg("--kernel");
        }
        run(mount.arg(&application.image).arg(&world.mount_point))?;
        let start = Instant::now();
        let found = digest(&world.mount_point);
        let elapsed = start.elapsed();
        world.unmount()?;
        ensure!(
            found? == expected,
            "the mount holds other bytes than the tree"
        );
        Ok(elapsed)
    };
    bench.compare(
        "cold walk",
        application.name,
        "nothing",
        Timed {
            name: "kernel squashfs",
            work: Box::new(|| walk(true)),
        },
        vec![(
            Timed {
                name: "brisk mount",
                work: Box::new(|| walk(false)),
            },
            Some(GOAL),
        )],
    )
}

/// The digest of every path, type, and content, in the order of names.
fn digest(root: &Path) -> Result<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    let walk = walkdir::WalkDir::new(root).sort_by_file_name();
    for entry in walk {
        let entry = entry.with_context(|| format!("cannot walk {}", root.display()))?;
        let name = entry.path().strip_prefix(root)?;
        hasher.update(name.as_os_str().as_encoded_bytes());
        hasher.update(&[0]);
        let kind = entry.file_type();
        if kind.is_symlink() {
            let target = std::fs::read_link(entry.path())?;
            hasher.update(target.as_os_str().as_encoded_bytes());
        } else if kind.is_file() {
            let file = std::fs::File::open(entry.path())?;
            hasher.update_reader(file)?;
        }
        hasher.update(&[0]);
    }
    Ok(hasher.finalize())
}
