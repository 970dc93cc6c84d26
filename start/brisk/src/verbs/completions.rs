//! `brisk completions`: a script that makes a shell complete brisk's arguments.

use std::io::{self, Write};

use brisk_terminal::answer::Answer;
use clap::Command;
use clap_complete::Shell;

/// The shell to print a script for.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell.
    shell: Shell,
}

pub fn run(args: &Args, mut brisk: Command) -> anyhow::Result<Answer> {
    // The generator panics if it cannot write, for example to a broken pipe.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut brisk, "brisk", &mut script);
    io::stdout().lock().write_all(&script)?;
    Ok(Answer::Yes)
}
