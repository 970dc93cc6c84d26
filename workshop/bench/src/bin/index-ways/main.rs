//! Measures ways of reading a package index, freezes the pages of an index for that, and serves them. The library says more.

#[cfg(feature = "index-ways")]
mod freeze;
#[cfg(feature = "index-ways")]
mod serve;
#[cfg(feature = "index-ways")]
mod ways;

use std::process::ExitCode;

use brisk_bench::ways::{Args, WayKind, measure, work};
use clap::{Parser, Subcommand};

#[cfg(feature = "index-ways")]
use ways::WAYS;

#[cfg(not(feature = "index-ways"))]
const WAYS: [WayKind; 0] = [];

#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Measures ways of reading a package index from a cache: warm, stale, and with nothing stored.
    Measure(Box<Args>),
    /// Downloads the pages of an index once, and chooses a file of each by two ways.
    #[cfg(feature = "index-ways")]
    Pages(freeze::Args),
    /// Serves such pages on the loopback, until its input ends. An experiment starts this itself.
    #[cfg(feature = "index-ways")]
    Serve {
        /// The directory of the pages.
        pages: std::path::PathBuf,
    },
}

fn main() -> ExitCode {
    let names: Vec<_> = WAYS.iter().map(|kind: &WayKind| kind.name).collect();
    brisk_bench::start(
        &names,
        |job| work(job, &WAYS, None),
        |arguments: &Arguments| match &arguments.verb {
            Verb::Measure(args) => measure(args),
            #[cfg(feature = "index-ways")]
            Verb::Pages(args) => freeze::run(args),
            #[cfg(feature = "index-ways")]
            Verb::Serve { pages } => serve::run(pages),
        },
    )
}
