/*!
The commands `brisk`, `brisk-run` and `brisk-tools`, which make programs start faster.

A program starts by reading files. `brisk trace` records what a launch reads, as a profile. `brisk pack` writes a
program's directory as one small SquashFS image that holds those pages in order. `brisk run` starts the program from
the image, or from its directory, and brings the pages into memory before the program asks for them.

This crate holds only what belongs to the command line: arguments, messages and exit codes. The libraries below it do
the work: `brisk-image` reads and writes images, `brisk-serve` mounts them and starts programs, `brisk-io` reads files.

# Where to begin

Each verb has a file of its own in `verbs`, with its arguments and a function `run` that returns an [`Answer`]. `args`
lists the verbs. Data goes to stdout, messages to stderr.

There are three programs, because a cold launch reads brisk's own code first. `brisk` holds only what the start of a
program needs that brisk has learned, or beside the replay of a profile ([`launch`]). For images and mounts it becomes
`brisk-run` ([`run_or_mount`]), and for everything else `brisk-tools` ([`all_verbs`]).

# For `brisk-lab`

`brisk lab` becomes a fourth program, which measures and has a crate of its own. The other public names are what it
shares with the command: how options are read ([`Rate`]), the manual ([`write_manual`]), and pictures ([`page`], [`timeline`]), which
`brisk profile show --html` also writes. Nothing here is meant for other crates.
*/

mod advice;
mod args;
mod container;
mod desktop_entries;
mod direct_launch;
mod disk_rate;
mod entry_args;
mod entry_faults;
mod file_kind;
mod hot_pack_args;
mod image_args;
mod json;
#[cfg(test)]
mod json_page;
mod kernel_feature;
mod known_launch;
mod launch_name;
mod launcher;
mod man_page;
mod manifest;
mod manual;
mod menu_entry;
mod misuse;
mod named_replay;
mod output_file;
pub mod page;
mod path_hint;
mod program_links;
mod progress;
mod published_image;
mod readiness;
mod recorded_place;
mod registry_job;
mod remote_images;
mod run_arguments;
mod signing_key;
mod stale_pack;
mod summary_args;
mod surroundings;
pub mod timeline;
mod verbs;
mod verify_args;
mod whole_file;
mod wrapper;

pub use disk_rate::{Rate, one_of_each_kind};
pub use launcher::{PROGRAMS, RUN, TOOLS, beside};
pub use manual::Manual;
pub use readiness::parse_readiness;
pub use surroundings::parse_bind;
pub use whole_file::write_whole;

use std::process::ExitCode;

use brisk_terminal::answer::{Answer, FAILED};
use brisk_terminal::messages::say;
use brisk_terminal::names::shown;
use clap::{Command, CommandFactory, Parser};

use crate::advice::exit_code;
use crate::args::{Brisk, Verb};
use crate::named_replay::NamedReplay;
use crate::run_arguments::Start;

/// Runs `brisk-tools`: any verb.
pub fn all_verbs() -> ExitCode {
    if let Some(arguments) = launcher::for_lab() {
        return end(launcher::become_lab(arguments));
    }
    let verb = Brisk::try_parse().unwrap_or_else(|e| misuse::exit(e)).verb;
    let code_of = match &verb {
        Verb::Run(_) | Verb::Trace(_) => verbs::run::exit_code,
        Verb::Replay(args) if args.has_command() => verbs::run::exit_code,
        _ => |_: &anyhow::Error| FAILED,
    };
    exit_code(run(verb), code_of)
}

