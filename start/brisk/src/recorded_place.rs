//! Where an image says that it belongs.
//!
//! Anyone can write an image, and its place says what a program finds where. So an image never covers a directory that
//! the system itself uses, unless the user names that directory.

use std::path::{Path, PathBuf};

use anyhow::bail;
use brisk_image::Image;
use brisk_serve::{MissingPlace, SessionImage, resolve_path};
use brisk_terminal::messages::say;
use brisk_terminal::names::shown;

/// Directories that an image must not cover.
const SYSTEM: [&str; 17] = [
    "/", "/bin", "/boot", "/home", "/lib", "/lib32", "/lib64", "/libx32", "/media", "/mnt", "/opt",
    "/root", "/sbin", "/srv", "/tmp", "/usr", "/var",
];

/// Directories of which an image must cover no entry. Programs have directories of their own below those.
const SYSTEM_PARENTS: [&str; 6] = [
    "/usr",
    "/usr/local",
    "/usr/lib/systemd",
    "/var",
    "/var/lib/dpkg",
    "/var/lib/rpm",
];

/// Directories with a directory of libraries for each kind of machine, such as `x86_64-linux-gnu`.
const LIBRARIES: [&str; 3] = ["/lib", "/usr/lib", "/usr/local/lib"];

/// Directories in which an image must cover nothing at all.
const SYSTEM_TREES: [&str; 5] = ["/dev", "/etc", "/proc", "/run", "/sys"];

/// The directory that the image records, if it records one. `option` names another.
///
/// # Errors
///
/// If the image records a directory that the system itself uses.
pub fn recorded_place(image: &Image, option: &str) -> anyhow::Result<Option<PathBuf>> {
    let Some(place) = image.recorded_place()? else {
        return Ok(None);
    };
    // A link there may lead anywhere.
    let found = resolve_path(&place).unwrap_or_else(|_| place.clone());
    if let Some(system) = system_directory(&place).or_else(|| system_directory(&found)) {
        bail!(
            "the image records the place {}, which would cover {} of the system; allowed is a directory of its \
             own: {option} names one",
            place.display(),
            system.display()
        );
    }
    Ok(Some(place))
}

/// What to say of the image if starts would refuse the directory that it records.
pub fn fault_of_place(image: &Image) -> anyhow::Result<Option<String>> {
    Ok(image.recorded_place()?.and_then(|place| {
        let system = system_directory(&place)?;
        Some(format!(
            "the image records the place {}, which would cover {} of the system: brisk run refuses that, unless each start \
             names the place with --at; record a directory of its own",
            shown(&place),
            shown(system)
        ))
    }))
}

/// Says what it means for the program that the place of its image does not exist.
pub fn tell_made(place: &MissingPlace) {
    say(&format!(
        "{place} does not exist, so brisk shows it to this program alone. The program sees all that is in {parent}, but can \
         make, rename or remove nothing directly in it; make the directory {place} to allow that",
        place = shown(place.path()),
        parent = shown(place.parent()),
    ));
}

/// The same of all images that a trace serves. What cannot be made, the trace says.
pub fn tell_made_of<'a>(images: impl IntoIterator<Item = &'a SessionImage>) {
    let places = images.into_iter().filter_map(|image| image.at.as_deref());
    for place in places.filter_map(|at| MissingPlace::of(at).ok().flatten()) {
        tell_made(&place);
    }
}

/// The directory of the system that an image at `place` would cover, at least in part.
fn system_directory(place: &Path) -> Option<&Path> {
    let is = |path: &str| place == Path::new(path);
    if SYSTEM.iter().chain(&SYSTEM_PARENTS).any(|path| is(path)) {
        return Some(place);
    }
    let within = SYSTEM_TREES.into_iter().map(Path::new);
    if let Some(tree) = within.into_iter().find(|tree| place.starts_with(tree)) {
        return Some(tree);
    }
    let (parent, name) = (place.parent()?, place.file_name()?);
    let is_parent = |path: &str| parent == Path::new(path);
    let is_entry = SYSTEM_PARENTS.iter().any(|path| is_parent(path));
    let is_libraries = LIBRARIES.iter().any(|path| is_parent(path))
        && String::from_utf8_lossy(name.as_encoded_bytes()).contains("-linux-");
    (is_entry || is_libraries).then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_the_system_are_known() {
        for (place, covered) in [
            ("/", Some("/")),
            ("/usr", Some("/usr")),
            ("/usr/lib", Some("/usr/lib")),
            ("/proc", Some("/proc")),
            ("/proc/self", Some("/proc")),
            ("/etc/ssl/certs", Some("/etc")),
            ("/run/user/1000", Some("/run")),
            ("/dev/shm", Some("/dev")),
            ("/usr/libexec", Some("/usr/libexec")),
            ("/usr/local/bin", Some("/usr/local/bin")),
            (
                "/usr/lib/x86_64-linux-gnu",
                Some("/usr/lib/x86_64-linux-gnu"),
            ),
            ("/lib/aarch64-linux-gnu", Some("/lib/aarch64-linux-gnu")),
            ("/var/tmp", Some("/var/tmp")),
            ("/srv", Some("/srv")),
            ("/srv/app", None),
            ("/usr/lib/chromium", None),
            ("/usr/share/app", None),
            ("/var/lib/app", None),
            ("/opt/app", None),
            ("/home/me/app", None),
            ("/app", None),
            ("/procedure", None),
        ] {
            let covered = covered.map(Path::new);
            assert_eq!(system_directory(Path::new(place)), covered, "{place}");
        }
    }
}
