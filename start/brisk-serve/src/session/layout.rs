/*!
Where each image is mounted, and what is left to do once all of them are served.
*/

use std::path::{Path, PathBuf};

use brisk_launch::error::Cause;
use brisk_launch::open::open_directory;
use rustix::process::fchdir;

use super::bound_tree::BoundTree;
use super::lasting_layer::LastingLayer;
use super::overlay::Layers;
use super::program::Bind;
use super::root::RootDirectory;
use crate::namespace::NamespaceKind;

/// The places of images, and what a program sees besides them.
pub(crate) struct Layout {
    mounts: ImageMounts,
    places: Vec<PathBuf>,
    binds: Vec<BoundTree>,
}

enum ImageMounts {
    /// Each image is mounted on its place. The first ones lie below layers that can be written to.
    Places(Vec<Layers>),
    /// The first image is the root directory, and the others have their places in it.
    RootDirectory(RootDirectory),
}

impl Layout {
    /// Prepares to mount an image on each of `places`. With `root`, the first one becomes the root directory.
    /// The first `writable` of them can be written to. In a root directory, only the root itself can.
    pub(crate) fn prepare(
        places: Vec<PathBuf>,
        root: bool,
        writable: usize,
        binds: &[Bind],
    ) -> Result<Self, Cause> {
        // Opened before anything hides them.
        let binds = binds
            .iter()
            .map(|bind| BoundTree::open(&bind.source, &bind.target, bind.read_only))
            .collect::<Result<Vec<_>, _>>()?;
        let mounts = if root {
            ImageMounts::RootDirectory(RootDirectory::prepare(places.len(), writable > 0)?)
        } else {
            let writable = places.iter().take(writable);
            ImageMounts::Places(
                writable
                    .map(|at| Layers::prepare(at))
                    .collect::<Result<_, _>>()?,
            )
        };
        Ok(Self {
            mounts,
            places,
            binds,
        })
    }

    /// Keeps what is written to the first place in this layer.
    pub(super) fn with_layer(mut self, layer: Option<LastingLayer>) -> Self {
        match &mut self.mounts {
            ImageMounts::Places(layers) => {
                if let Some(first) = layers.first_mut() {
                    first.keep_in(layer);
                }
            }
            ImageMounts::RootDirectory(root) => root.keep_in(layer),
        }
        self
    }

    /// Where to mount the image with this number.
    pub(crate) fn image_place(&self, index: usize) -> PathBuf {
        match &self.mounts {
            ImageMounts::Places(layers) => layers
                .get(index)
                .map_or_else(|| self.places[index].clone(), Layers::lower),
            ImageMounts::RootDirectory(root) => root.image_place(index),
        }
    }

    /// Does the part that needs the images' servers. The working directory stays, but in a new root directory
    /// it is the one of that name.
    pub(crate) fn finish(self, namespace: NamespaceKind) -> Result<(), Cause> {
        match self.mounts {
            ImageMounts::Places(layers) => {
                if !layers.is_empty() {
                    let here = open_directory(Path::new("."))?;
                    layers
                        .into_iter()
                        .try_for_each(|layers| layers.cover(namespace))?;
                    fchdir(here).map_err(|e| Cause::io("go back to the working directory", e))?;
                }
                self.binds
                    .iter()
                    .try_for_each(|bind| bind.mount(&bind.target))
            }
            ImageMounts::RootDirectory(root) => root.enter(namespace, &self.places, &self.binds),
        }
    }
}
