//! Packs a tree, and compares the size of the image.

use std::cell::RefCell;
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use brisk_bench::{Bench, Superblock, Timed, Tool, Tree};

use crate::codec::{BLOCK_SIZE, Codec};
use crate::{Measured, Setup, clear};

/// A tool that packs a tree.
struct Packer<'a> {
    setup: &'a Setup,
    tree: &'a Tree,
    codec: Codec,
    tool: &'a Tool,
    args: Vec<OsString>,
    image: &'a Path,
    /// Digests of images that were unpacked and found equal to the tree.
    verified: HashSet<blake3::Hash>,
}

impl Packer<'_> {
    /// Packs with the tree in the page cache and no image in place, and checks the image.
    fn pack(&mut self) -> Result<Duration> {
        clear(self.image)?;
        self.tree.warm()?;
        let elapsed = self.tool.time(&self.args, &self.setup.said())?;
        self.check()?;
        Ok(elapsed)
    }

    /// Checks that the image has the requested options, and that `unsquashfs` unpacks the tree from it.
    ///
    /// An image that was checked before is recognised by its bytes. Both tools make the same image from the
    /// same tree each time. If one does not, each of its images is unpacked.
    fn check(&mut self) -> Result<()> {
        let superblock = Superblock::read(self.image)?;
        let (found, wanted) = (
            (superblock.compressor, superblock.block_size),
            (self.codec.id(), BLOCK_SIZE),
        );
        ensure!(
            found == wanted,
            "compressor and block size of the image are {found:?}, but must be {wanted:?}"
        );
        let mut hasher = blake3::Hasher::new();
        hasher
            .update_reader(File::open(self.image)?)
            .context("cannot read the image back")?;
        if self.verified.insert(hasher.finalize()) {
            let back = self.setup.work.join("back");
            clear(&back)?;
            let args = unsquashfs_args(self.image, &back, self.setup.processors);
            self.setup.unsquashfs.time(&args, &self.setup.said())?;
            self.tree.check_equal(&back)?;
            clear(&back)?;
        }
        Ok(())
    }
}

/// The arguments with which `unsquashfs` unpacks `image` to `dir`.
pub(crate) fn unsquashfs_args(image: &Path, dir: &Path, processors: usize) -> Vec<OsString> {
    let mut args = vec![OsString::from("-d"), dir.into()];
    let flags = format!("-no-progress -quiet -processors {processors}");
    args.extend(flags.split(' ').map(OsString::from));
    args.push(image.into());
    args
}

pub(crate) fn measure(
    bench: &mut Bench,
    setup: &Setup,
    tree: &Tree,
    codec: Codec,
    measured: Measured,
) -> Result<()> {
    let (their_image, our_image) = (setup.work.join("theirs.img"), setup.work.join("ours.img"));
    let packer = |tool, args, image| {
        RefCell::new(Packer {
            setup,
            tree,
            codec,
            tool,
            args,
            image,
            verified: HashSet::new(),
        })
    };
    let theirs = packer(
        &setup.mksquashfs,
        codec.mksquashfs_args(tree.path(), &their_image, setup.processors),
        their_image.as_path(),
    );
    let ours = packer(
        &setup.brisk,
        codec.brisk_args(tree.path(), &our_image, setup.processors),
        our_image.as_path(),
    );
    let subject = format!("{}, {}", tree.name(), codec.label());
    if measured.pack {
        let timed = |packer| -> Timed<'_> {
            let packer: &RefCell<Packer<'_>> = packer;
            Timed {
                name: packer.borrow().tool.name,
                work: Box::new(|| packer.borrow_mut().pack()),
            }
        };
        bench.compare(
            "pack",
            &subject,
            "tree warm, proven",
            timed(&theirs),
            vec![(timed(&ours), Some(codec.pack_goal()))],
        )?;
    } else {
        theirs.borrow_mut().pack()?;
        ours.borrow_mut().pack()?;
    }
    if measured.size {
        let (theirs, ours) = (
            Superblock::read(&their_image)?,
            Superblock::read(&our_image)?,
        );
        let goal = Some(codec.size_goal());
        for (figure, bytes) in [
            (
                "size, bytes_used",
                (|s| s.bytes_used) as fn(&Superblock) -> u64,
            ),
            ("size, file", |s| s.file_size),
        ] {
            let (theirs, ours) = (
                (setup.mksquashfs.name, bytes(&theirs)),
                (setup.brisk.name, bytes(&ours)),
            );
            bench.compare_bytes(figure, &subject, theirs, ours, goal)?;
        }
    }
    clear(&their_image)?;
    clear(&our_image)
}
