//! A program to launch, as a tree and as an image.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::world::World;

/// A program to launch.
pub(crate) struct Application {
    pub(crate) name: &'static str,
    pub(crate) tree: PathBuf,
    /// The image of the tree, with zstd 15 and blocks of 128 KiB.
    pub(crate) image: PathBuf,
    /// The command, with the tree as root directory.
    pub(crate) command: Vec<&'static str>,
    /// A text that a launch prints if it worked.
    pub(crate) prints: &'static str,
    /// A command that runs the same program. When it is loaded, it waits until its standard input ends.
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
