//! Does the jobs of `brisk lab index --ways`, freezes the pages of an index for it, and serves them.

mod freeze;
mod serve;
mod ways;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Downloads the pages of an index once, and chooses a file of each by two ways.
    Pages(freeze::Args),
    /// Serves such pages on the loopback, until its input ends. The lab starts this itself.
    Serve {
        /// The directory of the pages.
        pages: PathBuf,
    },
}

fn main() -> ExitCode {
    let argument = std::env::args().nth(1).unwrap_or_default();
    if argument == "list" || argument.starts_with('{') {
        return brisk_lab::serve_index(&ways::WAYS, None);
    }
    let done = match Arguments::parse().verb {
        Verb::Pages(args) => freeze::run(&args),
        Verb::Serve { pages } => serve::run(&pages),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("index-ways: {e:#}");
            ExitCode::from(2)
        }
    }
}
