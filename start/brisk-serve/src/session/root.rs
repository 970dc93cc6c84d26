//! An image as the program's root directory.
//!
//! The root is an overlay: the image, and above it a layer in memory with the mount points that the image
//! lacks. Everything that a program asks for goes through the overlay. That also saves requests: the overlay
//! itself answers whether a file is a terminal, which the kernel would ask a FUSE server each time, and
//! Python asks that for every file that it opens. The process enters the root with `pivot_root`. In a root
//! changed by `chroot`, the kernel allows no user namespaces, which the sandboxes of browsers need.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use brisk_launch::error::Cause;
use rustix::fs::CWD;
use rustix::mount::{MoveMountFlags, UnmountFlags, mount_bind, move_mount, unmount};
use rustix::process::{chdir, pivot_root};

use super::bound_tree::{BoundTree, no_bind_target};
use super::lasting_layer::LastingLayer;
use super::overlay::{Upper, copy_owner_and_mode, make_directory, mount_memory, mount_overlay};
use crate::namespace::NamespaceKind;

/// A directory that every system has, to build the root on. Its contents are hidden meanwhile.
const SITE: &str = "/tmp";

/// Where the images themselves are, also in the root. Connections are aborted by this path.
const IMAGES: &str = ".brisk";

/// Directories of the system to show, if it has them: devices, the kernel's own, and those that hold things
/// outside of the program, such as sockets (X11, D-Bus, Wayland) and files to work on.
const DIRECTORIES: [&str; 7] = ["/proc", "/sys", "/dev", "/run", "/tmp", "/home", "/root"];

/// Files of the system to show: for the network, the users, the machine and the time zone.
const FILES: [&str; 6] = [
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/passwd",
    "/etc/group",
    "/etc/machine-id",
    LOCAL_TIME,
];

/// If this file is missing, the C library uses UTC.
const LOCAL_TIME: &str = "/etc/localtime";

/// How many symbolic links to follow in one name, as in the kernel.
const LINKS: usize = 40;

pub(super) struct RootDirectory {
    system: Vec<BoundTree>,
    writable: bool,
    /// Keeps what is written, in place of the memory.
    lasting: Option<LastingLayer>,
}

/// The layer above the image.
struct UpperLayer {
    image: PathBuf,
    layer: PathBuf,
}

impl RootDirectory {
    /// Prepares to mount this many images.
    pub(super) fn prepare(images: usize, writable: bool) -> Result<Self, Cause> {
        // Opened before one of them is hidden.
        let system = of_the_system(DIRECTORIES);
        mount_memory(Path::new(SITE))?;
        let site = Path::new(SITE);
        for name in ["root", "layer", "upper", "work", IMAGES] {
            make_directory(&site.join(name))?;
        }
        let root = Self {
            system,
            writable,
            lasting: None,
        };
        for index in 0..images {
            make_directory(&root.image_place(index))?;
        }
        Ok(root)
    }

    /// Keeps what is written in this layer.
    pub(super) fn keep_in(&mut self, layer: Option<LastingLayer>) {
        self.lasting = layer;
    }

    pub(super) fn image_place(&self, index: usize) -> PathBuf {
        Path::new(SITE).join(IMAGES).join(index.to_string())
    }

