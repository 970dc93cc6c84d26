/*!
The `brisk` command: packs programs into small SquashFS images and starts them from there.

Each verb has a file of its own in `verbs`: its arguments, and a `run` that gives an `Answer`.
Data goes to stdout, messages to stderr.

There are two programs. A launch from cold reads brisk's own code first, so `brisk` holds only what
a launch needs ([`launch`]); for all else it becomes `brisk-tools` ([`all_verbs`]).
*/

mod answer;
mod args;
mod disk_rate;
mod hot_pack_args;
mod image_args;
mod json;
mod kernel_feature;
mod lab;
mod launcher;
mod messages;
mod names;
mod output_file;
mod page;
mod progress;
mod readiness;
mod size;
mod surroundings;
mod timeline;
mod verbs;
mod whole_file;

use std::io;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::answer::Answer;
use crate::args::{Brisk, Verb};
use crate::launcher::Start;

/// The exit code of a verb that failed, and of arguments that cannot be.
const FAILED: u8 = 2;

/// What `brisk-tools` does: any verb.
pub fn all_verbs() -> ExitCode {
    let verb = Brisk::parse().verb;
    let code_of = match &verb {
        Verb::Run(_) | Verb::Trace(_) => verbs::run::exit_code,
        Verb::Replay(args) if args.has_command() => verbs::run::exit_code,
        _ => |_: &anyhow::Error| FAILED,
    };
    exit_code(run(verb), code_of)
}

/// What `brisk` does: starts a program, or becomes `brisk-tools`.
pub fn launch() -> ExitCode {
    let answer = match launcher::start_of_arguments() {
        Some(Start::Run(args)) => verbs::run::start(&args, |_, _| launcher::become_tools()),
        Some(Start::Replay(args)) => verbs::replay::run(&args),
        None => return exit_code(launcher::become_tools(), |_| FAILED),
    };
    exit_code(answer, verbs::run::exit_code)
}

/// What `brisk-reads` does: prints how often each read of a job, its argument, allocates.
pub fn count_allocations(allocations: fn() -> usize) -> ExitCode {
    let job = std::env::args().nth(1).unwrap_or_default();
    let counted = lab::reads::count_allocations(&job, allocations);
    exit_code(counted.map(|()| Answer::Yes), |_| FAILED)
}

/// Says what failed, if something did.
fn exit_code(answer: anyhow::Result<Answer>, code_of: fn(&anyhow::Error) -> u8) -> ExitCode {
    match answer {
        Ok(Answer::Yes) => ExitCode::SUCCESS,
        Ok(Answer::No) => ExitCode::from(1),
        Ok(Answer::Exited(code)) => ExitCode::from(code),
        Err(e) if is_broken_pipe(&e) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("brisk: {}", names::printable(&format!("{e:#}")));
            ExitCode::from(code_of(&e))
        }
    }
}

fn run(verb: Verb) -> anyhow::Result<Answer> {
    match verb {
        Verb::Pack(args) => verbs::pack::run(&args),
        Verb::Ls(args) => verbs::ls::run(&args),
        Verb::Cat(args) => verbs::cat::run(&args),
        Verb::Extract(args) => verbs::extract::run(&args),
        Verb::Completions(args) => verbs::completions::run(&args, Brisk::command()),
        Verb::Man(args) => verbs::man::run(&args, Brisk::command()),
        Verb::Info(args) => verbs::info::run(&args),
        Verb::Diff(args) => verbs::diff::run(&args),
        Verb::Repack(args) => verbs::repack::run(&args),
        Verb::Hot(args) => verbs::hot::run(&args),
        Verb::Profile(args) => verbs::profile::run(&args),
        Verb::Verify(args) => verbs::verify::run(&args),
        Verb::Trace(args) => verbs::trace::run(&args),
        Verb::Run(args) => verbs::run::run(&args),
        Verb::Replay(args) => verbs::replay::run(&args),
        Verb::Warm(args) => verbs::warm::run(&args),
        Verb::Auto(args) => verbs::auto::run(&args),
        Verb::Mount(args) => verbs::mount::run(&args),
        Verb::Stat(args) => verbs::stat::run(&args),
        Verb::Umount(args) => verbs::umount::run(&args),
        Verb::Lab(args) => verbs::lab::run(&args),
        Verb::Doctor(args) => verbs::doctor::run(&args),
    }
}

/// True if whoever read our output went away, as `head` does: that is not a fault.
fn is_broken_pipe(e: &anyhow::Error) -> bool {
    e.chain().any(|cause| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    })
}
