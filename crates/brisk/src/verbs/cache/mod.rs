//! `brisk cache`: looks at the caches of programs, checks them, and makes them smaller.

mod code_cache;
mod explain;
mod get;
mod holders;
mod http_responses;
mod key;
mod ls;
mod prune;
mod stat;
mod verify;

use std::io;
use std::path::{Path, PathBuf};

use brisk_cache::Inspection;
use clap::Subcommand;

use crate::answer::Answer;
use crate::messages::count;
use code_cache::CodeCacheFiles;

/// What to do with a cache.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A cache is a directory that programs open with the library brisk-cache. stat, ls, get, explain and verify only read: they \
write nothing and take no lock, so they do not disturb the programs that use the cache, and they trust nothing that they \
read. prune and clear wait for the lock as every writer does, and refuse a directory that others may write.\n\n\
A key can be any bytes. On a terminal, brisk escapes characters that the terminal would obey. --hex takes a key as \
hexadecimal digits.")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Shows what a cache is, how much is in it, and where.
    Stat(stat::Args),
    /// Lists the keys of a cache.
    Ls(ls::Args),
    /// Writes the value of a key to stdout. Exits with 1 if the cache does not have it.
    Get(get::Args),
    /// Says step by step why a key is found or not. Exits with 1 if it is not.
    Explain(explain::Args),
    /// Reads all of a cache, and compares it with its checks. Exits with 1 if something is damaged.
    Verify(verify::Args),
    /// Removes the oldest entries of a cache.
    Prune(prune::PruneArgs),
    /// Removes all entries of a cache.
    Clear(prune::ClearArgs),
}

/// The directory of a cache.
#[derive(Debug, clap::Args)]
struct DirectoryArg {
    /// The directory of the cache.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub fn run(args: &Args) -> anyhow::Result<Answer> {
    match &args.action {
        Action::Stat(args) => stat::run(args),
        Action::Ls(args) => ls::run(args),
        Action::Get(args) => get::run(args),
        Action::Explain(args) => explain::run(args),
        Action::Verify(args) => verify::run(args),
        Action::Prune(args) => prune::prune(args),
        Action::Clear(args) => prune::clear(args),
    }
}

/// A directory that programs of brisk's libraries fill.
enum Directory {
    Cache(Inspection),
    CodeCache(CodeCacheFiles),
}

/// Finds out what the directory is, from the headers of its files.
fn recognise(directory: &Path) -> anyhow::Result<Directory> {
    match Inspection::open(directory) {
        Ok(inspection) => Ok(Directory::Cache(inspection)),
        Err(e) if e.kind() == io::ErrorKind::InvalidData => {
            match CodeCacheFiles::find(directory)? {
                Some(files) => Ok(Directory::CodeCache(files)),
                None => Err(e.into()),
            }
        }
        Err(e) => Err(e.into()),
    }
}

/// Opens a cache to look at it.
fn open(directory: &Path) -> anyhow::Result<Inspection> {
    match recognise(directory)? {
        Directory::Cache(inspection) => Ok(inspection),
        Directory::CodeCache(files) => anyhow::bail!(
            "{}: a cache of generated code of an older brisk, with {}, of which brisk cache stat alone knows something; \
             no program of this version finds them, so remove them",
            directory.display(),
            count(files.entries, "entry", "entries")
        ),
    }
}
