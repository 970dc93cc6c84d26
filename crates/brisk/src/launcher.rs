//! The program `brisk`, which is small: a launch from cold reads its code before anything else.
//!
//! It starts programs by itself. Whatever else it is asked for, help and wrong arguments included, is
//! for `brisk-tools`, which stands beside it and knows all verbs.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context;
use brisk_io::will_read_all;
use clap::{Args, FromArgMatches};

use crate::answer::Answer;
use crate::verbs::{replay, run};

/// What is installed, into one directory.
pub const PROGRAMS: [&str; 2] = ["brisk", TOOLS];

pub const TOOLS: &str = "brisk-tools";

/// A program that is to be started.
pub enum Start {
    Run(run::Args),
    Replay(replay::Args),
}

/// Has the kernel read this program at once. What it executes is all over its file, and each fault
/// would read a small piece of it and be waited for.
fn read_own_code() {
    // It runs without, only later.
    if let Ok(own) = File::open("/proc/self/exe") {
        will_read_all(&own).ok();
    }
}

/// What the arguments ask to be started; none if `brisk-tools` is to look at them.
pub fn start_of_arguments() -> Option<Start> {
    let mut arguments = env::args_os().skip(1);
    match arguments.next()?.to_str()? {
        "run" => {
            read_own_code();
            parsed(arguments).map(Start::Run)
        }
        "replay" => {
            read_own_code();
            let args = parsed(arguments).filter(replay::Args::has_command);
            args.map(Start::Replay)
        }
        _ => None,
    }
}

/// None if they are wrong, or ask for help.
fn parsed<T: Args + FromArgMatches>(arguments: impl Iterator<Item = OsString>) -> Option<T> {
    let command = T::augment_args(clap::Command::new("brisk").no_binary_name(true));
    let matches = command.try_get_matches_from(arguments).ok()?;
    T::from_arg_matches(&matches).ok()
}

/// Only comes back if that fails.
pub fn become_tools() -> anyhow::Result<Answer> {
    let tools = beside(TOOLS).context("cannot find brisk's own file")?;
    let error = Command::new(&tools).args(env::args_os().skip(1)).exec();
    Err(error).with_context(|| {
        format!(
            "{}: cannot be started, and does all but start programs; install it again beside brisk",
            tools.display()
        )
    })
}

/// The program of brisk's with this name, which stands in the same directory as this one.
pub fn beside(name: &str) -> io::Result<PathBuf> {
    Ok(env::current_exe()?.with_file_name(name))
}
