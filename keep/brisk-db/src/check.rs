use std::io::{self, BufWriter, Write};

use brisk_objects::{Fault, PageFaults};
use brisk_terminal::answer::Answer;
use brisk_terminal::db_args::DbCheckArgs;
use brisk_terminal::messages::count;
use brisk_terminal::names::printable;
use serde_json::{Value, json};

use crate::opening::{check_pages, open};

/// What was checked of a collection.
struct Checked {
    collection: &'static str,
    records: u64,
    indexes: u64,
    faults: u64,
}

/// What a check finds, and where it goes.
struct Report<'o> {
    /// None: all is printed at the end.
    out: Option<&'o mut dyn Write>,
    faults: Vec<Value>,
    number: u64,
}

impl Report<'_> {
    fn found(&mut self, text: &str, json: impl FnOnce() -> Value) -> io::Result<()> {
        self.number = self.number.saturating_add(1);
        match &mut self.out {
            Some(out) => writeln!(out, "{}", printable(text)),
            None => {
                self.faults.push(json());
                Ok(())
            }
        }
    }
}

pub(crate) fn run(args: &DbCheckArgs) -> anyhow::Result<Answer> {
    let mut stdout = BufWriter::new(io::stdout().lock());
    let mut report = Report {
        out: (!args.json).then_some(&mut stdout as &mut dyn Write),
        faults: Vec::new(),
        number: 0,
    };
    let pages = check_pages(&args.file)?;
    for fault in &pages.described {
        report.found(fault, || page_fault(fault))?;
    }
    let are_pages_right = pages.is_empty();
    let mut checked = Vec::new();
    // LMDB trusts its pages, and could end this process at a wrong one.
    if are_pages_right {
        checked = check_collections(args, &mut report)?;
    }
    let Report { faults, number, .. } = report;
    if args.json {
        let value = to_json(&checked, &pages, &faults, number == 0);
        writeln!(stdout, "{}", serde_json::to_string_pretty(&value)?)?;
    } else {
        summarise(&mut stdout, &checked, &pages)?;
    }
    stdout.flush()?;
    Ok(if number == 0 { Answer::Yes } else { Answer::No })
}

fn check_collections(args: &DbCheckArgs, report: &mut Report<'_>) -> anyhow::Result<Vec<Checked>> {
    let database = open(&args.file)?;
    for (name, why) in database.unreadable() {
        let text = format!("{name}: its layout cannot be read: {why}");
        report.found(&text, || fault_to_json(Some(name), None, None, why))?;
    }
    let mut checked = Vec::new();
    for collection in database.collections() {
        let before = report.number;
        let records = collection.check(|fault: Fault| -> anyhow::Result<()> {
            let text = fault.to_string();
            Ok(report.found(&text, || {
                let (collection, index) = (Some(fault.collection), fault.index);
                fault_to_json(collection, index, Some(&fault.key), &fault.what)
            })?)
        })?;
        let schema = collection.schema();
        checked.push(Checked {
            collection: schema.collection,
            records,
            indexes: u64::try_from(schema.indexes.len()).unwrap_or(u64::MAX),
            faults: report.number.saturating_sub(before),
        });
    }
    Ok(checked)
}

fn summarise(out: &mut impl Write, checked: &[Checked], pages: &PageFaults) -> io::Result<()> {
    if pages.more > 0 {
        writeln!(out, "and {} more", count(pages.more, "fault", "faults"))?;
    }
    if !pages.is_empty() {
        return writeln!(
            out,
            "pages are damaged, so no record was looked at: restore the file from a copy"
        );
    }
    writeln!(out, "pages: right")?;
    for one in checked {
        let result = match one.faults {
            0 => "right".to_owned(),
            faults => count(faults, "fault", "faults"),
        };
        writeln!(
            out,
            "{}: {}, {}: {result}",
            printable(one.collection),
            count(one.records, "record", "records"),
            count(one.indexes, "index", "indexes")
        )?;
    }
    Ok(())
}

fn page_fault(fault: &str) -> Value {
    fault_to_json(None, None, None, fault)
}

fn fault_to_json(
    collection: Option<&str>,
    index: Option<&str>,
    key: Option<&str>,
    what: &str,
) -> Value {
    json!({"collection": collection, "index": index, "key": key, "message": what})
}

fn to_json(checked: &[Checked], pages: &PageFaults, faults: &[Value], is_sound: bool) -> Value {
    let collections = checked.iter().map(|one| {
        json!({
            "collection": one.collection,
            "records": one.records,
            "indexes": one.indexes,
            "faults": one.faults,
        })
    });
    json!({
        "sound": is_sound,
        "pages_right": pages.is_empty(),
        "collections": collections.collect::<Vec<_>>(),
        "faults": faults,
        "more_faults": pages.more,
    })
}