    /// Builds the root and makes it the process's root. `places` are those of the images; the first one is
    /// the root.
    pub(super) fn enter(
        mut self,
        namespace: NamespaceKind,
        places: &[PathBuf],
        binds: &[BoundTree],
    ) -> Result<(), Cause> {
        let site = Path::new(SITE);
        let root = site.join("root");
        let upper_layer = UpperLayer {
            image: self.image_place(0),
            layer: site.join("layer"),
        };
        copy_owner_and_mode(&upper_layer.image, &upper_layer.layer)?;
        // The files may be far from each other on the disk. While they are looked up, the image is filled.
        // Nothing that is hidden by now contains them.
        let spared = is_utc(Path::new(LOCAL_TIME)) && !upper_layer.has(Path::new(LOCAL_TIME));
        let files = FILES
            .into_iter()
            .filter(|name| !spared || *name != LOCAL_TIME);
        self.system.extend(of_the_system(files));
        let mut mounts = Vec::new();
        for tree in &self.system {
            // If the image has something else at this path, that counts.
            if let Ok(place) =
                upper_layer.provide(&tree.target, |path| tree.make(path), tree.is_dir)
                && !mounts
                    .iter()
                    .any(|(_, other): &(_, PathBuf)| place.starts_with(other))
            {
                mounts.push((tree, place));
            }
        }
        let hidden: Vec<_> = mounts.iter().map(|(_, place)| place.clone()).collect();
        let below_other = |place: &Path| hidden.iter().any(|other| place.starts_with(other));
        let mut images = Vec::new();
        // Places of images that are inside of a directory of the system.
        let mut later = Vec::new();
        for (index, place) in places.iter().enumerate() {
            let own = Path::new("/").join(IMAGES).join(index.to_string());
            let mut at = None;
            if index > 0 {
                let refused = |source| no_bind_target(place, source);
                let name = upper_layer.resolve(place).map_err(refused)?;
                if below_other(&name) {
                    later.push((index, place, name));
                } else {
                    let make = |path: &Path| fs::create_dir_all(path);
                    at = Some(upper_layer.provide(place, make, true).map_err(refused)?);
                }
            }
            let own = upper_layer
                .provide(&own, |path| fs::create_dir_all(path), true)
                .map_err(|e| Cause::io("make room for the images", e))?;
            images.push((index, own, at));
        }
        let system = mounts.len();
        for bind in binds {
            let refused = |source| no_bind_target(&bind.target, source);
            let place = upper_layer.resolve(&bind.target).map_err(refused)?;
            if !below_other(&place) {
                upper_layer
                    .provide(&bind.target, |path| bind.make(path), bind.is_dir)
                    .map_err(refused)?;
            }
            mounts.push((bind, place));
        }

        chdir(site).map_err(|e| Cause::io("enter the layers", e))?;
        let lower = format!("layer:{IMAGES}/0");
        let upper = match &mut self.lasting {
            Some(layer) => {
                layer.prepare(&upper_layer.image)?;
                Upper::Lasting(layer)
            }
            None if self.writable => {
                copy_owner_and_mode(&upper_layer.image, &site.join("upper"))?;
                Upper::InMemory("upper", "work")
            }
            None => Upper::None,
        };
        mount_overlay(&root, &lower, &upper, namespace)?;
        for (index, own, at) in images {
            let from = self.image_place(index);
            if let Some(at) = at {
                mount_bind(&from, root.join(at))
                    .map_err(|e| Cause::io("bind an image to its place", e))?;
            }
            move_mount(CWD, &from, CWD, root.join(own), MoveMountFlags::empty())
                .map_err(|e| Cause::io("move an image into the root", e))?;
        }
        let binds = mounts.split_off(system);
        for (tree, place) in mounts {
            tree.mount(&root.join(place))?;
        }
        for (index, place, name) in later {
            let own = root.join(IMAGES).join(index.to_string());
            mount_bind(own, root.join(name)).map_err(|e| no_bind_target(place, e.into()))?;
        }
        for (tree, place) in binds {
            tree.mount(&root.join(place))?;
        }
        let enter = || {
            chdir(&root)?;
            // Puts the old root on top of the new one, and then unmounts it.
            pivot_root(".", ".")?;
            unmount(".", UnmountFlags::DETACH)?;
            chdir("/")
        };
        enter().map_err(|e| Cause::io("make the image the root directory", e))
    }
}

/// What the system lacks or hides is left out.
fn of_the_system<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<BoundTree> {
    let names = names.into_iter().map(Path::new);
    names
        .filter(|name| name.exists())
        .filter_map(|name| BoundTree::open(name, name, false).ok())
        .collect()
}

/// Whether this is a symbolic link to UTC, which it is if nobody has chosen a time zone.
fn is_utc(local_time: &Path) -> bool {
    fs::read_link(local_time).is_ok_and(|target| {
        let target = Path::new("/").join(target.strip_prefix("..").unwrap_or(&target));
        ["/usr/share/zoneinfo/Etc/UTC", "/usr/share/zoneinfo/UTC"]
            .iter()
            .any(|zone| target == Path::new(zone))
    })
}

impl UpperLayer {
    /// Whether the image has something at `place`.
    fn has(&self, place: &Path) -> bool {
        self.resolve(place)
            .is_ok_and(|name| fs::symlink_metadata(self.image.join(name)).is_ok())
    }

