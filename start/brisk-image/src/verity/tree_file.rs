use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use brisk_io::ByteSource;

/// The suffix of images that systemd leaves out in the names of what is beside them.
const RAW: &[u8] = b".raw";

/// Where a hash tree is.
pub struct TreeFile {
    pub(super) source: Box<dyn ByteSource>,
    /// The name of the file, for messages.
    pub(super) path: PathBuf,
    /// The byte at which the superblock of the tree starts.
    pub(super) superblock: u64,
    /// The descriptor of the file, if it is one.
    pub(super) descriptor: Option<RawFd>,
}

impl TreeFile {
    /// The tree whose superblock starts at byte `superblock` of `source`. Errors call it `path`.
    pub fn new(source: impl ByteSource + 'static, path: &Path, superblock: u64) -> Self {
        Self {
            source: Box::new(source),
            path: path.to_owned(),
            superblock,
            descriptor: None,
        }
    }

    pub(super) fn of_file(file: File, path: &Path, superblock: u64) -> Self {
        let descriptor = Some(file.as_raw_fd());
        Self {
            descriptor,
            ..Self::new(file, path, superblock)
        }
    }

    /// The byte of its file at which the superblock starts.
    pub fn superblock(&self) -> u64 {
        self.superblock
    }

    /// The file that it is in.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The name of the file with the tree of the image at `path`: `IMAGE.verity`. systemd looks for this name too, and
/// leaves out the end `.raw` of the image's name.
pub fn beside(image: &Path) -> PathBuf {
    with_suffix(image, ".verity")
}

/// The name of the file with the root hash of the image at `path`: `IMAGE.roothash`, as for [`beside`].
pub fn root_hash_beside(image: &Path) -> PathBuf {
    with_suffix(image, ".roothash")
}

fn with_suffix(image: &Path, suffix: &str) -> PathBuf {
    let name = image.as_os_str().as_bytes();
    let stem = name.strip_suffix(RAW).unwrap_or(name);
    let mut name = OsString::from_vec(stem.to_vec());
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_systemd_looks_for() {
        for (image, tree, root) in [
            ("app.img", "app.img.verity", "app.img.roothash"),
            ("/a/app.raw", "/a/app.verity", "/a/app.roothash"),
            ("app.snap", "app.snap.verity", "app.snap.roothash"),
            ("raw", "raw.verity", "raw.roothash"),
        ] {
            assert_eq!(beside(Path::new(image)), Path::new(tree));
            assert_eq!(root_hash_beside(Path::new(image)), Path::new(root));
        }
    }
}
