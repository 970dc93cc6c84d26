use std::io::{self, BufWriter, Write};

use brisk_objects::{Error, Schema, UntypedCollection, UntypedQuery};
use brisk_terminal::answer::Answer;
use brisk_terminal::db_args::DbQueryArgs;

use crate::condition::Condition;
use crate::key_words::{parse_key, parse_whole_key};
use crate::opening::open;
use crate::record_json::{Shown, write_line};

pub(crate) fn run(args: &DbQueryArgs) -> anyhow::Result<Answer> {
    let database = open(&args.file)?;
    let collection = database.collection(&args.collection)?;
    let schema = collection.schema();
    let query = query(args, collection)?;
    let conditions = args
        .conditions
        .iter()
        .map(|text| Condition::parse(schema, text));
    let conditions = conditions.collect::<anyhow::Result<Vec<_>>>()?;
    let mut out = BufWriter::new(io::stdout().lock());
    if args.explain {
        writeln!(out, "{}", explanation(args, &query, &conditions))?;
    } else {
        print(&mut out, args, schema, &query, &conditions)?;
    }
    out.flush()?;
    Ok(Answer::Yes)
}

fn query<'d>(
    args: &DbQueryArgs,
    collection: UntypedCollection<'d>,
) -> anyhow::Result<UntypedQuery<'d>> {
    let schema = collection.schema();
    let mut query = collection.query();
    if let Some(index) = &args.by {
        query = query.by(index)?;
    }
    let fields = query.fields();
    let parts = |word: &String, what: &str| {
        let words = std::slice::from_ref(word);
        parse_key(schema, fields, words, what)
    };
    if let Some(word) = &args.from {
        query = query.from(&parts(word, "--from")?)?;
    }
    if let Some(word) = &args.to {
        query = query.to(&parts(word, "--to")?)?;
    }
    if let Some(word) = &args.prefix {
        query = query.prefix(&parts(word, "--prefix")?)?;
    }
    if args.reverse {
        query = query.rev();
    }
    if let Some(word) = &args.after {
        let words = std::slice::from_ref(word);
        let after = query.after(&parse_whole_key(schema, words, "--after")?);
        query = after.map_err(|e| match e {
            Error::Missing { collection, key } => anyhow::anyhow!(
                "--after: {collection} has no record with the key {key}, which would say where the index goes on; name one \
                 that there is, or use --from"
            ),
            e => e.into(),
        })?;
    }
    Ok(query)
}

/// Without a condition, nobody has to look at records to count them.
fn reads_keys_only(args: &DbQueryArgs, conditions: &[Condition]) -> bool {
    args.count && conditions.is_empty()
}

fn print(
    out: &mut impl Write,
    args: &DbQueryArgs,
    schema: &Schema,
    query: &UntypedQuery<'_>,
    conditions: &[Condition],
) -> anyhow::Result<()> {
    let mut left = args.limit.unwrap_or(u64::MAX);
    let mut records = query.iter()?;
    let mut count = 0u64;
    while left > 0 {
        if reads_keys_only(args, conditions) {
            match records.next_key_parts() {
                Some(key) => key?,
                None => break,
            };
        } else {
            let Some(record) = records.next().transpose()? else {
                break;
            };
            if !conditions
                .iter()
                .all(|condition| condition.is_true_of(&record))
            {
                continue;
            }
            if !args.count {
                write_line(out, &Shown::record(schema, &record))?;
            }
        }
        count = count.saturating_add(1);
        left = left.saturating_sub(1);
    }
    if args.count {
        writeln!(out, "{count}")?;
    }
    Ok(())
}

fn explanation(args: &DbQueryArgs, query: &UntypedQuery<'_>, conditions: &[Condition]) -> String {
    let mut all = match reads_keys_only(args, conditions) {
        true => query.explain_keys(),
        false => query.explain(),
    };
    for condition in conditions {
        all.push_str("; only where ");
        all.push_str(condition.text());
    }
    if let Some(limit) = args.limit {
        all.push_str(&format!("; take {limit}"));
    }
    if args.count {
        all.push_str("; count");
    }
    brisk_terminal::names::printable(&all).into_owned()
}
