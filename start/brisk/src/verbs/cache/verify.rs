use std::borrow::Cow;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use brisk_cache::Damage;
use brisk_terminal::answer::Answer;
use brisk_terminal::messages::count;
use brisk_terminal::names::{printable, shown};
use serde::Serialize;

use super::directory_arg::DirectoryArg;
use super::key::shown_key;
use crate::json;
use crate::progress::Progress;

/// How many faults are described. The others are counted.
const DESCRIBED: usize = 100;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Reads the ledger, each slot of the index, and the header, the records and the values of each file. Prints a line for each \
of the first 100 faults, with the file and the byte, and counts the others. To a program that uses the cache, a fault is \
a missing entry and nothing more.\n\n\
Exits with 0 if the cache is sound, with 1 if something is damaged, and with 2 if brisk cannot read it.")]
pub(super) struct Args {
    #[command(flatten)]
    cache: DirectoryArg,

    /// Prints JSON.
    #[arg(long)]
    json: bool,

    /// Shows no progress.
    #[arg(short, long)]
    quiet: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Answer> {
    let inspection = super::directory_arg::open(&args.cache.directory)?;
    let progress = Progress::new(None, args.quiet);
    let read = progress.callback();
    let mut described: Vec<Damage> = Vec::new();
    let mut written = Ok(());
    let done = inspection.verify(
        |bytes| {
            // It never cancels.
            let _: std::ops::ControlFlow<()> = read(bytes);
        },
        |damage| {
            if described.len() >= DESCRIBED {
                return;
            }
            if !args.json && written.is_ok() {
                written = writeln!(io::stdout().lock(), "{}", line(&damage));
            }
            described.push(damage);
        },
    )?;
    drop(progress);
    written?;
    let more = done.faults.saturating_sub(described.len() as u64);
    if args.json {
        json::print(&VerifyJson {
            sound: done.faults == 0,
            entries: done.entries,
            bytes: done.bytes,
            files: done.files,
            changed: done.changed,
            faults: described.iter().map(DamageJson::of).collect(),
            more_faults: more,
        })?;
    } else {
        let cache = shown(&args.cache.directory);
        let mut out = io::stdout().lock();
        writeln!(
            out,
            "{cache}: read {} ({} of values) in {}",
            count(done.entries, "entry", "entries"),
            count(done.bytes, "byte", "bytes"),
            count(done.files, "file", "files"),
        )?;
        if done.changed > 0 {
            writeln!(
                out,
                "{cache}: {} replaced meanwhile",
                count(done.changed, "entry was", "entries were")
            )?;
        }
        if more > 0 {
            writeln!(out, "{cache}: and {more} more")?;
        }
        match done.faults {
            0 => writeln!(out, "{cache}: sound")?,
            n => writeln!(out, "{cache}: damaged, {}", count(n, "fault", "faults"))?,
        }
        out.flush()?;
    }
    Ok(match done.faults {
        0 => Answer::Yes,
        _ => Answer::No,
    })
}

fn line(damage: &Damage) -> String {
    let key = damage.key.as_deref();
    let key = key.map(|key| format!(" (key {})", shown_key(key)));
    let text = printable(&damage.to_string()).into_owned();
    format!("{text}{}", key.unwrap_or_default())
}

/// What `brisk cache verify --json` prints.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VerifyJson<'a> {
    /// Whether brisk found no fault.
    sound: bool,
    /// Entries that are right.
    entries: u64,
    /// Size of their values.
    bytes: u64,
    /// Files with records.
    files: u64,
    /// Entries that were replaced or removed while brisk read them.
    changed: u64,
    /// The first 100 faults.
    faults: Vec<DamageJson<'a>>,
    /// Faults beyond the first 100.
    more_faults: u64,
}

/// Something that is damaged.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DamageJson<'a> {
    /// Name of the damaged file.
    file: &'a str,
    /// Byte of it at which the damaged header, slot, record or chunk begins.
    at: u64,
    /// What is wrong.
    message: &'a str,
    /// The key that cannot be read for that reason.
    ///
    /// Absent if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_hex: Option<String>,
}

impl<'a> DamageJson<'a> {
    pub(super) fn of(damage: &'a Damage) -> Self {
        let (key, key_hex) = json::optional_name(damage.key.as_deref().map(OsStr::from_bytes));
        Self {
            file: &damage.file,
            at: damage.at,
            message: &damage.message,
            key,
            key_hex,
        }
    }
}
