use std::io::{self, BufWriter, Write};

use anyhow::Context;
use brisk_objects::{Error, UntypedCollection};
use brisk_terminal::answer::Answer;
use brisk_terminal::db_args::DbDumpArgs;
use brisk_terminal::messages::{count, warn};
use serde::{Deserialize, Serialize};

use crate::opening::open;
use crate::record_json::{Shown, write_line};

/// The version of the lines.
pub(crate) const VERSION: u64 = 1;

/// The line before the records of a collection.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Header {
    #[serde(rename = "brisk-objects")]
    pub(crate) version: u64,
    pub(crate) collection: String,
    pub(crate) layout: String,
    pub(crate) indexes: Vec<String>,
    /// The next automatic key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<u64>,
    /// How many records follow. None: nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) records: Option<u64>,
}

pub(crate) fn run(args: &DbDumpArgs) -> anyhow::Result<Answer> {
    let database = open(&args.file)?;
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let mut skipped = 0u64;
    if args.collections.is_empty() {
        // All means all: what cannot be read is an error.
        if let Some((name, _)) = database.unreadable().first() {
            let why = "name the collections that you want to dump without it";
            return database.collection(name).map(|_| Answer::Yes).context(why);
        }
        for collection in database.collections() {
            dump(&mut out, args, collection, &mut skipped)?;
        }
    }
    for name in &args.collections {
        dump(&mut out, args, database.collection(name)?, &mut skipped)?;
    }
    out.flush()?;
    if skipped > 0 {
        let records = count(skipped, "record", "records");
        warn(&format!("{records} left out, because of damage"));
        return Ok(Answer::No);
    }
    Ok(Answer::Yes)
}

fn dump(
    out: &mut impl Write,
    args: &DbDumpArgs,
    collection: UntypedCollection<'_>,
    skipped: &mut u64,
) -> anyhow::Result<()> {
    let schema = collection.schema();
    let header = Header {
        version: VERSION,
        collection: schema.collection.to_owned(),
        layout: schema.layout_text(),
        indexes: schema.indexes.iter().map(ToString::to_string).collect(),
        next: collection.next_key()?,
        records: match args.skip_damaged {
            true => None,
            false => Some(collection.len()?),
        },
    };
    write_line(out, &header)?;
    for record in collection.query().iter()? {
        match record {
            Ok(record) => write_line(out, &Shown::record(schema, &record))?,
            Err(Error::Damaged { key, .. }) if args.skip_damaged => {
                *skipped = skipped.saturating_add(1);
                warn(&format!(
                    "the record of {} with the key {key} is damaged",
                    schema.collection
                ));
            }
            Err(e) => return Err(e).context("--skip-damaged leaves such records out"),
        }
    }
    Ok(())
}
