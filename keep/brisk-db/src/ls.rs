use std::io::{self, BufWriter, Write};

use brisk_objects::{UntypedCollection, UntypedDatabase};
use brisk_terminal::answer::Answer;
use brisk_terminal::db_args::DbLsArgs;
use brisk_terminal::messages::warn;
use brisk_terminal::names::printable;
use serde_json::json;

use crate::key_words::{json_key, shown_key};
use crate::opening::open;

pub(crate) fn run(args: &DbLsArgs) -> anyhow::Result<Answer> {
    let database = open(&args.file)?;
    let mut out = BufWriter::new(io::stdout().lock());
    match &args.collection {
        Some(name) => keys(&mut out, args, database.collection(name)?)?,
        None => collections(&mut out, args, &database)?,
    }
    out.flush()?;
    Ok(Answer::Yes)
}

fn limit(args: &DbLsArgs) -> usize {
    let limit = args.limit.and_then(|limit| usize::try_from(limit).ok());
    limit.unwrap_or(usize::MAX)
}

fn collections(
    out: &mut impl Write,
    args: &DbLsArgs,
    database: &UntypedDatabase,
) -> anyhow::Result<()> {
    let names = database
        .collections()
        .map(|one| one.schema().collection.len());
    let width = names.max().unwrap_or(0).max(16);
    for collection in database.collections().take(limit(args)) {
        let (name, records) = (collection.schema().collection, collection.len()?);
        if args.json {
            writeln!(out, "{}", json!({"collection": name, "records": records}))?;
        } else {
            writeln!(out, "{:<width$}  {records:>12}", printable(name))?;
        }
    }
    for (name, why) in database.unreadable() {
        warn(&format!("the collection {name} cannot be read: {why}"));
    }
    Ok(())
}

fn keys(
    out: &mut impl Write,
    args: &DbLsArgs,
    collection: UntypedCollection<'_>,
) -> anyhow::Result<()> {
    let schema = collection.schema();
    let mut records = collection.query().iter()?;
    for _ in 0..limit(args) {
        let Some(key) = records.next_key_parts() else {
            break;
        };
        let key = key?;
        match args.json {
            true => writeln!(out, "{}", json_key(schema, &key))?,
            false => writeln!(out, "{}", printable(&shown_key(schema, &key)))?,
        }
    }
    Ok(())
}
