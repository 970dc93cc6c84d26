//! The file that a bundle is.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use brisk_image::verity::{TreeFile, VerifiedFile, Verity};
use brisk_image::{ErrorKind, Image, OpenOptions};
use brisk_io::ByteSource;
use brisk_terminal::names::shown;

use crate::elf::Elf;

/// This process's own file. It stays the same file, wherever that is moved, and if it is deleted.
const SELF: &str = "/proc/self/exe";

/// The most bytes in front of an image.
const MOST_FRONT: u64 = 64 << 20;

/// A bundle: this program's own file, or one that the user names.
pub(crate) struct BundleFile {
    /// What opens it.
    pub(crate) opened_as: PathBuf,
    /// Its absolute path.
    pub(crate) path: PathBuf,
    /// What the user has called.
    pub(crate) called_as: OsString,
    file: File,
    pub(crate) image: Image,
    /// What each block of it is compared with. None if it has no hash tree.
    pub(crate) verity: Option<Verity>,
}

impl BundleFile {
    /// Opens it, and nothing of it later by name: `TARGET_APPIMAGE` names another one, as for other programs of AppImages.
    pub(crate) fn open() -> anyhow::Result<Self> {
        let target = env::var_os("TARGET_APPIMAGE");
        let opened_as = PathBuf::from(target.clone().unwrap_or_else(|| SELF.into()));
        let called_as = target.or_else(|| env::args_os().next()).unwrap_or_default();
        let file = File::open(&opened_as);
        let file = file.with_context(|| format!("cannot open {}", shown(&opened_as)))?;
        // A file that was deleted has no path, and is still there.
        let path = opened_as.canonicalize().or_else(|_| opened_as.read_link());
        let path = path.unwrap_or_else(|_| opened_as.clone());
        let named = || shown(&path);
        let image = Image::from_source(file.try_clone()?, &OpenOptions::new());
        let image = image.map_err(|e| {
            let what = match e.kind() {
                ErrorKind::Corrupt => {
                    ": no sound image is behind this program; brisk bundle puts one there"
                }
                _ => "",
            };
            anyhow::Error::from(e).context(format!("{}{what}", named()))
        })?;
        let (image, verity) = match image.verity_superblock().with_context(named)? {
            None => (image, None),
            Some(superblock) => {
                let tree = TreeFile::new(file.try_clone()?, &path, superblock);
                // Whoever wrote the tree wrote the program in front of it. From here on, its root hash is that of this moment.
                let verified = VerifiedFile::of_root_of(tree, &path, file.try_clone()?)?;
                let verity = verified.verity();
                let options = OpenOptions::new().offset(image.offset());
                let image = Image::open_verified(Arc::new(verified), &options);
                (image.with_context(named)?, Some(verity))
            }
        };
        Ok(Self {
            opened_as,
            path,
            called_as,
            file,
            image,
            verity,
        })
    }

    /// The bytes in a section of the program in front, up to the first zero.
    pub(crate) fn text(&self, section: &'static str) -> anyhow::Result<Vec<u8>> {
        let len = self.image.offset();
        if len > MOST_FRONT {
            bail!("the program in front of the image has {len} bytes, allowed are {MOST_FRONT}");
        }
        let mut bytes = vec![0; len as usize];
        self.file.read_exact_bytes_at(0, &mut bytes)?;
        Ok(Elf::parse(&bytes)?.text(section)?.to_vec())
    }

    /// The path of the bundle with this behind it.
    pub(crate) fn beside(&self, end: &str) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(".");
        path.push(end);
        path.into()
    }

    /// At most the first six bytes of its name, for a directory to mount on.
    pub(crate) fn short_name(&self) -> &OsStr {
        let name = Path::new(&self.path).file_name().unwrap_or_default();
        OsStr::from_bytes(name.as_bytes().get(..6).unwrap_or(name.as_bytes()))
    }
}
