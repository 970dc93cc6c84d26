//! `brisk cache`: looks at the caches of programs, checks them, and makes them smaller.

mod code_cache;
mod directory_arg;
pub mod explain;
pub mod get;
mod holders;
mod http_responses;
mod key;
pub mod ls;
pub mod prune;
pub mod stat;
pub mod verify;

use brisk_terminal::answer::Answer;
use clap::Subcommand;

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
