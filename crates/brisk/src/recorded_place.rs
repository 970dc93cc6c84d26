//! Where an image says that it belongs.
//!
//! Anyone can write an image, and its place says what a program finds where. So an image never covers a directory that
//! the system itself uses, unless the user names that directory.

use std::path::{Path, PathBuf};

use anyhow::bail;
use brisk_image::Image;

/// Directories that an image must not cover.
const SYSTEM: [&str; 20] = [
    "/",
    "/bin",
    "/boot",
    "/home",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt",
    "/root",
    "/sbin",
    "/tmp",
    "/usr",
    "/usr/bin",
    "/usr/lib",
    "/usr/local",
    "/usr/sbin",
    "/usr/share",
    "/var",
    "/var/lib",
];

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
    let found = place.canonicalize().unwrap_or_else(|_| place.clone());
    if let Some(system) = system_directory(&place).or_else(|| system_directory(&found)) {
        bail!(
            "the image records the place {}, which would cover {system} of the system; allowed is a directory of its \
             own: {option} names one",
            place.display()
        );
    }
    Ok(Some(place))
}

/// The directory of the system that an image at `place` would cover, at least in part.
fn system_directory(place: &Path) -> Option<&'static str> {
    let covered = SYSTEM.into_iter().find(|path| place == Path::new(path));
    let within = || {
        SYSTEM_TREES
            .into_iter()
            .find(|path| place.starts_with(path))
    };
    covered.or_else(within)
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
            ("/usr/lib/chromium", None),
            ("/opt/app", None),
            ("/home/me/app", None),
            ("/app", None),
            ("/procedure", None),
        ] {
            assert_eq!(system_directory(Path::new(place)), covered, "{place}");
        }
    }
}
