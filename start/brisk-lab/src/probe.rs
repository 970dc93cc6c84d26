//! Finds out whether a format can be measured here, by making and mounting a small image.

use std::fs::{self, File};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use brisk_image::profile::{Named, PAGE, ProfileBuilder, RootKind};

use super::contender::Start;
use super::format::Format;
use super::rival::{Order, Rival};
use super::stage::Stage;
use super::undo::Undo;

/// The device through which the kernel asks a FUSE server.
const FUSE: &str = "/dev/fuse";

/// Makes a small image as `format` does, mounts it and reads it. Returns the reason if that fails.
pub fn reason_against(format: &Format, stage: &mut Stage, undo: &mut Undo) -> Option<String> {
    if format.is_served()
        && let Err(e) = File::options().read(true).write(true).open(FUSE)
    {
        return Some(format!(
            "brisk serves and records through FUSE, and {FUSE} cannot be opened: {e}"
        ));
    }
    let rival = format.rival()?;
    let tried = try_it(format, rival, stage, undo);
    // A failure to unmount shows again when the format is measured. What stays is removed with everything
    // else.
    stage.tear_down(undo).ok();
    fs::remove_dir_all(stage.path("probe")).ok();
    tried.err().map(|e| format!("{e:#}"))
}

fn try_it(format: &Format, rival: Rival, stage: &mut Stage, undo: &mut Undo) -> Result<()> {
    let directory = stage.path("probe");
    let tree = directory.join("tree");
    // Text, so that the codec has something to compress.
    let text = "a line that comes again\n".repeat(20_000);
    let file = tree.join("file");
    let made = fs::create_dir_all(&tree).and_then(|()| fs::write(&file, &text));
    made.with_context(|| format!("cannot write {}", file.display()))?;
    let order = match rival {
        Rival::SquashfsSorted => {
            let builder = ProfileBuilder::new();
            let root = builder.add_root(&tree, RootKind::Directory);
            builder.range(root, 1, 0, PAGE, Duration::ZERO);
            let named = |_, _| Some(Named::new("file", text.len() as u64));
            let recorded = builder.finish(Vec::new(), None, named)?;
            Some(Order::write(&recorded.profile, &tree, &directory)?)
        }
        _ => None,
    };
    let image = directory.join("image");
    rival.make(&mut rival.command(&tree, &image, order.as_ref())?, undo)?;
    let start = match format {
        Format::Kernel(rival) | Format::KernelReplayed(rival) => Start::Kernel {
            image,
            filesystem: rival.filesystem(),
        },
        Format::Squashfuse(by) => Start::Squashfuse { image, by: *by },
        // brisk reads it itself.
        _ => return Ok(()),
    };
    let mounted = stage.mount_image(&start, undo)?;
    let found = fs::read(mounted.join("file")).context("cannot read a file of a mounted image")?;
    ensure!(
        found == text.as_bytes(),
        "a file of a mounted image has other contents"
    );
    Ok(())
}
