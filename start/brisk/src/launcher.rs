//! The programs of brisk, and how one becomes another.
//!
//! `brisk` is small, because a cold launch reads its code before anything else. It starts by itself only a program that
//! brisk has learned (`brisk run --auto -- CMD`, without other options), or one beside the replay of a profile
//! ([`named_replay`](crate::named_replay)). To start programs otherwise and to mount images, it becomes `brisk-run`, which
//! has the decoders, and for everything else `brisk-tools`, which has all verbs. Both are installed beside it. `brisk-run`
//! also becomes `brisk-tools` for help and for wrong arguments. For `brisk lab`, that becomes `brisk-lab`, for `brisk proxy` it
//! becomes `brisk-proxy`, and for `brisk db` it becomes `brisk-db`.
//!
//! A link to `brisk` that has the name of another program (`brisk auto on`) starts that program, as `brisk run --auto` does.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::iter;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use brisk_io::{ends_are_cached, will_read_all};
use brisk_launch::become_command;
use brisk_terminal::answer::Answer;

use crate::program_links::own_arguments;

/// The program that serves from a cache. It may not be installed.
const PROXY: &str = "brisk-proxy";

/// The program that looks into databases. It may not be installed.
const DB: &str = "brisk-db";

/// The programs that start others and do all verbs but `lab`. They are installed in one directory.
pub const PROGRAMS: [&str; 3] = ["brisk", RUN, TOOLS];

/// The program that starts others from images, directories and profiles, and mounts images.
pub const RUN: &str = "brisk-run";

/// The program that has all verbs.
pub const TOOLS: &str = "brisk-tools";

/// The program that measures. It may not be installed.
const LAB: &str = "brisk-lab";

/// Asks the kernel to read all of a large program at once, unless it seems to be in memory. The code that runs is scattered
/// over the file: without this, brisk waits for many page faults, and each reads a small piece.
fn read_code(program: &Path) {
    let read = || -> io::Result<()> {
        let program = File::open(program)?;
        let len = program.metadata()?.len();
        match ends_are_cached(&program, 0, len) {
            Some(true) => Ok(()),
            _ => will_read_all(&program),
        }
    };
    // brisk works without this, only slower.
    read().ok();
}

/// The command of `run --auto -- CMD`, if there are no other options.
pub fn plain_command(arguments: &[OsString]) -> Option<Vec<OsString>> {
    let [run, auto, end, command @ ..] = arguments else {
        return None;
    };
    let is_plain = run == "run" && auto == "--auto" && end == "--" && !command.is_empty();
    is_plain.then(|| command.to_vec())
}

/// The verb, if `brisk-run` does it.
pub fn verb_of_run(arguments: &[OsString]) -> Option<&str> {
    let (verb, rest) = arguments.split_first()?;
    let verb = verb.to_str()?;
    let is_of_run = match verb {
        "run" | "mount" => true,
        // Without a command, it starts nothing.
        "replay" => rest.iter().any(|argument| argument == "--"),
        _ => false,
    };
    is_of_run.then_some(verb)
}

/// Becomes `brisk-run`. Returns only if that fails.
pub fn become_run(arguments: Vec<OsString>) -> anyhow::Result<Answer> {
    if let Ok(program) = beside(RUN) {
        read_code(&program);
    }
    become_program(
        RUN,
        arguments,
        "brisk needs it to start programs and to mount images; install it again beside brisk",
    )
}

/// Becomes `brisk-tools`. Returns only if that fails.
pub fn become_tools() -> anyhow::Result<Answer> {
    become_program(
        TOOLS,
        own_arguments(),
        "brisk needs it for everything except starting programs and mounting; install it again beside brisk",
    )
}

/// Becomes `brisk-lab`. Returns only if that fails.
pub fn become_lab(arguments: impl IntoIterator<Item = OsString>) -> anyhow::Result<Answer> {
    become_program(
        LAB,
        arguments,
        "brisk lab needs it; install it beside brisk, as make install does",
    )
}

/// Becomes `brisk-proxy`. Returns only if that fails.
pub fn become_proxy() -> anyhow::Result<Answer> {
    become_program(
        PROXY,
        own_arguments().skip(1),
        "brisk proxy needs it; install it beside brisk, as make install does",
    )
}

/// Becomes `brisk-db`. Returns only if that fails.
pub fn become_db() -> anyhow::Result<Answer> {
    become_program(
        DB,
        own_arguments().skip(1),
        "brisk db needs it; install it beside brisk, as make install does",
    )
}

/// Whether `brisk-lab` is installed.
pub fn has_lab() -> bool {
    beside(LAB).is_ok_and(|lab| lab.exists())
}

/// The arguments for `brisk-lab` if the user asks for its help, as in `brisk help lab launch`.
pub fn for_lab() -> Option<Vec<OsString>> {
    let mut arguments = own_arguments();
    let is_help = arguments.next()? == "help" && arguments.next()? == "lab";
    is_help.then(|| iter::once("help".into()).chain(arguments).collect())
}

/// Becomes the program `name`. If that fails, the error has `what`: what the program is for, and how to get
/// it.
fn become_program(
    name: &str,
    arguments: impl IntoIterator<Item = OsString>,
    what: &str,
) -> anyhow::Result<Answer> {
    let program = beside(name).context("cannot find brisk's own file")?;
    let error = become_command(Command::new(&program).args(arguments));
    Err(error).with_context(|| format!("cannot start {}; {what}", program.display()))
}

/// The path of brisk's program `name`, in the directory of this one.
pub fn beside(name: &str) -> io::Result<PathBuf> {
    Ok(env::current_exe()?.with_file_name(name))
}
