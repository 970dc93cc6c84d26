//! The arguments of `brisk-run`.

use std::ffi::OsString;

use clap::{Args, FromArgMatches};

use crate::program_links::own_arguments;
use crate::verbs::{mount, replay, run};

/// What `brisk-run` does itself.
pub enum Start {
    Run(Box<run::Args>),
    Replay(replay::Args),
    Mount(mount::Args),
}

/// What the arguments ask for. None if `brisk-tools` must handle the arguments.
pub fn start_of_arguments() -> Option<Start> {
    let mut arguments = own_arguments();
    match arguments.next()?.to_str()? {
        "run" => parsed(arguments).map(|args| Start::Run(Box::new(args))),
        "replay" => {
            let args = parsed(arguments).filter(replay::Args::has_command);
            args.map(Start::Replay)
        }
        "mount" => parsed(arguments).map(Start::Mount),
        _ => None,
    }
}

/// None if the arguments are wrong, or ask for help.
fn parsed<T: Args + FromArgMatches>(arguments: impl Iterator<Item = OsString>) -> Option<T> {
    let command = T::augment_args(clap::Command::new("brisk").no_binary_name(true));
    let matches = command.try_get_matches_from(arguments).ok()?;
    T::from_arg_matches(&matches).ok()
}
