//! Man pages, and scripts with which shells complete brisk's arguments.

use brisk_terminal::answer::Answer;
use clap::{Command, Subcommand};

use crate::verbs::{completions, man};

/// A form of the manual.
#[derive(Debug, Subcommand)]
pub enum Manual {
    /// Prints a script for a shell that completes brisk's arguments.
    #[command(hide = true)]
    Completions(completions::Args),
    /// Writes brisk's man pages.
    #[command(hide = true)]
    Man(man::Args),
}

impl Manual {
    /// Describes the verbs of `brisk`. `lab` describes the verb of that name, if `brisk-lab` is installed.
    pub(crate) fn write(&self, mut brisk: Command, lab: Option<Command>) -> anyhow::Result<Answer> {
        if let Some(lab) = lab {
            brisk = brisk.mut_subcommand("lab", |_| lab.name("lab"));
        }
        match self {
            Self::Completions(args) => completions::run(args, brisk),
            Self::Man(args) => man::run(args, brisk),
        }
    }
}
