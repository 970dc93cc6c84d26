//! Links to brisk that have the names of other programs (`brisk auto on`), and what `PATH` has behind them.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::iter;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::desktop_entries::data_of_user;

/// The most symbolic links on the way to brisk that are looked at, as many as the kernel follows.
const MOST_LINKS: usize = 40;

/// The links of `brisk auto on`, in the data directory of the user.
pub const LINKS: &str = "brisk/bin";

/// The arguments of this process. Of a link with the name of a program, those that start the program.
pub fn own_arguments() -> impl Iterator<Item = OsString> {
    let mut arguments = env::args_os();
    let program = arguments.next().and_then(|name| linked_program(&name));
    let start = program.map(|program| ["run".into(), "--auto".into(), "--".into(), program.into()]);
    start.into_iter().flatten().chain(arguments)
}

/// The program that is started under this name, if the name is none of brisk's own. The last link before brisk says which: one
/// to a link of `brisk auto on` may have the name of another program. Without a program of such a name, this is brisk itself
/// under another name.
fn linked_program(called: &OsStr) -> Option<PathBuf> {
    names_of(called)
        .filter_map(|name| next_in_path(&name))
        .last()
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
