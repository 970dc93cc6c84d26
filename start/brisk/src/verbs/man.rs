//! `brisk man`: writes brisk's man pages.

use std::path::{Path, PathBuf};

use anyhow::Context;
use brisk_terminal::answer::Answer;
use clap::Command;

use crate::man_page::man_page;

/// Where to write man pages.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The directory for brisk.1, brisk-pack.1 and so on. brisk makes it if it does not exist.
    directory: PathBuf,
}

pub fn run(args: &Args, brisk: Command) -> anyhow::Result<Answer> {
    let mut brisk = brisk.disable_help_subcommand(true);
    brisk.build();
    let write = || {
        std::fs::create_dir_all(&args.directory)?;
        write_pages(&brisk, &args.directory)
    };
    write().with_context(|| format!("{}: cannot write the man pages", args.directory.display()))?;
    Ok(Answer::Yes)
}

/// Writes the page of `command`, and those of its verbs.
fn write_pages(command: &Command, directory: &Path) -> std::io::Result<()> {
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        write_pages(verb, directory)?;
    }
    let (name, text) = man_page(command)?;
    std::fs::write(directory.join(name), text)
}
