//! The arguments of `brisk db`, for which brisk becomes `brisk-db`.
//!
//! They are here and not there, so that help, man pages and completions have them too. Both programs read them.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::size::parse_size;

/// What to do with a database.
#[derive(Debug, Args)]
#[command(after_help = "\
A database is a file that programs open with the library brisk-objects. It says in words which collections it has, and what \
their records are, so brisk needs no type of the program. info, ls, get, query, check and dump read the state of one moment, \
and change nothing; programs may go on meanwhile. load waits for the lock as every writer does. Only LMDB may write to the \
file meanwhile: do not copy over it.\n\n\
A KEY is a word: a text as it is, a number, a time such as 2026-01-31T12:00:00Z, hexadecimal digits for bytes, null for no \
value. A key of several parts is a JSON array, such as '[\"north\", 5]'; get takes its parts as several words, too.\n\n\
brisk checks what it reads of records, keys and indexes. The pages between belong to LMDB, which trusts them: if the file \
comes from strangers or from a failing disk, begin with brisk db check, which looks at them without LMDB.\n\n\
Exits with 1 if get finds no record, if check finds a fault, and if dump --skip-damaged leaves out a record.\n\n\
Examples:\n  \
brisk db info ledger.db\n  \
brisk db query ledger.db invoices --by customer --from ann --to bob --where 'cents>1000'\n  \
brisk db dump ledger.db | brisk db load copy.db")]
pub struct DbArgs {
    /// What to do.
    #[command(subcommand)]
    pub action: DbAction,
}

/// What `brisk db` does.
#[derive(Debug, Subcommand)]
pub enum DbAction {
    /// Shows what a database has: its size, its readers, its collections, their layouts and indexes.
    Info(DbInfoArgs),
    /// Lists the collections of a database, or the keys of one.
    Ls(DbLsArgs),
    /// Prints the record of a key. Exits with 1 if there is none.
    Get(DbGetArgs),
    /// Prints records in the order of their keys or of an index, one on each line.
    Query(DbQueryArgs),
    /// Reads all of a database, and compares pages, records and indexes. Exits with 1 if something is damaged.
    Check(DbCheckArgs),
    /// Writes collections as lines of JSON, which load reads.
    Dump(DbDumpArgs),
    /// Makes a database from the lines of dump on stdin, or adds the records to one: all or none.
    Load(DbLoadArgs),
}

/// The file of a database.
#[derive(Debug, Args)]
pub struct DbInfoArgs {
    /// The file of the database.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Prints JSON.
    #[arg(long)]
    pub json: bool,
}

/// Which names to list.
#[derive(Debug, Args)]
pub struct DbLsArgs {
    /// The file of the database.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Lists the keys of this collection.
    #[arg(value_name = "COLLECTION")]
    pub collection: Option<String>,
    /// Lists so many at most.
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// Prints JSON, one object or key on each line.
    #[arg(long)]
    pub json: bool,
}

/// Which record to print.
#[derive(Debug, Args)]
pub struct DbGetArgs {
    /// The file of the database.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The collection.
    #[arg(value_name = "COLLECTION")]
    pub collection: String,
    /// The key: a word for each of its parts, or a JSON array.
    #[arg(value_name = "KEY", required = true, allow_negative_numbers = true)]
    pub key: Vec<String>,
}

/// Which records to print.
#[derive(Debug, Args)]
pub struct DbQueryArgs {
    /// The file of the database.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The collection.
    #[arg(value_name = "COLLECTION")]
    pub collection: String,
    /// Goes through this index. --from, --to and --prefix are then of its fields.
    #[arg(long, value_name = "INDEX")]
    pub by: Option<String>,
    /// Begins with this key. Of a key of several parts, the first ones are enough.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub from: Option<String>,
    /// Ends with this key, and with all that have it as their first parts.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub to: Option<String>,
    /// Only keys that begin so: with these parts, of which the last one, if it is a text, may go on.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub prefix: Option<String>,
    /// Only records whose field is so. May be repeated. FIELD may be in a field, as in first.text; besides = there are !=, <,
    /// <=, > and >=.
    #[arg(long = "where", value_name = "FIELD=VALUE", allow_hyphen_values = true)]
    pub conditions: Vec<String>,
    /// Prints so many at most.
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// In descending order.
    #[arg(long)]
    pub reverse: bool,
    /// Only what comes behind the record of this key: the next page.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub after: Option<String>,
    /// Prints how many records there are, instead of them.
    #[arg(long)]
    pub count: bool,
    /// Says what the query would do, and does not do it.
    #[arg(long)]
    pub explain: bool,
}

/// What to check.
#[derive(Debug, Args)]
pub struct DbCheckArgs {
    /// The file of the database.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Prints JSON.
    #[arg(long)]
    pub json: bool,
}

/// What to dump.
#[derive(Debug, Args)]
pub struct DbDumpArgs {
    /// The file of the database.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Only these collections.
    #[arg(value_name = "COLLECTION")]
    pub collections: Vec<String>,
    /// Leaves out records that are damaged, and names them. Otherwise the first one is an error.
    #[arg(long)]
    pub skip_damaged: bool,
}

/// Where to load.
#[derive(Debug, Args)]
pub struct DbLoadArgs {
    /// The file of the database. It is made if it does not exist.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Replaces records that have the same keys. Otherwise one is an error.
    #[arg(long)]
    pub replace: bool,
    /// How large the file may become.
    #[arg(long, value_name = "SIZE", value_parser = parse_limit, default_value = "1024G")]
    pub limit: u64,
}

fn parse_limit(text: &str) -> anyhow::Result<u64> {
    match parse_size(text)? {
        0 => anyhow::bail!("allowed is a size above 0, such as 500M"),
        limit => Ok(limit),
    }
}
