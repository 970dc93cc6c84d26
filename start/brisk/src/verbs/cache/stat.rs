use std::io::{self, BufWriter, Write};
use std::path::Path;

use brisk_cache::{CodeCache, Damage, DataFile, LayoutStat, Stored, Summary, fingerprint};
use brisk_http::Variants;
use brisk_terminal::answer::Answer;
use brisk_terminal::fields::Fields;
use brisk_terminal::messages::count;
use brisk_terminal::names::shown;
use indicatif::BinaryBytes;
use serde::Serialize;

use super::code_cache::CodeCacheFiles;
use super::directory_arg::{Directory, DirectoryArg};
use super::holders::Held;
use super::verify::DamageJson;
use crate::json;
use crate::verbs::profile::percent;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The headers of the files say what the directory is: a cache of brisk-cache, or a cache of generated code that an older \
brisk made. The headers of up to 1,000 records say what is in it: HTTP responses (brisk-http), generated code (CodeCache), \
or layouts that only their programs know, by their fingerprints. brisk counts the entries slot by slot, and shows beside that what the writers have counted.\n\n\
\"held\" are files that were removed while programs had them open or mapped: their space is free when the last program lets \
go. As an ordinary user, brisk sees only the user's own programs.\n\n\
Each program has its own limit: brisk shows that of the last one that inserted. The files do not say how often a key was \
found, because each program counts that for itself.")]
pub(super) struct Args {
    #[command(flatten)]
    cache: DirectoryArg,

    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Answer> {
    let directory = &args.cache.directory;
    let inspection = match super::directory_arg::recognise(directory)? {
        Directory::Cache(inspection) => inspection,
        Directory::CodeCache(files) => {
            show_code_cache(directory, &files, args.json)?;
            return Ok(Answer::Yes);
        }
    };
    let summary = inspection.summary()?;
    let held = Held::find(directory)?;
    let damage = inspection.index_damage();
    let layouts = inspection.layouts(ASKED)?;
    if args.json {
        json::print(&StatJson::of(&summary, &held, &layouts, damage))?;
    } else {
        let mut out = BufWriter::new(io::stdout().lock());
        print(&mut out, directory, &summary, &layouts, &held)?;
        if let Some(damage) = damage {
            Fields::new(&mut out, WIDTH).add("damaged", damage)?;
        }
        out.flush()?;
    }
    Ok(Answer::Yes)
}

fn show_code_cache(directory: &Path, files: &CodeCacheFiles, json: bool) -> io::Result<()> {
    if json {
        return json::print(&OldCodeCacheJson {
            kind: "old-code-cache",
            versions: &files.versions,
            entries: files.entries,
            bytes: files.bytes,
        });
    }
    let versions: Vec<_> = files.versions.iter().map(u32::to_string).collect();
    let mut out = io::stdout().lock();
    let mut fields = Fields::new(&mut out, WIDTH);
    fields.line(format_args!(
        "{}: a cache of generated code of an older brisk, format {}",
        shown(directory),
        versions.join(" and ")
    ))?;
    fields.add("entries", files.entries)?;
    fields.add("bytes", sized(files.bytes))?;
    out.flush()
}

fn sized(bytes: u64) -> String {
    format!("{bytes} ({})", BinaryBytes(bytes))
}

/// So many characters take the names of fields.
const WIDTH: usize = 15;

/// So many records are asked for their layouts.
const ASKED: u64 = 1_000;

const RESPONSES: &str = "HTTP responses";
const CODE: &str = "generated code";

/// What values of a layout are. None if only the program knows that has inserted them.
fn name_of(layout: u64) -> Option<&'static str> {
    const BODIES: u64 = fingerprint("brisk-http body: bytes");
    match layout {
        <Variants<'_> as Stored>::FINGERPRINT => Some(RESPONSES),
        BODIES => Some("bodies of HTTP responses"),
        code if CodeCache::is_code(code) => Some(CODE),
        _ => None,
    }
}

