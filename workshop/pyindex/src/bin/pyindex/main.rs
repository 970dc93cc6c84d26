//! Asks indexes of Python packages, and answers from what is stored of them.

#![deny(unsafe_code)]

mod args;
mod best;
mod environment;
mod indexes;
mod metadata;
mod requirements;
mod versions;

use std::io::{self, ErrorKind};
use std::process::ExitCode;

use clap::Parser;

use args::{Args, Verb};

/// How a command ended, the best end first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Found,
    /// A project or a file is not there.
    Missing,
    /// A page is not to be had. What it was has been said.
    Failed,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let answered = match &args.verb {
        Verb::Versions(verb) => versions::run(&args.common, verb),
        Verb::Best(verb) => best::run(&args.common, verb),
        Verb::Metadata(verb) => metadata::run(&args.common, verb),
    };
    match answered {
        Ok(Outcome::Found) => ExitCode::SUCCESS,
        Ok(Outcome::Missing) => ExitCode::from(1),
        Ok(Outcome::Failed) => ExitCode::from(2),
        Err(e) if is_broken_pipe(&e) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("pyindex: {e:#}");
            ExitCode::from(2)
        }
    }
}

/// Whoever read the output has enough of it.
fn is_broken_pipe(e: &anyhow::Error) -> bool {
    e.downcast_ref::<io::Error>()
        .is_some_and(|e| e.kind() == ErrorKind::BrokenPipe)
}
