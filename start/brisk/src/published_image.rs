//! An image or a hot pack for others: with a hash tree behind it, and what is said of it.

use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use brisk_image::hot_pack::HotPack;
use brisk_image::verity::{BLOCK, RootHash, VerifiedFile, append_tree, append_tree_at};
use brisk_image::{Image, Limits, OpenOptions, Work};
use brisk_remote::{Descriptor, digits};
use brisk_terminal::names::shown;
use tempfile::NamedTempFile;

use crate::image_args::ImageArgs;
use crate::manifest::Sidecar;
use crate::progress::Progress;
use crate::signing_key::SigningKey;

/// Who signs an image for others, and its serial number.
#[derive(Debug, clap::Args)]
pub struct SignedArgs {
    /// Signs by this secret key of minisign. If it has a password, brisk asks for it at the terminal.
    #[arg(long, value_name = "SECRET")]
    key: Option<PathBuf>,

    /// Takes the password from the first line of this file.
    #[arg(long, value_name = "FILE", requires = "key")]
    password_file: Option<PathBuf>,

    /// The serial number, which is larger for each later image of this name. [default: SOURCE_DATE_EPOCH of the environment, or
    /// the seconds since 1970]
    #[arg(long, value_name = "N")]
    serial: Option<u64>,
}

impl SignedArgs {
    /// The key. To be called before long work, as the password may be wrong.
    pub fn key(&self) -> anyhow::Result<Option<SigningKey>> {
        let key = self.key.as_deref();
        let key = key.map(|key| SigningKey::read(key, self.password_file.as_deref()));
        key.transpose()
    }

    /// The serial number that the user or the environment wants.
    pub fn serial(&self) -> anyhow::Result<Option<u64>> {
        if self.serial.is_some() {
            return Ok(self.serial);
        }
        let Some(epoch) = std::env::var_os("SOURCE_DATE_EPOCH") else {
            return Ok(None);
        };
        let serial = epoch.to_str().and_then(|digits| digits.parse().ok());
        serial.map(Some).with_context(|| {
            format!(
                "SOURCE_DATE_EPOCH is {epoch:?}, allowed is a number of seconds since 1970; correct or unset it, or pass --serial"
            )
        })
    }
}

/// A copy of the image with a hash tree behind it, in this directory, under another name. It goes unless it gets its own name.
pub fn copy(image: &ImageArgs, directory: &Path, quiet: bool) -> anyhow::Result<NamedTempFile> {
    let path = &image.image;
    let has_tree = image.open()?.verity_start()?.is_some();
    let copy = copy_first(path, directory, u64::MAX)?;
    if !has_tree {
        let len = copy.as_file().metadata().map_or(0, |found| found.len());
        let progress = Progress::new(Some(len), quiet);
        let work = Work::new().progress(progress.callback());
        let tree = append_tree(copy.as_file(), image.offset, &work);
        tree.map_err(|e| e.with_path(path)).context(
            "cannot put a hash tree behind the image; brisk repack makes an image that can have one",
        )?;
    }
    Ok(copy)
}

/// The first `len` bytes of the file, in the directory, under another name.
fn copy_first(path: &Path, directory: &Path, len: u64) -> anyhow::Result<NamedTempFile> {
    let copied = || -> io::Result<NamedTempFile> {
        let mut copy = tempfile::Builder::new()
            .prefix(".brisk-")
            .permissions(fs::Permissions::from_mode(0o666))
            .tempfile_in(directory)?;
        io::copy(&mut File::open(path)?.take(len), copy.as_file_mut())?;
        Ok(copy)
    };
    copied().with_context(|| format!("cannot copy {} into {}", shown(path), shown(directory)))
}

/// A copy of a hot pack with a hash tree behind it, in this directory, and what is said of it, as by [`describe`].
pub fn copy_of_pack(path: &Path, directory: &Path) -> anyhow::Result<(NamedTempFile, Descriptor)> {
    let pack = HotPack::open(path, &Limits::default())?;
    ensure!(
        pack.identity().is_some(),
        "{}: it is the hot pack of a directory, and readers start images; make one of the image with brisk hot",
        shown(path)
    );
    let copy = copy_first(path, directory, pack.len())?;
    let end = pack.len().next_multiple_of(BLOCK);
    let tree = append_tree_at(copy.as_file(), end, &Work::new()).map_err(|e| e.with_path(path))?;
    let (frames, neighbours) = frames_of(&pack, 0);
    let found = Descriptor {
        root_hash: Some(tree.root_hash),
        frames,
        neighbours,
        hash_tree: Some(end),
        ..whole(copy.path())?
    };
    Ok((copy, found))
}

/// Where the frames of the launch are in the file, and where those end that follow them. The pack starts at byte `start`.
fn frames_of(pack: &HotPack, start: u64) -> (Option<Range<u64>>, Option<u64>) {
    let end_of = |count: usize| {
        let frame = pack.frame(count.checked_sub(1)?)?;
        Some(start.saturating_add(frame.stored.end))
    };
    let first = pack.frame(0);
    let first = first.map(|first| start.saturating_add(first.stored.start));
    let end = end_of(pack.launch_frame_count());
    let frames = first.zip(end).map(|(start, end)| start..end);
    let all = end_of(pack.frame_count());
    (frames, all.filter(|all| end.is_some_and(|end| end < *all)))
}

/// What is said of any file: its length and its digest.
fn whole(copy: &Path) -> anyhow::Result<Descriptor> {
    let whole = Sidecar::of(copy)?.with_context(|| format!("cannot read {}", shown(copy)))?;
    Ok(Descriptor {
        file_bytes: whole.bytes,
        sha256: digits(&whole.digest),
        ..Descriptor::default()
    })
}

/// What is said of `image`, of which this is a copy. Name and serial number are left out. All of it is compared with its hash tree.
pub fn describe(image: &ImageArgs, copy: &Path, quiet: bool) -> anyhow::Result<Descriptor> {
    let path = &image.image;
    let open = || File::open(copy).context("cannot read the copy of the image");
    let root = checked_root(image, open()?, quiet)?;
    let mut options = OpenOptions::new();
    if let Some(offset) = image.offset {
        options = options.offset(offset);
    }
    let image = Image::from_source(open()?, &options).map_err(|e| e.with_path(path))?;
    let in_file = |at: u64| image.offset().saturating_add(at);
    let (frames, neighbours) = match (image.hot_pack()?, image.hot_pack_range()?) {
        (Some(pack), Some(range)) => frames_of(&pack, in_file(range.start)),
        _ => (None, None),
    };
    Ok(Descriptor {
        root_hash: Some(root.to_string()),
        tables: in_file(image.tables_start()),
        frames,
        neighbours,
        hash_tree: image.verity_start()?.map(in_file),
        ..whole(copy)?
    })
}

/// The root hash of the tree behind the image in `file`, after comparing all of the image with it.
fn checked_root(image: &ImageArgs, file: File, quiet: bool) -> anyhow::Result<RootHash> {
    let verified = VerifiedFile::of_its_own_root(&image.image, file, image.offset)?;
    let progress = Progress::new(Some(verified.data_len()), quiet);
    verified.check_all(&Work::new().progress(progress.callback()))?;
    Ok(verified.root_hash())
}
