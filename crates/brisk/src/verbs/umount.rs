//! `brisk umount`: ends a mount, or a session.

use std::path::PathBuf;

use anyhow::Context;
use brisk_mount::{end_session, image_is_mounted, sessions};

use crate::answer::Answer;

/// What to end.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A session is what the runs of an image by one user share (see brisk run). Users end their own sessions and \
unmount their own mounts. Root unmounts what root has mounted, and what --kernel has. brisk unmounts only \
images.")]
pub struct Args {
    /// The directory that the image is mounted on, or the image whose sessions to end.
    path: PathBuf,

    /// Ends a session when its last program ends, and lets no run join it. Hides a mount at once, even if
    /// programs use it; the kernel lets go of the image when the last of them ends.
    #[arg(short, long)]
    lazy: bool,
}

pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let is_mounted = image_is_mounted(&args.path).context("cannot read /proc/self/mountinfo")?;
    let mut found = sessions()?;
    // What the caller sees at the path decides, not what programs of a session see there.
    found.retain(|session| match is_mounted {
        true => session.is_about_mount(&args.path),
        false => session.is_about(&args.path),
    });
    if found.is_empty() {
        brisk_mount::unmount(&args.path, args.lazy)?;
    }
    for session in found {
        end_session(&session.key, args.lazy)?;
    }
    Ok(Answer::Yes)
}
