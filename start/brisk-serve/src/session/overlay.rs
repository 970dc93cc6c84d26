//! A layer in memory over an image, so that programs can write there.

use std::ffi::CString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown};
use std::path::{Path, PathBuf};

use brisk_launch::error::Cause;
use brisk_launch::open::open_directory;
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use rustix::process::fchdir;

use super::lasting_layer::LastingLayer;
use crate::namespace::NamespaceKind;

/// Directories of the layers. Their names need no escapes in the options of an overlay.
const LOWER: &str = "lower";
const UPPER: &str = "upper";
const WORK: &str = "work";

/// A file system in memory on the image's place, with a directory for each layer. The overlay of the layers
/// is then mounted on top of it.
pub(crate) struct Layers {
    place: PathBuf,
    memory: OwnedFd,
    /// Keeps what is written, in place of the memory.
    lasting: Option<LastingLayer>,
}

/// What is written over an image.
pub(super) enum Upper<'a> {
    /// Nothing may be written.
    None,
    /// In memory: the names of the layer and of the kernel's own directory.
    InMemory(&'a str, &'a str),
    Lasting(&'a LastingLayer),
}

impl Layers {
    pub(crate) fn prepare(place: &Path) -> Result<Self, Cause> {
        let memory = mount_memory(place)?;
        for name in [LOWER, UPPER, WORK] {
            make_directory(&place.join(name))?;
        }
        Ok(Self {
            place: place.to_owned(),
            memory,
            lasting: None,
        })
    }

    /// Keeps what is written in this layer.
    pub(super) fn keep_in(&mut self, layer: Option<LastingLayer>) {
        self.lasting = layer;
    }

    /// Where to mount the image.
    pub(crate) fn lower(&self) -> PathBuf {
        self.place.join(LOWER)
    }

    /// Mounts the overlay. The image's server must be running. Changes the working directory of the process.
    pub(crate) fn cover(mut self, entry: NamespaceKind) -> Result<(), Cause> {
        let lower = self.lower();
        let upper = match &mut self.lasting {
            Some(layer) => {
                layer.prepare(&lower)?;
                Upper::Lasting(layer)
            }
            None => {
                copy_owner_and_mode(&lower, &self.place.join(UPPER))?;
                Upper::InMemory(UPPER, WORK)
            }
        };
        fchdir(&self.memory).map_err(|e| Cause::io("enter the layers", e))?;
        mount_overlay(Path::new("."), LOWER, &upper, entry)
    }
}

/// Mounts a file system in memory on `place`, and returns its root.
pub(super) fn mount_memory(place: &Path) -> Result<OwnedFd, Cause> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("brisk", place, "tmpfs", flags, Some(c"mode=755"))
        .map_err(|e| Cause::io("mount a file system in memory", e))?;
    open_directory(place)
}

pub(super) fn make_directory(path: &Path) -> Result<(), Cause> {
    DirBuilder::new()
        .mode(0o755)
        .create(path)
        .map_err(|e| Cause::io(format!("make {}", path.display()), e))
}

/// A merged directory shows the owner and mode of the upper one. An owner that the user namespace does not have cannot be
/// copied: then the user is the owner.
pub(super) fn copy_owner_and_mode(from: &Path, to: &Path) -> Result<(), Cause> {
    let copy = || {
        let metadata = fs::metadata(from)?;
        match chown(to, Some(metadata.uid()), Some(metadata.gid())) {
            Err(e) if e.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {}
            copied => copied?,
        }
        fs::set_permissions(to, metadata.permissions())
    };
    copy().map_err(|e| Cause::io(format!("make {} like the image's", to.display()), e))
}

/// Mounts an overlay on `place`. The names of the layers are relative to the working directory, and need no
/// escapes.
pub(super) fn mount_overlay(
    place: &Path,
    lower: &str,
    upper: &Upper<'_>,
    entry: NamespaceKind,
) -> Result<(), Cause> {
    let mut options = format!("lowerdir={lower}");
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
    match upper {
        Upper::InMemory(upper, work) => options += &format!(",upperdir={upper},workdir={work}"),
        Upper::Lasting(layer) => options += &layer.options(),
        Upper::None => flags |= MountFlags::RDONLY,
    }
    // Lets the overlay use `user.` attributes for itself. Only root may use its usual ones.
    if entry == NamespaceKind::UserNamespace && !matches!(upper, Upper::Lasting(_)) {
        options += ",userxattr";
    }
    let options = CString::new(options).map_err(|e| Cause::io("name the layers", e))?;
    mount("brisk", place, "overlay", flags, Some(options.as_c_str())).map_err(|e| match upper {
        Upper::Lasting(layer) => layer.failure(e.into()),
        _ => Cause::unsupported(
            "the system could not mount an overlay, which a writable image and a root directory need; use Linux 5.11 or later, \
             load it with modprobe overlay, or start without them",
        )
        .because(io::Error::from(e)),
    })
}