fn print(
    out: &mut impl Write,
    directory: &Path,
    summary: &Summary,
    layouts: &[LayoutStat],
    held: &Held,
) -> io::Result<()> {
    let Summary {
        entries,
        entry_bytes,
        slots,
        ..
    } = summary;
    let names: Vec<_> = layouts
        .iter()
        .filter_map(|layout| name_of(layout.fingerprint))
        .collect();
    let of = [RESPONSES, CODE].map(|name| names.contains(&name));
    let what = match of {
        [true, false] => " of HTTP responses",
        [false, true] => " of generated code",
        _ => "",
    };
    let mut fields = Fields::new(out, WIDTH);
    fields.line(format_args!(
        "{}: a cache{what}, format {}",
        shown(directory),
        summary.version
    ))?;
    fields.add(
        "entries",
        format_args!("{entries}, with records of {}", sized(*entry_bytes)),
    )?;
    let asked: u64 = layouts.iter().map(|layout| layout.entries).sum();
    let shown_layouts: Vec<_> = layouts
        .iter()
        .take(3)
        .map(|layout| {
            let name = name_of(layout.fingerprint).map(str::to_owned);
            let name = name.unwrap_or_else(|| format!("fingerprint {:016x}", layout.fingerprint));
            format!("{} {name}", layout.entries)
        })
        .collect();
    if !layouts.is_empty() {
        let more = layouts.len().saturating_sub(shown_layouts.len());
        let mut list = shown_layouts.join(", ");
        if more > 0 {
            list.push_str(&format!(", and {}", count(more as u64, "other", "others")));
        }
        if asked < *entries {
            list.push_str(&format!(", of {asked} that were asked"));
        }
        fields.add("layouts", list)?;
    }
    let limit = summary
        .limit
        .map(|limit| format!(", of at most {}", sized(limit)));
    let limit = limit.unwrap_or_default();
    fields.add("files", format_args!("{}{limit}", sized(summary.bytes)))?;
    match summary.mark {
        Some(mark) => fields.add(
            "index",
            format_args!(
                "{slots} slots, {} in use, {}",
                percent(*entries, *slots),
                mark.name()
            ),
        )?,
        None => fields.add("index", "none that can be read")?,
    }
    let alone = |alone| summary.files.iter().filter(move |file| file.alone == alone);
    fields.add("segments", together(alone(false)))?;
    fields.add("large values", together(alone(true)))?;
    for (what, entries) in [
        ("damaged slots", summary.damaged_slots),
        ("without file", summary.dangling),
    ] {
        if entries > 0 {
            fields.add(
                what,
                format_args!("{entries}: brisk cache verify names them"),
            )?;
        }
    }
    if summary.unfinished > 0 {
        fields.add(
            "unfinished",
            format_args!(
                "{}, {}",
                count(summary.unfinished, "file", "files"),
                sized(summary.unfinished_bytes)
            ),
        )?;
    }
    if held.files > 0 {
        let processes: Vec<_> = held.processes.iter().map(i32::to_string).collect();
        fields.add(
            "held",
            format_args!(
                "{} removed, {}, by the processes {}",
                count(held.files, "file", "files"),
                sized(held.bytes),
                processes.join(" ")
            ),
        )?;
    }
    match &summary.ledger {
        Some(ledger) => {
            fields.add(
                "ledger",
                format_args!(
                    "{} with {} of records, {} of files; {} begun{}",
                    count(ledger.entries, "entry", "entries"),
                    count(ledger.entry_bytes, "byte", "bytes"),
                    count(ledger.bytes, "byte", "bytes"),
                    count(ledger.begun, "file", "files"),
                    match ledger.is_of_this_boot {
                        true => "",
                        false => "; of another boot or place, so the next writer counts again",
                    }
                ),
            )?;
        }
        None => fields.add(
            "ledger",
            "none that can be read: the next writer counts again",
        )?,
    }
    if summary.other_files > 0 {
        let others = count(summary.other_files, "file", "files");
        fields.add("others", format_args!("{others} that no cache makes"))?;
    }
    let segments: Vec<_> = alone(false).collect();
    if !segments.is_empty() {
        let titles = ["bytes", "entries", "records", "of it"];
        let [bytes, entries, records, share] = titles;
        writeln!(
            out,
            "\n  {:<26}{bytes:>12}{entries:>10}{records:>13}{share:>9}",
            "segment"
        )?;
    }
    for file in segments {
        let mut notes = String::new();
        if file.active {
            notes.push_str("  active");
        }
        if file.sequence.is_none() {
            notes.push_str("  damaged header");
        }
        writeln!(
            out,
            "  {:<26}{:>12}{:>10}{:>13}{:>9}{notes}",
            file.name,
            file.bytes,
            file.entries,
            file.entry_bytes,
            percent(file.entry_bytes, file.bytes)
        )?;
    }
    if !summary.buckets.is_empty() {
        writeln!(
            out,
            "\n  {:<26}{:>22}{:>13}",
            "bucket", "entries", "records"
        )?;
    }
    for bucket in &summary.buckets {
        let (number, entries, bytes) = (bucket.bucket, bucket.entries, bucket.bytes);
        writeln!(out, "  {number:<26}{entries:>22}{bytes:>13}")?;
    }
    Ok(())
}

