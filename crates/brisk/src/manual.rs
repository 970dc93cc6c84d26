//! What is written about brisk's arguments for man and for shells.

use clap::{Command, CommandFactory, Subcommand};

use crate::answer::Answer;
use crate::args::Brisk;
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
    /// Describes all verbs. `lab` describes the verb of that name, if `brisk-lab` is there to do so.
    pub fn write(&self, lab: Option<Command>) -> anyhow::Result<Answer> {
        let mut brisk = Brisk::command();
        if let Some(lab) = lab {
            brisk = brisk.mut_subcommand("lab", |_| lab.name("lab"));
        }
        match self {
            Self::Completions(args) => completions::run(args, brisk),
            Self::Man(args) => man::run(args, brisk),
        }
    }
}
