//! Extracts the image of a bundle.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::{env, io, process};

use anyhow::{Context, bail};
use brisk_image::Extractor;
use brisk_launch::sys::process::start_detached;
use brisk_terminal::messages::say;
use brisk_terminal::names::shown;
use rustix::io::{read, retry_on_intr};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::bundle_file::BundleFile;
use crate::pattern::matches;

/// Where `--appimage-extract` writes to.
const TARGET: &str = "squashfs-root";

/// Extracts all, or what matches the pattern, with all that is below it. What is there already is replaced: scripts extract one
/// pattern after the other.
pub(crate) fn extract_for_user(bundle: &BundleFile, patterns: &[OsString]) -> anyhow::Result<()> {
    let mut extractor = Extractor::new().replace(true);
    match patterns {
        [] => {}
        [pattern] => {
            let mut found = Vec::new();
            for entry in bundle.image.walk()? {
                let (path, _) = entry?.into_parts();
                if matches(pattern, path.as_os_str()) {
                    found.push(path);
                }
            }
            if found.is_empty() {
                say(&format!("nothing in the image matches {}", shown(pattern)));
            }
            extractor = extractor.only(found);
        }
        _ => bail!(
            "--appimage-extract has {} patterns, allowed is one",
            patterns.len()
        ),
    }
    extract(bundle, Path::new(TARGET), extractor)
}

/// Extracts into `target`.
pub(crate) fn extract(
    bundle: &BundleFile,
    target: &Path,
    extractor: Extractor,
) -> anyhow::Result<()> {
    // Files of other users in a directory of this one would only be in the way.
    let extracted = extractor.owners(false).extract(&bundle.image, target)?;
    extracted.warnings.iter().for_each(|warning| say(warning));
    Ok(())
}

/// Removes a directory with all that is in it, also where the image lets nobody write.
pub(crate) fn remove(directory: &Path) -> io::Result<()> {
    fs::set_permissions(directory, fs::Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => remove(&entry.path())?,
            false => fs::remove_file(entry.path())?,
        }
    }
    fs::remove_dir(directory)
}

/// A new directory for this process alone.
pub(crate) fn temporary_directory(prefix: &str, name: &OsStr) -> anyhow::Result<PathBuf> {
    let parent = env::var_os("TMPDIR").filter(|path| !path.is_empty());
    let parent = parent.map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
    let mut number = 0_u32;
    loop {
        let mut directory = parent.join(prefix).into_os_string();
        directory.push(name);
        directory.push(format!("{:x}{number:x}", process::id()));
        let directory = PathBuf::from(directory);
        match fs::DirBuilder::new().mode(0o700).create(&directory) {
            Ok(()) => return Ok(std::path::absolute(&directory)?),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && number < 1000 => number += 1,
            Err(e) => {
                return Err(e).with_context(|| {
                    format!(
                        "cannot make {}; TMPDIR names another place",
                        shown(&directory)
                    )
                });
            }
        }
    }
}

/// Has `clean` done when this process has ended, and all that it becomes and starts: they inherit one end of a pipe.
pub(crate) fn afterwards(clean: impl Fn()) -> io::Result<()> {
    let (ended, open) = pipe_with(PipeFlags::CLOEXEC)?;
    let nowhere = fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    start_detached(&[ended.as_raw_fd()], nowhere.as_fd(), || {
        while retry_on_intr(|| read(&ended, &mut [0_u8; 8])).is_ok_and(|len| len > 0) {}
        clean();
        0
    })?;
    rustix::io::fcntl_setfd(&open, rustix::io::FdFlags::empty())?;
    // The program has it.
    std::mem::forget(open);
    Ok(())
}
