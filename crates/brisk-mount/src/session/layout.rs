/*!
How images get into view: where each is mounted, and what is done once all are served.
*/

use std::path::{Path, PathBuf};

use rustix::process::fchdir;

use super::Bind;
use super::bound_tree::BoundTree;
use super::overlay::Layers;
use super::root::Root;
use crate::error::Cause;
use crate::namespace::Entry;
use crate::open::open_directory;

/// The places of images, and what a program sees besides them.
pub(crate) struct Layout {
    how: How,
    places: Vec<PathBuf>,
    binds: Vec<BoundTree>,
}

enum How {
    /// Each is mounted on its place, the first of them below layers that can be written to.
    Places(Vec<Layers>),
    /// The first is the root directory, and the others have their places in it.
    Root(Root),
}

impl Layout {
    /// Prepares to mount an image on each of `places`, the first of them as the root directory if
    /// `root`. The first `writable` of them can be written to; of a root directory, only it.
    pub(crate) fn prepare(
        places: Vec<PathBuf>,
        root: bool,
        writable: usize,
        binds: &[Bind],
    ) -> Result<Self, Cause> {
        // What is bound is got before anything covers it.
        let binds = binds
            .iter()
            .map(|bind| BoundTree::open(&bind.source, &bind.target, bind.read_only))
            .collect::<Result<Vec<_>, _>>()?;
        let how = if root {
            How::Root(Root::prepare(places.len(), writable > 0)?)
        } else {
            let writable = places.iter().take(writable);
            How::Places(
                writable
                    .map(|at| Layers::prepare(at))
                    .collect::<Result<_, _>>()?,
            )
        };
        Ok(Self { how, places, binds })
    }

    /// Where the image with this number is to be mounted.
    pub(crate) fn image_place(&self, index: usize) -> PathBuf {
        match &self.how {
            How::Places(layers) => layers
                .get(index)
                .map_or_else(|| self.places[index].clone(), Layers::lower),
            How::Root(root) => root.image_place(index),
        }
    }

    /// Does what needs the images' servers. The working directory stays, but in a new root
    /// directory it is that.
    pub(crate) fn finish(self, entry: Entry) -> Result<(), Cause> {
        match self.how {
            How::Places(layers) => {
                let here = open_directory(Path::new("."))?;
                layers
                    .into_iter()
                    .try_for_each(|layers| layers.cover(entry))?;
                fchdir(here).map_err(|e| Cause::io("go back to the working directory", e))?;
                self.binds
                    .iter()
                    .try_for_each(|bind| bind.mount(&bind.target))
            }
            How::Root(root) => root.enter(entry, &self.places, &self.binds),
        }
    }
}
