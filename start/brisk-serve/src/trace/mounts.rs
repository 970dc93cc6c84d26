//! What a tracer mounts and serves.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use brisk_image::OpenOptions;
use brisk_image::profile::RootKind;
use brisk_launch::error::{Cause, Error};
use rustix::fs::CWD;
use rustix::mount::{OpenTreeFlags, open_tree};

use super::plan::{Planned, PlannedSource, TracePlan};
use crate::action::Action;
use crate::fuse::directory::ServedDirectory;
use crate::fuse::server::serve_directory;
use crate::session::{BriefMount, Layout, OpenImage, make_places, mount_channel};
use crate::{FuseConnection, Owners, Recorder, Recording, ServeOptions, serve};

/// A mount that waits for its server. When anything in the mount is touched, no other process may have the
/// descriptors in here.
pub(super) struct TracedMount {
    /// What the profile calls its place.
    recorded_at: PathBuf,
    channel: OwnedFd,
    /// None if it ends with its namespace.
    lifeline: Option<OwnedFd>,
    what: MountSource,
}

enum MountSource {
    Image(Box<OpenImage>),
    Tree { root: OwnedFd },
}

/// Mounts everything that is planned, except the image if `brief` is its mount, and returns what is left to do when it is served.
pub(super) fn mount_all(
    plan: &TracePlan,
    mut brief: Option<BriefMount>,
) -> Result<(Vec<TracedMount>, Layout), Cause> {
    let missing = plan.served.iter().filter_map(Planned::missing);
    make_places(&missing.cloned().collect::<Vec<_>>())?;
    // The trees are opened before anything hides them.
    let mut sources = Vec::new();
    for planned in &plan.served {
        sources.push(match &planned.what {
            PlannedSource::Tree(tree) => {
                // A copy with all mounts in it, which works whatever happens to the root directory.
                let flags = OpenTreeFlags::OPEN_TREE_CLONE
                    | OpenTreeFlags::OPEN_TREE_CLOEXEC
                    | OpenTreeFlags::AT_RECURSIVE;
                let root = open_tree(CWD, tree, flags)
                    .map_err(|e| Cause::io(format!("open {}", tree.display()), e))?;
                (tree, MountSource::Tree { root })
            }
            PlannedSource::Image(image) => {
                let held = Box::new(image.try_clone()?);
                (&image.path, MountSource::Image(held))
            }
        });
    }
    let places = plan.places();
    let writable = if plan.writable { places.len() } else { 0 };
    let layout = Layout::prepare(places, plan.root, writable, &plan.binds)?;
    let mut mounted = Vec::new();
    for (index, (planned, (name, what))) in plan.served.iter().zip(sources).enumerate() {
        let (channel, lifeline) = match brief.take() {
            Some(brief) => (brief.channel, Some(brief.lifeline)),
            None => (mount_channel(name, &layout.image_place(index))?, None),
        };
        mounted.push(TracedMount {
            recorded_at: planned.recorded_at.clone(),
            channel,
            lifeline,
            what,
        });
    }
    Ok((mounted, layout))
}

impl TracedMount {
    /// Serves it from threads of its own, until the mount is gone.
    pub(super) fn serve(self, recording: &Arc<Recording>, owners: Owners) -> Result<(), Error> {
        let failed = |cause| Error::new(Action::Trace, cause).with_path(&self.recorded_at);
        let kind = match self.what {
            MountSource::Image(_) => RootKind::Image,
            MountSource::Tree { .. } => RootKind::Directory,
        };
        let recorder: Option<Arc<Recorder>> = recording.add(&self.recorded_at, kind);
        let options = ServeOptions {
            owners,
            recorder,
            ..ServeOptions::default()
        };
        let mut connection = FuseConnection::establish(self.channel, &options)?;
        if let Some(lifeline) = self.lifeline {
            connection.hold(lifeline);
        }
        let body: Box<dyn FnOnce() + Send> = match self.what {
            MountSource::Image(image) => {
                let image = image
                    .into_image(OpenOptions::new())
                    .map_err(|e| failed(Cause::io("read the image", std::io::Error::other(e))))?;
                // The connection ends with the thread, and so does every wait for an answer.
                Box::new(move || tell(serve(&connection, &image, &options)))
            }
            MountSource::Tree { root } => {
                let directory = ServedDirectory::new(root, owners);
                Box::new(move || tell(serve_directory(&connection, &directory, &options)))
            }
        };
        thread::Builder::new()
            .name("brisk-answer-0".into())
            .spawn(body)
            .map_err(|e| failed(Cause::io("start a thread", e)))?;
        Ok(())
    }
}

/// If a server fails, the program gets errors and reports those. This says where they come from.
fn tell(result: Result<(), Error>) {
    if let Err(e) = result {
        eprintln!("brisk: {e}");
    }
}
