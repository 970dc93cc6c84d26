//! The program `brisk`, which is small: a launch from cold reads its code before anything else.
//!
//! It starts programs by itself. For everything else, help and wrong arguments included, it becomes
//! `brisk-tools`, which stands beside it and knows all verbs; for `brisk lab` that becomes `brisk-lab`.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::iter;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context;
use brisk_io::will_read_all;
use clap::{Args, FromArgMatches};

use crate::answer::Answer;
use crate::verbs::{replay, run};

/// The programs that start others and do all verbs but `lab`. They stand in one directory.
pub const PROGRAMS: [&str; 2] = ["brisk", TOOLS];

/// The program that knows all verbs.
pub const TOOLS: &str = "brisk-tools";

/// The program that measures. It may not be installed.
const LAB: &str = "brisk-lab";

/// A program that is to be started.
pub enum Start {
    Run(run::Args),
    Replay(replay::Args),
}

/// Asks the kernel to read all of this program at once. What it executes is scattered over its file,
/// so it would wait for many faults, each of which reads a small piece.
fn read_own_code() {
    // It runs without this, only later.
    if let Ok(own) = File::open("/proc/self/exe") {
        will_read_all(&own).ok();
    }
}

/// What the arguments ask to be started; none if `brisk-tools` is to look at them.
pub fn start_of_arguments() -> Option<Start> {
    let mut arguments = own_arguments();
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

/// Becomes `brisk-tools`. Returns only if that fails.
pub fn become_tools() -> anyhow::Result<Answer> {
    become_program(
        TOOLS,
        own_arguments(),
        "it does everything but start programs; install it again beside brisk",
    )
}

/// Becomes `brisk-lab`. Returns only if that fails.
pub fn become_lab(arguments: impl IntoIterator<Item = OsString>) -> anyhow::Result<Answer> {
    become_program(
        LAB,
        arguments,
        "it does what brisk lab is asked for; install it beside brisk, as make install does",
    )
}

/// Whether `brisk-lab` is installed.
pub fn has_lab() -> bool {
    beside(LAB).is_ok_and(|lab| lab.exists())
}

/// What `brisk-lab` is to be told if help for it is asked for, as in `brisk help lab launch`.
pub fn for_lab() -> Option<Vec<OsString>> {
    let mut arguments = own_arguments();
    let is_help = arguments.next()? == "help" && arguments.next()? == "lab";
    is_help.then(|| iter::once("help".into()).chain(arguments).collect())
}

/// The arguments of this process.
pub fn own_arguments() -> impl Iterator<Item = OsString> {
    env::args_os().skip(1)
}

/// Becomes the program `name`. `what` tells what it does and how to get it, if that fails.
fn become_program(
    name: &str,
    arguments: impl IntoIterator<Item = OsString>,
    what: &str,
) -> anyhow::Result<Answer> {
    let program = beside(name).context("cannot find brisk's own file")?;
    let error = Command::new(&program).args(arguments).exec();
    Err(error).with_context(|| format!("{}: cannot be started; {what}", program.display()))
}

/// Where the program `name` of brisk's is: in the same directory as this one.
pub fn beside(name: &str) -> io::Result<PathBuf> {
    Ok(env::current_exe()?.with_file_name(name))
}
