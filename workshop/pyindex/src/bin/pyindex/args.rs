use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// Finds the files of Python packages in indexes.
///
/// What it stores of an index page is a table, in which it looks versions and files up without reading the page again.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "\
Exits with 0 after an answer, with 1 if a project or a file is not there, and with 2 after a failure."
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) common: Common,

    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Indexes")]
pub(crate) struct Common {
    /// The default index, by the URL behind which the names of projects begin.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "PIP_INDEX_URL",
        hide_env_values = true
    )]
    pub(crate) index_url: Option<String>,

    /// An index that is asked before. May be repeated: the first index that has a project is the only one for it.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "PIP_EXTRA_INDEX_URL",
        hide_env_values = true,
        value_delimiter = ' '
    )]
    pub(crate) extra_index_url: Vec<String>,

    /// Asks nobody: what is stored counts, of whatever age.
    #[arg(long, global = true)]
    pub(crate) offline: bool,

    /// Asks whether what is stored still holds.
    #[arg(long, global = true, conflicts_with = "offline")]
    pub(crate) refresh: bool,

    /// The directory of what is stored [default: ~/.cache/brisk/pyindex]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) cache: Option<PathBuf>,

    /// Prints JSON.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Lists the versions of a project that have a file for the Python, the newest first.
    Versions(Versions),
    /// Finds the best file for each requirement.
    Best(Best),
    /// Prints the metadata of a version, from the file that the index has of them.
    Metadata(Metadata),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Versions {
    /// The project.
    pub(crate) name: String,

    #[command(flatten)]
    pub(crate) target: Target,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Best {
    /// Requirements, such as 'numpy>=1.26,<3'.
    #[arg(required_unless_present = "requirement", value_name = "REQUIREMENT")]
    pub(crate) requirements: Vec<String>,

    /// Also the requirements of this file. May be repeated.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) requirement: Vec<PathBuf>,

    /// Says of each newer version why it is not the one.
    #[arg(long)]
    pub(crate) explain: bool,

    #[command(flatten)]
    pub(crate) target: Target,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Metadata {
    /// A requirement, such as 'numpy==2.1.0'.
    pub(crate) requirement: String,

    #[command(flatten)]
    pub(crate) target: Target,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Target")]
pub(crate) struct Target {
    /// The version of Python, such as 3.12 or 3.12.4 [default: that of python3]
    #[arg(long, value_name = "VERSION")]
    pub(crate) python: Option<String>,

    /// The platform, as a tag such as manylinux_2_28_x86_64 [default: that of this system]
    #[arg(long, value_name = "TAG")]
    pub(crate) platform: Option<String>,

    /// The ABI, as a tag such as cp313t or pypy311_pp73 [default: that of python3, or with --python the usual one of CPython]
    #[arg(long, value_name = "TAG")]
    pub(crate) abi: Option<String>,

    /// Takes pre-releases, too.
    #[arg(long)]
    pub(crate) pre: bool,

    /// Takes wheels only.
    #[arg(long)]
    pub(crate) only_binary: bool,

    /// Takes source distributions only.
    #[arg(long, conflicts_with = "only_binary")]
    pub(crate) no_binary: bool,
}