/// Runs `brisk`: starts a program that brisk has learned, or whose profile is named, or becomes `brisk-run` or `brisk-tools`.
pub fn launch() -> ExitCode {
    let arguments = program_links::own_arguments().collect::<Vec<_>>();
    if let Some(name) = program_links::link_without_program(&arguments) {
        let name = shown(name);
        say(&format!(
            "brisk: cannot run {name}: it is a link of brisk auto on, and PATH has no other program of this name; install \
             {name} again, or remove the link with brisk auto off {name}"
        ));
        return ExitCode::from(127);
    }
    let known = match launcher::plain_command(&arguments) {
        Some(command) => known_launch::become_known(command),
        None => NamedReplay::parse(&arguments).and_then(NamedReplay::become_program),
    };
    if let Some(error) = known {
        return exit_code(Err(error.into()), verbs::run::exit_code);
    }
    match launcher::verb_of_run(&arguments) {
        Some("mount") => end(launcher::become_run(arguments)),
        Some(_) => exit_code(launcher::become_run(arguments), verbs::run::exit_code),
        None => end(launcher::become_tools()),
    }
}

/// Runs `brisk-run`: starts a program, mounts an image, or becomes `brisk-tools`.
pub fn run_or_mount() -> ExitCode {
    let answer = match run_arguments::start_of_arguments() {
        Some(Start::Run(args)) if args.image_to_audit().is_some() => launcher::become_tools(),
        Some(Start::Run(args)) => verbs::run::start(&args),
        Some(Start::Replay(args)) => verbs::replay::run(&args),
        Some(Start::Mount(args)) => return end(verbs::mount::run(&args)),
        None => return end(launcher::become_tools()),
    };
    exit_code(answer, verbs::run::exit_code)
}

/// Ends a verb other than `run`.
fn end(answer: anyhow::Result<Answer>) -> ExitCode {
    exit_code(answer, |_| FAILED)
}

fn run(verb: Verb) -> anyhow::Result<Answer> {
    match verb {
        Verb::Pack(args) => verbs::pack::run(&args),
        Verb::Ls(args) => verbs::ls::run(&args),
        Verb::Cat(args) => verbs::cat::run(&args),
        Verb::Extract(args) => verbs::extract::run(&args),
        Verb::Info(args) => verbs::info::run(&args),
        Verb::Diff(args) => verbs::diff::run(&args),
        Verb::Repack(args) => verbs::repack::run(&args),
        Verb::Verity(args) => verbs::verity::run(&args),
        Verb::Sign(args) => verbs::sign::run(&args),
        Verb::Publish(args) => verbs::publish::run(&args),
        Verb::Push(args) => verbs::push::run(&args),
        Verb::Hot(args) => verbs::hot::run(&args),
        Verb::Profile(args) => verbs::profile::run(&args),
        Verb::Verify(args) => verbs::verify::run(&args),
        Verb::Trace(args) => verbs::trace::run(&args),
        Verb::Run(args) => verbs::run::run(&args),
        Verb::Bundle(args) => verbs::bundle::run(&args),
        Verb::Wrap(args) => verbs::wrap::run(&args),
        Verb::Replay(args) => verbs::replay::run(&args),
        Verb::Warm(args) => verbs::warm::run(&args),
        Verb::Auto(args) => verbs::auto::run(&args),
        Verb::Remote(args) => verbs::remote::run(&args),
        Verb::Cache(args) => verbs::cache::run(&args),
        Verb::Mount(args) => verbs::mount::run(&args),
        Verb::Stat(args) => verbs::stat::run(&args),
        Verb::Umount(args) => verbs::umount::run(&args),
        Verb::Lab(args) => launcher::become_lab(args.arguments),
        // These read the arguments again.
        Verb::Db(_) => launcher::become_db(),
        Verb::Proxy(_) => launcher::become_proxy(),
        Verb::Doctor(args) => verbs::doctor::run(&args),
        // Only the lab knows its own options.
        Verb::Manual(_) if launcher::has_lab() => {
            launcher::become_lab(program_links::own_arguments())
        }
        Verb::Manual(manual) => write_manual(&manual, None),
    }
}

/// Describes all verbs. `lab` describes the verb of that name, if `brisk-lab` is installed.
pub fn write_manual(manual: &Manual, lab: Option<Command>) -> anyhow::Result<Answer> {
    manual.write(Brisk::command(), lab)
}
