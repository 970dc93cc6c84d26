//! `brisk man`: writes brisk's man pages.

use std::path::PathBuf;

use anyhow::Context;
use clap::Command;

use crate::answer::Answer;

/// Where to write man pages.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The directory for brisk.1, brisk-pack.1 and so on. brisk makes it if it does not exist.
    directory: PathBuf,
}

pub fn run(args: &Args, brisk: Command) -> anyhow::Result<Answer> {
    let write = || {
        std::fs::create_dir_all(&args.directory)?;
        clap_mangen::generate_to(brisk, &args.directory)
    };
    write().with_context(|| format!("{}: cannot write the man pages", args.directory.display()))?;
    Ok(Answer::Yes)
}
