//! A program that is launched, as a tree and as an image.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::world::World;

/// A program that is launched.
pub(crate) struct Application {
    pub(crate) name: &'static str,
    pub(crate) tree: PathBuf,
    /// Of the tree, zstd 15, 128 KiB blocks.
    pub(crate) image: PathBuf,
    /// With the tree as root directory.
    pub(crate) command: Vec<&'static str>,
    /// What a launch that worked prints somewhere.
    pub(crate) prints: &'static str,
    /// The same program, which waits for its standard input to end once it is loaded.
    pub(crate) waiting: Option<Vec<&'static str>>,
}

impl Application {
    pub(crate) fn python(world: &World, tree: &Path) -> Result<Self> {
        let python = |code| vec!["/usr/bin/python3.11", "-c", code];
        Ok(Self {
            name: "python",
            tree: tree.canonicalize().context("--python")?,
            image: world.pack(tree, "python.img")?,
            command: python(
                "import pandas, scipy.stats, matplotlib.pyplot; print('ready', flush=True)",
            ),
            prints: "ready",
            waiting: Some(python(
                "import sys, pandas, scipy.stats, matplotlib.pyplot; \
                 print('ready', flush=True); sys.stdin.read()",
            )),
        })
    }

    pub(crate) fn chromium(world: &World, tree: &Path) -> Result<Self> {
        Ok(Self {
            name: "chromium",
            tree: tree.canonicalize().context("--chromium")?,
            image: world.pack(tree, "chromium.img")?,
            command: vec![
                "/usr/lib/chromium/chromium",
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--user-data-dir=/tmp/ud",
                "--dump-dom",
                "data:text/html,hi",
            ],
            prints: "<body>hi</body>",
            waiting: None,
        })
    }

    pub(crate) fn describe(&self) -> serde_json::Value {
        serde_json::json!({
            "name": self.name,
            "image_bytes": self.image.metadata().map(|m| m.len()).ok(),
            "command": self.command,
        })
    }
}
