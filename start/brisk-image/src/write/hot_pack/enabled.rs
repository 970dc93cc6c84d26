//! The hot pack that an image is written with.

use std::collections::HashSet;
use std::sync::Arc;

use super::ReadBack;
use crate::error::{Error, Result};
use crate::hot_pack::writer::{HotPackWriter, Prefer};
use crate::output::Output;
use crate::profile::Profile;
use crate::profile::origin::Origin;
use crate::read::image::{Image, OpenOptions};
use crate::tree::{Tree, TreeInode, TreeKind};
use crate::work::Work;
use crate::write::summary::Summary;

/// What the hot pack behind an image is made of, and for.
#[derive(Debug, Clone)]
pub(in crate::write) struct HotPackBehind {
    profile: Arc<Profile>,
    prefer: Prefer,
}

impl HotPackBehind {
    pub(in crate::write) fn new(profile: Profile, prefer: Prefer) -> Self {
        let profile = Arc::new(profile);
        Self { profile, prefer }
    }

    /// Checks by the lengths of files that the hot pack can have something. Packing may take long,
    /// so this comes before it.
    pub(in crate::write) fn check(&self, tree: &Tree) -> Result<()> {
        // Names are no help: the profile may know a file by another of its hard links.
        let len = |inode: &TreeInode| match inode.kind {
            TreeKind::File { len, .. } => Some(len),
            _ => None,
        };
        let known: HashSet<_> = tree.inodes.iter().filter_map(len).collect();
        let mut files = self.profile.files().iter();
        match files.any(|file| known.contains(&file.len)) {
            true => Ok(()),
            false => Err(Error::input(
                "none of the files of the profile is in the tree with the same length; \
                 record it again",
            )),
        }
    }

    /// Appends the hot pack of the image that `out` has, and adds it to `summary`.
    ///
    /// It comes last, so that all before it is what an image without a hot pack has.
    pub(in crate::write) fn append(
        &self,
        out: &mut dyn Output,
        read_back: ReadBack<'_>,
        work: &Work,
        summary: &mut Summary,
    ) -> Result<()> {
        let ReadBack { file, spool, name } = read_back;
        let image = Image::from_source(file, &OpenOptions::new().offset(0))?;
        let writer = HotPackWriter::new().prefer(self.prefer);
        let built = writer.build(
            &self.profile,
            &Origin::image(&image),
            spool,
            &work.uncounted(),
        );
        let built = built.map_err(|e| match name {
            Some(name) => e.with_path(name),
            None => e,
        })?;
        built.append_section(out)?;
        summary.hot_pack = Some(built.summary);
        Ok(())
    }
}
