//! Options of the verbs that make hot packs, and the line that they print about one.

use std::path::{Path, PathBuf};

use brisk_image::ImageWriter;
use brisk_image::hot_pack::{HotSummary, Prefer};
use brisk_terminal::messages::count;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use indicatif::BinaryBytes;

use crate::verbs::profile::open_all;

/// The kind of disk that a hot pack is made for.
#[derive(Debug, clap::Args)]
pub struct PreferArg {
    /// Makes the hot pack for fast disks (speed, with lz4), for slow disks and small downloads (size, with zstd), or for starts over a
    /// network (remote: zstd at its strongest, and what is near the pages of the launch behind them).
    #[arg(
        long,
        value_name = "WHAT",
        default_value = "speed",
        requires = "profiles",
        value_parser = PossibleValuesParser::new(["speed", "size", "remote"])
            .try_map(|name| name.parse::<Prefer>())
    )]
    pub prefer: Prefer,
}

/// The options for a hot pack behind a new image.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Hot pack")]
pub struct BehindArgs {
    /// Puts a hot pack behind the image: a second copy of the pages that this profile asks for, in about the
    /// order of the launch. May be repeated: the pack then has what any of them asks for, first what all do.
    #[arg(long = "profile", value_name = "PROFILE")]
    profiles: Vec<PathBuf>,

    #[command(flatten)]
    prefer: PreferArg,
}

impl BehindArgs {
    /// Whether there is to be a hot pack.
    pub fn is_given(&self) -> bool {
        !self.profiles.is_empty()
    }

    /// The profiles, each with what it is.
    pub fn inputs(&self) -> impl Iterator<Item = (&Path, &str)> {
        self.profiles.iter().map(|path| (path.as_path(), "profile"))
    }

    /// `writer`, with the hot pack that the options ask for.
    pub fn apply(&self, writer: ImageWriter) -> anyhow::Result<ImageWriter> {
        Ok(match &self.profiles[..] {
            [] => writer,
            paths => writer.hot_pack(open_all(paths)?, self.prefer.prefer),
        })
    }
}

/// One line for people about what a hot pack holds.
pub fn summary_text(summary: &HotSummary) -> String {
    let outside = match summary.outside_pages {
        0 => String::new(),
        n => format!("; of other roots: {}", count(n, "page", "pages")),
    };
    let neighbours = match summary.neighbours {
        0 => String::new(),
        n => format!(" and {n} near them"),
    };
    format!(
        "{}{neighbours} of {}, {} in, {} out; look-ups: {} found, {} absent{outside}",
        count(summary.pages, "page", "pages"),
        count(summary.files, "file", "files"),
        BinaryBytes(summary.bytes),
        BinaryBytes(summary.file_bytes),
        summary.look_ups.found,
        summary.look_ups.absent
    )
}
