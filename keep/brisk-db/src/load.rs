use std::io::{self, BufRead};

use anyhow::{Context, bail};
use brisk_objects::{Error, UntypedDatabase, UntypedWriter};
use brisk_terminal::answer::Answer;
use brisk_terminal::db_args::DbLoadArgs;
use brisk_terminal::messages::{count, say};
use serde_json::Value;

use crate::dump::{Header, VERSION};
use crate::opening::write;
use crate::record_json;

pub(crate) fn run(args: &DbLoadArgs) -> anyhow::Result<Answer> {
    let load = |writer: &mut UntypedWriter<'_>| {
        let mut lines = io::stdin().lock();
        Loading::new(args, writer).load(&mut lines)
    };
    let add = |loaded: Loaded, from: &UntypedDatabase, writer: &mut UntypedWriter<'_>| {
        let replaced = add_all(args, from, writer).with_context(|| {
            let file = args.file.display();
            format!("another program has made {file} meanwhile; nothing was loaded")
        })?;
        Ok(Loaded {
            is_added: true,
            replaced: loaded.replaced.saturating_add(replaced),
            ..loaded
        })
    };
    let loaded = write(&args.file, args.limit, load, add).map_err(|e| match e.downcast_ref() {
        // At the end of all lines.
        Some(&Error::Full { limit }) => {
            refused(Error::Full { limit }).context("nothing was loaded")
        }
        _ => e,
    })?;
    let whither = match loaded.is_added {
        true => format!(
            ", into {}, which another program has made meanwhile",
            args.file.display()
        ),
        false => String::new(),
    };
    let replaced = match loaded.replaced {
        0 => String::new(),
        replaced => format!(", {replaced} of them in place of others"),
    };
    say(&format!(
        "brisk: loaded {} of {}{replaced}{whither}",
        count(loaded.records, "record", "records"),
        count(loaded.collections, "collection", "collections")
    ));
    Ok(Answer::Yes)
}

/// What came.
#[derive(Default)]
struct Loaded {
    collections: u64,
    records: u64,
    replaced: u64,
    /// Whether another program has made the file meanwhile.
    is_added: bool,
}

/// Adds what came to a file that another program has made meanwhile. Returns how many records were replaced.
fn add_all(
    args: &DbLoadArgs,
    from: &UntypedDatabase,
    writer: &mut UntypedWriter<'_>,
) -> anyhow::Result<u64> {
    let mut replaced = 0u64;
    for collection in from.collections() {
        let schema = collection.schema();
        let (name, layout) = (schema.collection, schema.layout_text());
        let indexes: Vec<_> = schema.indexes.iter().map(ToString::to_string).collect();
        let number = writer
            .collection(name, &layout, &indexes, collection.next_key()?)
            .map_err(refused)?;
        for record in collection.query().iter()? {
            let was_there = writer.put(number, &record?, args.replace);
            replaced = replaced.saturating_add(was_there.map_err(refused)?.into());
        }
    }
    Ok(replaced)
}

/// An error of the library, in the words of the command.
fn refused(e: Error) -> anyhow::Error {
    match e {
        Error::Exists { collection, key } => anyhow::anyhow!(
            "{collection} has a record with the key {key} already; --replace replaces it"
        ),
        Error::Layout {
            collection,
            stored,
            wanted,
        } => anyhow::anyhow!(
            "the records of {collection} have the layout {stored}, but the lines have {wanted}; load them into a new file"
        ),
        Error::Full { limit } => anyhow::anyhow!(
            "the database has reached its limit of {limit} bytes; name a higher one with --limit"
        ),
        e => e.into(),
    }
}

/// The collection that records belong to.
struct Current {
    number: usize,
    /// The line of its header, and how many records that promises.
    line: u64,
    promised: Option<u64>,
    records: u64,
}

struct Loading<'l, 'e> {
    args: &'l DbLoadArgs,
    writer: &'l mut UntypedWriter<'e>,
    current: Option<Current>,
    loaded: Loaded,
}

impl<'l, 'e> Loading<'l, 'e> {
    fn new(args: &'l DbLoadArgs, writer: &'l mut UntypedWriter<'e>) -> Self {
        Self {
            args,
            writer,
            current: None,
            loaded: Loaded::default(),
        }
    }

    fn load(mut self, lines: &mut impl BufRead) -> anyhow::Result<Loaded> {
        let (mut line, mut number) = (Vec::new(), 0u64);
        loop {
            line.clear();
            let read = lines.read_until(b'\n', &mut line);
            if read.context("cannot read stdin")? == 0 {
                break;
            }
            number = number.saturating_add(1);
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            self.line(number, &line)
                .with_context(|| format!("line {number}; nothing was loaded"))?;
        }
        self.end_collection()?;
        if self.loaded.collections == 0 {
            bail!(
                "stdin has no line; nothing was loaded. The lines of brisk db dump begin with a header such as {EXAMPLE}"
            );
        }
        Ok(self.loaded)
    }

    fn line(&mut self, number: u64, line: &[u8]) -> anyhow::Result<()> {
        let value: Value = serde_json::from_slice(line).context("it is no JSON")?;
        if value.get("brisk-objects").is_some() {
            self.end_collection()?;
            return self.begin_collection(number, value);
        }
        let Some(current) = &mut self.current else {
            bail!("it is a record, but the first line must be a header such as {EXAMPLE}");
        };
        let Some(schema) = self.writer.schema(current.number) else {
            return Ok(());
        };
        let record = record_json::parse(&schema.layout, &value)?;
        let replaced = self.writer.put(current.number, &record, self.args.replace);
        let replaced = replaced.map_err(refused)?;
        current.records = current.records.saturating_add(1);
        self.loaded.records = self.loaded.records.saturating_add(1);
        self.loaded.replaced = self.loaded.replaced.saturating_add(u64::from(replaced));
        Ok(())
    }

    fn begin_collection(&mut self, line: u64, value: Value) -> anyhow::Result<()> {
        let version = value.get("brisk-objects").and_then(Value::as_u64);
        if version != Some(VERSION) {
            let found = value
                .get("brisk-objects")
                .map(Value::to_string)
                .unwrap_or_default();
            bail!("the version of the header is {found}, allowed is {VERSION}");
        }
        let header: Header = serde_json::from_value(value)
            .with_context(|| format!("it is no header such as {EXAMPLE}"))?;
        let Header {
            collection,
            layout,
            indexes,
            next,
            records,
            ..
        } = header;
        let number = self.writer.collection(&collection, &layout, &indexes, next);
        let number = number.map_err(refused)?;
        self.loaded.collections = self.loaded.collections.saturating_add(1);
        self.current = Some(Current {
            number,
            line,
            promised: records,
            records: 0,
        });
        Ok(())
    }

    /// Refuses lines whose end is missing.
    fn end_collection(&mut self) -> anyhow::Result<()> {
        if let Some(Current {
            line,
            promised: Some(promised),
            records,
            ..
        }) = self.current.take()
            && promised != records
        {
            bail!(
                "line {line} promises {}, but {records} came; nothing was loaded. If you have changed the lines on purpose, \
                 remove \"records\" from line {line}",
                count(promised, "record", "records")
            );
        }
        Ok(())
    }
}

const EXAMPLE: &str = r#"{"brisk-objects":1,"collection":"notes","layout":"{id: u64, text: text} key id","indexes":[]}"#;
