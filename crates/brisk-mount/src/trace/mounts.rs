//! What a tracer mounts and serves.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use brisk_image::{Image, Limits, OpenOptions, RootKind};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use rustix::process::{getegid, geteuid};

use super::Plan;
use crate::error::{Action, Cause, Error};
use crate::fuse::directory::ServedDirectory;
use crate::fuse::server::serve_directory;
use crate::session::{Layers, open_channel};
use crate::{FuseConnection, Owners, Recorder, Recording, ServeOptions, mount_data, serve};

/// Something that is mounted, and waits for its server. The descriptors in here must be nowhere
/// else when anything in the mount is looked at.
pub(super) struct Mounted {
    at: PathBuf,
    channel: OwnedFd,
    what: What,
}

enum What {
    Image { file: File, offset: u64 },
    Tree { root: OwnedFd },
}

/// All that is mounted.
#[derive(Default)]
pub(super) struct Mounts {
    pub(super) mounted: Vec<Mounted>,
    /// What is still to be done so that the program can write: it needs servers.
    pub(super) layers: Vec<Layers>,
}

/// Mounts all that is planned.
pub(super) fn mount_all(plan: &Plan) -> Result<Mounts, Cause> {
    // The trees are opened before anything covers them.
    let mut sources = Vec::new();
    for tree in &plan.trees {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, tree, flags, Mode::empty())
            .map_err(|e| Cause::io(format!("open {}", tree.display()), e))?;
        sources.push((tree, tree, What::Tree { root }));
    }
    if let Some(image) = &plan.image {
        let file = image
            .file
            .try_clone()
            .map_err(|e| Cause::io("hold the image", e))?;
        let offset = image.offset;
        sources.push((&image.path, &image.at, What::Image { file, offset }));
    }
    let mut mounts = Mounts::default();
    for (source, at, what) in sources {
        let on = match plan.writable {
            false => at.clone(),
            true => {
                let layers = Layers::prepare(at)?;
                let on = layers.lower();
                mounts.layers.push(layers);
                on
            }
        };
        mounts.mounted.push(Mounted {
            at: at.clone(),
            channel: mount_one(source, &on)?,
            what,
        });
    }
    Ok(mounts)
}

fn mount_one(source: &Path, at: &Path) -> Result<OwnedFd, Cause> {
    let channel = open_channel()?;
    let data = mount_data(channel.as_fd(), geteuid().as_raw(), getegid().as_raw());
    let data = CString::new(data).map_err(|e| Cause::io("mount", e))?;
    mount(
        source,
        at,
        "fuse.brisk",
        MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV,
        Some(data.as_c_str()),
    )
    .map_err(|e| match e {
        Errno::NODEV => Cause::NoFuse,
        Errno::PERM | Errno::ACCESS => Cause::MountRefused { source: e.into() },
        e => Cause::io(format!("mount on {}", at.display()), e),
    })?;
    Ok(channel)
}

impl Mounted {
    /// Serves it from threads of its own, until the mount is gone.
    pub(super) fn serve(self, recording: &Arc<Recording>, owners: Owners) -> Result<(), Error> {
        let failed = |cause| Error::new(Action::Trace, cause).with_path(&self.at);
        let kind = match self.what {
            What::Image { .. } => RootKind::Image,
            What::Tree { .. } => RootKind::Directory,
        };
        let recorder: Option<Arc<Recorder>> = recording.add(&self.at, kind);
        let options = ServeOptions {
            owners,
            recorder,
            ..ServeOptions::default()
        };
        let connection = FuseConnection::establish(self.channel, &options)?;
        let body: Box<dyn FnOnce() + Send> = match self.what {
            What::Image { file, offset } => {
                let how = OpenOptions::new().offset(offset).limits(Limits {
                    block_cache: options.block_cache,
                    ..Limits::default()
                });
                let image = Image::from_source(file, &how)
                    .map_err(|e| failed(Cause::io("read the image", std::io::Error::other(e))))?;
                // With the thread the connection ends, and so does every wait for an answer.
                Box::new(move || tell(serve(&connection, &image, &options)))
            }
            What::Tree { root } => {
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

/// A server that fails leaves the program with errors, which are the program's to report; this says
/// where they are from.
fn tell(result: Result<(), Error>) {
    if let Err(e) = result {
        eprintln!("brisk: {e}");
    }
}
