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
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::iter;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use brisk_io::{ends_are_cached, will_read_all};
use brisk_mount::become_command;
use clap::{Args, FromArgMatches};

use crate::answer::Answer;
use crate::desktop_entries::data_of_user;
use crate::verbs::{mount, replay, run};

/// The most symbolic links on the way to brisk that are looked at, as many as the kernel follows.
const MOST_LINKS: usize = 40;

/// The links of `brisk auto on`, in the data directory of the user.
pub const LINKS: &str = "brisk/bin";

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

/// What `brisk-run` does itself.
pub enum Start {
    Run(Box<run::Args>),
    Replay(replay::Args),
    Mount(mount::Args),
}

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

/// The arguments of this process. Of a link with the name of a program, those that start the program.
pub fn own_arguments() -> impl Iterator<Item = OsString> {
    let mut arguments = env::args_os();
    let program = arguments.next().and_then(|name| linked_program(&name));
    let start = program.map(|program| ["run".into(), "--auto".into(), "--".into(), program.into()]);
    start.into_iter().flatten().chain(arguments)
}

/// The program that is started under this name, if the name is none of brisk's own. Without a program of such a name, this is
/// brisk itself under another name.
fn linked_program(called: &OsStr) -> Option<PathBuf> {
    names_of(called).find_map(|name| next_in_path(&name))
}

/// The name that this process was called by, and those of the links that it leads to, up to brisk's own.
fn names_of(called: &OsStr) -> impl Iterator<Item = OsString> {
    let first = match called.as_bytes().contains(&b'/') {
        true => Some(PathBuf::from(called)),
        // As the shell has found it.
        false => env::var_os("PATH")
            .and_then(|search| {
                let mut found = env::split_paths(&search).map(|directory| directory.join(called));
                found.find(|path| path.is_file())
            })
            .or_else(|| Some(called.into())),
    };
    let next = |link: &PathBuf| {
        let target = fs::read_link(link).ok()?;
        Some(link.parent()?.join(target))
    };
    let links = iter::successors(first, next).take(MOST_LINKS);
    let names = links.filter_map(|link| link.file_name().map(OsStr::to_owned));
    names.take_while(|name| !is_own_name(name))
}

fn is_own_name(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b"brisk")
}

/// The name of this process if `brisk auto on` has made a link of that name, and its program is gone. `arguments` are the
/// [`own_arguments`].
pub fn link_without_program(arguments: &[OsString]) -> Option<OsString> {
    let mut given = env::args_os();
    let called = given.next()?;
    // Those of a link whose program is there begin with `run`.
    let is_brisk = given.len() == arguments.len();
    let mut names = names_of(&called).filter(|_| is_brisk);
    names.find(|name| is_linked(name))
}

/// Whether `brisk auto on` has made a link of this name, for this user.
fn is_linked(name: &OsStr) -> bool {
    data_of_user().is_ok_and(|data| is_link_to_brisk(&data.join(LINKS).join(name)))
}

/// Whether this is a link to a brisk, which may be gone.
pub fn is_link_to_brisk(link: &Path) -> bool {
    let target = fs::read_link(link);
    target.is_ok_and(|target| target.file_name() == Some(OsStr::new("brisk")))
}

/// The first program of this name in `PATH` that is no link to brisk.
pub fn next_in_path(name: &OsStr) -> Option<PathBuf> {
    let own = env::current_exe().and_then(|own| own.canonicalize()).ok()?;
    let brisk = own.with_file_name("brisk");
    let search = env::var_os("PATH")?;
    let mut found = env::split_paths(&search).map(|directory| directory.join(name));
    found.find(|path| {
        let is_program = path
            .metadata()
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0);
        let real = path.canonicalize();
        is_program && real.is_ok_and(|real| real != own && real != brisk)
    })
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
