/*!
The program `brisk-db`: looks into any database of `brisk-objects`, checks it, and moves it.

`brisk db` becomes this program. It has LMDB, which no other program of brisk brings. It knows no type of any application:
what a record is, the file says (`brisk_objects::UntypedDatabase`).

# Where to begin

Each verb has a file of its own, with a function `run`. `record_json` has values as JSON, and `key_words` has keys as a
shell takes them. `opening` has the promise that opening a database asks for.

# Trust

No byte of a file is trusted, but for the pages of LMDB: see `UntypedDatabase`. `check` looks at those first, without LMDB.
*/
#![deny(unsafe_code)]

mod check;
mod condition;
mod dump;
mod get;
mod info;
mod key_words;
mod load;
mod ls;
mod opening;
mod query;
mod readers;
mod record_json;

use std::process::ExitCode;

use brisk_terminal::db_args::{DbAction, DbArgs};
use clap::Parser;

/// Looks into the database of a program, checks it, and moves it.
#[derive(Debug, Parser)]
#[command(
    name = "brisk-db",
    bin_name = "brisk db",
    version,
    max_term_width = 100
)]
struct Program {
    #[command(flatten)]
    args: DbArgs,
}

/// What `brisk-db` does: a verb, as its arguments say.
pub fn run() -> ExitCode {
    let args = Program::parse().args;
    brisk_terminal::answer::end(match &args.action {
        DbAction::Info(args) => info::run(args),
        DbAction::Ls(args) => ls::run(args),
        DbAction::Get(args) => get::run(args),
        DbAction::Query(args) => query::run(args),
        DbAction::Check(args) => check::run(args),
        DbAction::Dump(args) => dump::run(args),
        DbAction::Load(args) => load::run(args),
    })
}