/// How many files these are, and what is in them.
fn together<'a>(files: impl Iterator<Item = &'a DataFile>) -> String {
    let (mut number, mut bytes, mut entries, mut records) = (0u64, 0u64, 0u64, 0u64);
    for file in files {
        number += 1;
        bytes = bytes.saturating_add(file.bytes);
        entries = entries.saturating_add(file.entries);
        records = records.saturating_add(file.entry_bytes);
    }
    match number {
        0 => "none".to_owned(),
        _ => format!(
            "{} of {}, with {} of {}",
            count(number, "file", "files"),
            count(bytes, "byte", "bytes"),
            count(entries, "entry", "entries"),
            count(records, "byte", "bytes"),
        ),
    }
}

/// What `brisk cache stat --json` prints.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StatJson<'a> {
    /// What the directory is, by the headers of its files: `cache`.
    kind: &'static str,
    /// Versions of the format.
    versions: [u32; 1],
    /// Entries, counted slot by slot.
    entries: u64,
    /// Size of all files of the cache.
    bytes: u64,
    /// The most that they may have, by the last program that inserted here; *added*.
    ///
    /// Null if none has said it.
    limit_bytes: Option<u64>,
    /// Size of the records of all entries.
    record_bytes: u64,
    /// The layouts of values; *added*.
    layouts: Vec<LayoutJson>,
    /// The index.
    index: IndexJson<'a>,
    /// The files with records; the one that is evicted first comes first.
    files: Vec<FileJson<'a>>,
    /// The buckets with entries.
    buckets: Vec<BucketJson>,
    /// Files that are being written, or that killed writers have left.
    unfinished: FilesJson,
    /// Files that were removed while processes had them open or mapped.
    held: HeldJson<'a>,
    /// What the writers have counted.
    ///
    /// Null if no ledger can be read.
    ledger: Option<LedgerJson>,
    /// Files that no cache makes.
    other_files: u64,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct LayoutJson {
    /// Name of the layout, as the programs have it, 16 hexadecimal digits.
    fingerprint: String,
    /// What values of it are: `HTTP responses`, `bodies of HTTP responses`, `generated code`.
    ///
    /// Null if only their program knows.
    name: Option<&'static str>,
    /// How many of the entries that were asked have it: 1,000 at most, drawn by the digests of their keys.
    entries: u64,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct IndexJson<'a> {
    /// Its slots.
    slots: u64,
    /// Its size.
    bytes: u64,
    /// Slots that fail their checks.
    damaged_slots: u64,
    /// Entries whose file is not there.
    without_file: u64,
    /// What the index says about itself: `current`; `moving`, it is being replaced; `replaced`, there is another; `unknown`.
    ///
    /// Null if no index can be read.
    mark: Option<&'static str>,
    /// Why the index cannot be read.
    ///
    /// Absent if it can, and if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    damage: Option<DamageJson<'a>>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct FileJson<'a> {
    /// Its name.
    name: &'a str,
    /// Whether it has one value, and not many.
    own_file: bool,
    /// Its size.
    bytes: u64,
    /// When it was begun, among all files of the cache.
    ///
    /// Null if its header is damaged.
    sequence: Option<u64>,
    /// Whether writers append to it.
    active: bool,
    /// Entries in it.
    entries: u64,
    /// Size of their records. The rest was replaced or removed, or is still free.
    record_bytes: u64,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct BucketJson {
    /// Its number.
    bucket: u16,
    /// Its entries.
    entries: u64,
    /// Size of their records.
    record_bytes: u64,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct FilesJson {
    /// How many.
    files: u64,
    /// Their size.
    bytes: u64,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct HeldJson<'a> {
    /// How many.
    files: u64,
    /// Their size.
    bytes: u64,
    /// These processes.
    pids: &'a [i32],
    /// Processes that this user may not look at.
    unseen_processes: u64,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct LedgerJson {
    /// Whether the writers' ledger was written in this place since the machine was switched on. If not, the next writer
    /// counts again.
    of_this_boot: bool,
    /// Whether a writer is making or removing files. If none is, it was killed, and the next one removes what it left.
    unsettled: bool,
    /// Number of the segment that writers append to.
    ///
    /// Null if there is none.
    segment: Option<String>,
    /// Byte of that segment at which it has room.
    tail: u64,
    /// Files with records that were ever begun.
    begun: u64,
    /// As `bytes` of the whole, by the writers' count.
    bytes: u64,
    /// As `entries` of the whole, by the writers' count.
    entries: u64,
    /// As `record_bytes` of the whole, by the writers' count.
    record_bytes: u64,
}

/// What `brisk cache stat --json` prints of a cache of generated code that an older brisk made.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OldCodeCacheJson<'a> {
    /// What the directory is: `old-code-cache`.
    kind: &'static str,
    /// Versions of the format.
    versions: &'a [u32],
    /// Entries.
    entries: u64,
    /// Size of all files of the cache.
    bytes: u64,
}

impl<'a> StatJson<'a> {
    fn of(
        summary: &'a Summary,
        held: &'a Held,
        layouts: &[LayoutStat],
        damage: Option<&'a Damage>,
    ) -> Self {
        let layouts = layouts.iter().map(|layout| LayoutJson {
            fingerprint: format!("{:016x}", layout.fingerprint),
            name: name_of(layout.fingerprint),
            entries: layout.entries,
        });
        let files = summary.files.iter().map(|file| FileJson {
            name: &file.name,
            own_file: file.alone,
            bytes: file.bytes,
            sequence: file.sequence,
            active: file.active,
            entries: file.entries,
            record_bytes: file.entry_bytes,
        });
        let buckets = summary.buckets.iter().map(|bucket| BucketJson {
            bucket: bucket.bucket,
            entries: bucket.entries,
            record_bytes: bucket.bytes,
        });
        Self {
            kind: "cache",
            versions: [summary.version],
            entries: summary.entries,
            bytes: summary.bytes,
            limit_bytes: summary.limit,
            record_bytes: summary.entry_bytes,
            layouts: layouts.collect(),
            index: IndexJson {
                slots: summary.slots,
                bytes: summary.index_bytes,
                damaged_slots: summary.damaged_slots,
                without_file: summary.dangling,
                mark: summary.mark.map(|mark| mark.name()),
                damage: damage.map(DamageJson::of),
            },
            files: files.collect(),
            buckets: buckets.collect(),
            unfinished: FilesJson {
                files: summary.unfinished,
                bytes: summary.unfinished_bytes,
            },
            held: HeldJson {
                files: held.files,
                bytes: held.bytes,
                pids: &held.processes,
                unseen_processes: held.unseen,
            },
            ledger: summary.ledger.map(|ledger| LedgerJson {
                of_this_boot: ledger.is_of_this_boot,
                unsettled: ledger.is_unsettled,
                segment: ledger.active.map(|number| format!("{number:016x}")),
                tail: ledger.tail,
                begun: ledger.begun,
                bytes: ledger.bytes,
                entries: ledger.entries,
                record_bytes: ledger.entry_bytes,
            }),
            other_files: summary.other_files,
        }
    }
}
