//! What is written about brisk's arguments for man and for shells.

use clap::{Command, Subcommand};

use crate::answer::Answer;
use crate::verbs::{completions, man};

/// A form in which brisk's arguments are described.
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
    /// Describes the verbs of `brisk`. `lab` describes the verb of that name, if `brisk-lab` is there to do so.
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
