use std::io::{self, BufWriter, Write};

use anyhow::Context;
use brisk_objects::{TableSize, Type, UntypedCollection, UntypedDatabase};
use brisk_terminal::answer::Answer;
use brisk_terminal::db_args::DbInfoArgs;
use brisk_terminal::messages::count;
use brisk_terminal::names::printable;
use serde_json::{Value, json};

use crate::opening::open;
use crate::readers::{self, Reader};

pub(crate) fn run(args: &DbInfoArgs) -> anyhow::Result<Answer> {
    // Before the database is open: see there.
    let readers = readers::find(&args.file);
    let database = open(&args.file)?;
    let readers = readers.context("cannot read who reads the database")?;
    let mut out = BufWriter::new(io::stdout().lock());
    match args.json {
        true => {
            let text = serde_json::to_string_pretty(&to_json(&database, &readers)?)?;
            writeln!(out, "{text}")?;
        }
        false => print(&mut out, args, &database, &readers)?,
    }
    out.flush()?;
    Ok(Answer::Yes)
}

fn print(
    out: &mut impl Write,
    args: &DbInfoArgs,
    database: &UntypedDatabase,
    readers: &[Reader],
) -> anyhow::Result<()> {
    writeln!(
        out,
        "{}: a database of brisk-objects, format {}",
        printable(&args.file.display().to_string()),
        database.version()
    )?;
    writeln!(
        out,
        "  file           {}, of at most {}",
        count(database.file_bytes()?, "byte", "bytes"),
        database.limit()
    )?;
    writeln!(
        out,
        "  pages          {} of {} bytes, {} of them with entries",
        database.pages(),
        database.page_size(),
        pages_in_use(database)?
    )?;
    writeln!(out, "  transactions   {}", database.last_transaction())?;
    let dead = readers.iter().filter(|reader| !reader.is_alive).count();
    let dead = u64::try_from(dead).unwrap_or(u64::MAX);
    let taken = u64::try_from(readers.len()).unwrap_or(u64::MAX);
    let killed = match dead {
        0 => String::new(),
        dead => format!(", {dead} of killed processes, which the next program takes back"),
    };
    writeln!(
        out,
        "  readers        {taken} of {} places{killed}",
        database.reader_places()
    )?;
    for reader in readers.iter().filter(|reader| reader.is_alive) {
        let state = match reader.transaction {
            Some(number) => format!("reads the state of transaction {number}"),
            None => "has the file open".to_owned(),
        };
        writeln!(out, "                 process {} {state}", reader.process)?;
    }
    for collection in database.collections() {
        print_collection(out, collection)?;
    }
    for (name, why) in database.unreadable() {
        writeln!(
            out,
            "\n{}: cannot be read: {}",
            printable(name),
            printable(why)
        )?;
    }
    Ok(())
}

fn print_collection(out: &mut impl Write, collection: UntypedCollection<'_>) -> anyhow::Result<()> {
    let schema = collection.schema();
    let tree = collection.records_size()?;
    writeln!(
        out,
        "\n{}: {}",
        printable(schema.collection),
        size_in_words(&tree, "record", "records")
    )?;
    writeln!(out, "  layout         {:016x}", schema.layout_fingerprint())?;
    let next = match (schema.is_auto, collection.next_key()?) {
        (false, _) => String::new(),
        (true, None) => ", automatic".to_owned(),
        (true, Some(next)) => format!(", automatic, next {next}"),
    };
    writeln!(
        out,
        "  key            {}{next}",
        printable(&schema.key.join(", "))
    )?;
    let Type::Struct(fields) = schema.layout else {
        return Ok(());
    };
    for (number, field) in fields.iter().enumerate() {
        let title = if number == 0 { "fields" } else { "" };
        let text = format!("{}: {}", field.name, field.kind);
        writeln!(out, "  {title:<15}{}", printable(&text))?;
    }
    for (index, tree) in schema.indexes.iter().zip(collection.index_sizes()?) {
        writeln!(
            out,
            "  index          {}: {}",
            printable(&index.to_string()),
            size_in_words(&tree, "entry", "entries")
        )?;
    }
    Ok(())
}

fn size_in_words(tree: &TableSize, one: &str, many: &str) -> String {
    format!(
        "{} on {}, {}",
        count(tree.entries, one, many),
        count(tree.pages(), "page", "pages"),
        count(tree.depth.into(), "level", "levels")
    )
}

fn pages_in_use(database: &UntypedDatabase) -> anyhow::Result<u64> {
    let mut pages = database.about_size()?.pages();
    for collection in database.collections() {
        pages = pages.saturating_add(collection.records_size()?.pages());
        for tree in collection.index_sizes()? {
            pages = pages.saturating_add(tree.pages());
        }
    }
    Ok(pages)
}

fn to_json(database: &UntypedDatabase, readers: &[Reader]) -> anyhow::Result<Value> {
    let collections = database.collections().map(collection_to_json);
    let collections = collections.collect::<anyhow::Result<Vec<_>>>()?;
    let readers = readers.iter().map(|reader| {
        json!({
            "pid": reader.process,
            "transaction": reader.transaction,
            "alive": reader.is_alive,
        })
    });
    let unreadable = database.unreadable().iter();
    let unreadable = unreadable.map(|(name, why)| json!({"collection": name, "reason": why}));
    Ok(json!({
        "format": database.version(),
        "bytes": database.file_bytes()?,
        "limit_bytes": database.limit(),
        "page_bytes": database.page_size(),
        "pages": database.pages(),
        "pages_with_entries": pages_in_use(database)?,
        "last_transaction": database.last_transaction(),
        "reader_places": database.reader_places(),
        "readers": readers.collect::<Vec<_>>(),
        "collections": collections,
        "unreadable": unreadable.collect::<Vec<_>>(),
    }))
}

fn collection_to_json(collection: UntypedCollection<'_>) -> anyhow::Result<Value> {
    let schema = collection.schema();
    let indexes = schema.indexes.iter().zip(collection.index_sizes()?);
    let indexes = indexes.map(|(index, tree)| {
        json!({
            "name": index.name,
            "fields": index.fields,
            "unique": index.is_unique,
            "tree": size_to_json(&tree),
        })
    });
    Ok(json!({
        "collection": schema.collection,
        "records": collection.len()?,
        "layout": schema.layout_text(),
        "fingerprint": format!("{:016x}", schema.layout_fingerprint()),
        "key": schema.key,
        "automatic": schema.is_auto,
        "next_key": collection.next_key()?,
        "tree": size_to_json(&collection.records_size()?),
        "indexes": indexes.collect::<Vec<_>>(),
    }))
}

fn size_to_json(tree: &TableSize) -> Value {
    json!({
        "levels": tree.depth,
        "branch_pages": tree.branch_pages,
        "leaf_pages": tree.leaf_pages,
        "overflow_pages": tree.overflow_pages,
        "entries": tree.entries,
    })
}
