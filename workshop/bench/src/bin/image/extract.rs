//! Unpacks everything.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use brisk_bench::{Bench, State, Timed, Tool, Tree, prepare};

use crate::codec::Codec;
use crate::pack::unsquashfs_args;
use crate::{Setup, clear};

/// Both tools unpack the same image, which mksquashfs made.
pub(crate) fn measure(bench: &mut Bench, setup: &Setup, tree: &Tree, codec: Codec) -> Result<()> {
    let image = setup.work.join("extract.img");
    setup.reference_image(tree.path(), codec, &image)?;

    let dir = setup.work.join("unpacked");
    let theirs = unsquashfs_args(&image, &dir, setup.processors);
    let mut ours: Vec<OsString> = vec!["extract".into(), (&image).into(), (&dir).into()];
    ours.extend(["--jobs".into(), setup.processors.to_string().into()]);

    let (image, dir) = (image.as_path(), dir.as_path());
    let unpacker = |tool, args| Unpacker {
        setup,
        tree,
        tool,
        args,
        image,
        dir,
    };
    bench.compare(
        "extract",
        &format!("{}, {}", tree.name(), codec.label()),
        "image warm, proven",
        unpacker(&setup.unsquashfs, theirs).timed(),
        vec![(unpacker(&setup.brisk, ours).timed(), codec.extract_goal())],
    )?;
    clear(dir)?;
    clear(image)
}

/// A tool that unpacks an image.
struct Unpacker<'a> {
    setup: &'a Setup,
    tree: &'a Tree,
    tool: &'a Tool,
    args: Vec<OsString>,
    image: &'a Path,
    dir: &'a Path,
}

impl<'a> Unpacker<'a> {
    fn timed(self) -> Timed<'a> {
        Timed {
            name: self.tool.name,
            work: Box::new(move || self.unpack()),
        }
    }

    /// Unpacks with the image in the page cache and no output in place, and compares the output with the
    /// tree.
    fn unpack(&self) -> Result<Duration> {
        clear(self.dir)?;
        prepare(self.image, State::Warm)?;
        let elapsed = self.tool.time(&self.args, &self.setup.said())?;
        self.tree.check_equal(self.dir)?;
        Ok(elapsed)
    }
}
