//! `brisk completions`: a script that makes a shell complete brisk's arguments.

use std::io::{self, Write};

use clap::CommandFactory;
use clap_complete::Shell;

use crate::Answer;
use crate::args::Brisk;

/// For which shell.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell.
    shell: Shell,
}

pub fn run(args: &Args) -> anyhow::Result<Answer> {
    // The generator panics on what it cannot write, such as to a broken pipe.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Brisk::command(), "brisk", &mut script);
    io::stdout().lock().write_all(&script)?;
    Ok(Answer::Yes)
}