    /// Makes sure that something of the right kind is at `place`: if the image has nothing there, `make`
    /// makes it in the layer. Returns its name relative to the root, without symbolic links.
    fn provide(
        &self,
        place: &Path,
        make: impl FnOnce(&Path) -> io::Result<()>,
        is_dir: bool,
    ) -> io::Result<PathBuf> {
        let name = self.resolve(place)?;
        match fs::symlink_metadata(self.image.join(&name)) {
            Ok(metadata) if metadata.is_dir() == is_dir => return Ok(name),
            Ok(_) if is_dir => return Err(io::ErrorKind::NotADirectory.into()),
            Ok(_) => return Err(io::ErrorKind::IsADirectory.into()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
        // Directories on the path that the image has keep their owner and mode.
        let mut way = PathBuf::new();
        for part in name.parent().into_iter().flat_map(Path::components) {
            way.push(part);
            let (there, here) = (self.image.join(&way), self.layer.join(&way));
            if !here.exists() {
                fs::create_dir(&here)?;
                if there.is_dir() {
                    copy_owner_and_mode(&there, &here)
                        .map_err(|e| io::Error::other(e.to_string()))?;
                }
            }
        }
        if !self.layer.join(&name).exists() {
            make(&self.layer.join(&name))?;
        }
        Ok(name)
    }

    /// The name of `place` relative to the root, after following the image's symbolic links. They are
    /// relative to the image's root.
    fn resolve(&self, place: &Path) -> io::Result<PathBuf> {
        let mut rest: VecDeque<OsString> = parts(place);
        let mut name = PathBuf::new();
        let mut links = 0;
        while let Some(part) = rest.pop_front() {
            if part == ".." {
                name.pop();
                continue;
            }
            name.push(&part);
            let path = self.image.join(&name);
            let is_link = fs::symlink_metadata(&path).is_ok_and(|m| m.file_type().is_symlink());
            if !is_link {
                continue;
            }
            links += 1;
            if links > LINKS {
                return Err(rustix::io::Errno::LOOP.into());
            }
            let target = fs::read_link(&path)?;
            if target.is_absolute() {
                name.clear();
            } else {
                name.pop();
            }
            let mut parts = parts(&target);
            parts.append(&mut rest);
            rest = parts;
        }
        Ok(name)
    }
}

/// The components of a path, without `/` and `.`.
fn parts(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir))
        .map(|part| part.as_os_str().to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn upper_layer(dir: &Path) -> UpperLayer {
        let (image, layer) = (dir.join("image"), dir.join("layer"));
        fs::create_dir_all(image.join("usr/lib")).expect("room");
        fs::create_dir(&layer).expect("room");
        fs::write(image.join("usr/file"), "").expect("room");
        symlink("/usr/lib", image.join("lib")).expect("room");
        symlink("../lib", image.join("usr/up")).expect("room");
        symlink("round", image.join("round")).expect("room");
        symlink("/../../etc", image.join("out")).expect("room");
        UpperLayer { image, layer }
    }

    #[test]
    fn links_are_those_of_the_image() {
        let dir = tempfile::tempdir().expect("a directory");
        let upper_layer = upper_layer(dir.path());
        let resolve = |name: &str| upper_layer.resolve(Path::new(name));
        for (name, found) in [
            ("/lib/a/b", "usr/lib/a/b"),
            ("/usr/up/../x", "usr/x"),
            ("/none/../usr", "usr"),
            ("/out/passwd", "etc/passwd"),
            ("/", ""),
        ] {
            assert_eq!(resolve(name).ok(), Some(PathBuf::from(found)), "{name}");
        }
        let error = resolve("/round/x").expect_err("it leads nowhere");
        assert_eq!(error.raw_os_error(), Some(libc::ELOOP));
    }

    #[test]
    fn links_to_utc_are_known() {
        let dir = tempfile::tempdir().expect("a directory");
        let link = dir.path().join("localtime");
        for (target, utc) in [
            ("/usr/share/zoneinfo/Etc/UTC", true),
            ("/usr/share/zoneinfo/UTC", true),
            ("../usr/share/zoneinfo/Etc/UTC", true),
            ("/usr/share/zoneinfo/Europe/Rome", false),
            ("/home/me/UTC", false),
        ] {
            symlink(target, &link).expect("room");
            assert_eq!(is_utc(&link), utc, "{target}");
            fs::remove_file(&link).expect("it is ours");
        }
        fs::write(&link, "TZif2").expect("room");
        assert!(!is_utc(&link));
    }

    #[test]
    fn the_image_has_what_its_links_lead_to() {
        let dir = tempfile::tempdir().expect("a directory");
        let upper_layer = upper_layer(dir.path());
        for (name, has) in [
            ("/usr/up", true),
            ("/usr/none", false),
            ("/lib", true),
            ("/out/x", false),
        ] {
            assert_eq!(upper_layer.has(Path::new(name)), has, "{name}");
        }
    }

    #[test]
    fn the_layer_holds_what_the_image_lacks() {
        let dir = tempfile::tempdir().expect("a directory");
        let upper_layer = upper_layer(dir.path());
        let provide = |name: &str, is_dir| {
            upper_layer
                .provide(Path::new(name), |path| fs::create_dir(path), is_dir)
                .map_err(|e| e.kind())
        };
        assert_eq!(provide("/usr/lib", true), Ok("usr/lib".into()));
        assert_eq!(provide("/lib/new/dir", true), Ok("usr/lib/new/dir".into()));
        assert_eq!(
            provide("/usr/file", true),
            Err(io::ErrorKind::NotADirectory)
        );
        assert_eq!(provide("/usr/lib", false), Err(io::ErrorKind::IsADirectory));
        let layer = dir.path().join("layer");
        assert!(layer.join("usr/lib/new/dir").is_dir());
        assert!(!layer.join("usr/file").exists());
    }
}
