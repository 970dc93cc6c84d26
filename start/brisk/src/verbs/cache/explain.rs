use std::borrow::Cow;
use std::io::{self, Write};

use brisk_cache::{Explanation, Outcome};
use brisk_terminal::answer::Answer;
use brisk_terminal::messages::count;
use brisk_terminal::names::printable;
use http::{HeaderName, HeaderValue};
use serde::Serialize;

use super::directory_arg::DirectoryArg;
use super::http_responses::{self, HttpResponses, ResponseJson};
use super::key::{KeyArg, json_key, shown_key};
use super::ls::{minute, seconds};
use super::verify::DamageJson;
use crate::json;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
A look-up computes the digest of the key, which names two sets of eight slots; finds the slot with that digest; opens the \
file that the slot names; and compares the record with its check and with the whole key. explain prints each step, up to \
the one at which the look-up ends.\n\n\
If the cache has no such key, and KEY is a URL, explain looks for the responses that brisk-http has stored of it, and says \
what would happen to a GET with the fields of --header. It knows the rules of RFC 9111, and not the options of the program.\n\n\
A program may allow only a certain age or fingerprint. The files do not say that, so a key that is found here may be \
missing for a program.\n\n\
Exits with 0 if the key is found, with 1 if not, and with 2 after a failure.")]
pub(super) struct Args {
    #[command(flatten)]
    cache: DirectoryArg,

    #[command(flatten)]
    key: KeyArg,

    /// A field of the request, if KEY is a URL. May be repeated.
    #[arg(short = 'H', long, value_name = "NAME: VALUE", value_parser = http_responses::field)]
    header: Vec<(HeaderName, HeaderValue)>,

    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Answer> {
    let inspection = super::directory_arg::open(&args.cache.directory)?;
    let key = args.key.bytes()?;
    let told = inspection.explain(&key)?;
    let responses = match told.outcome {
        Outcome::NoSlot => HttpResponses::look(&inspection, &key, &args.header)?,
        _ => None,
    };
    if args.json {
        json::print(&ExplainJson::of(&key, &told, responses.as_ref()))?;
    } else {
        let mut out = io::stdout().lock();
        match &responses {
            Some(responses) => responses.print(&mut out)?,
            None => print(&mut out, &key, &told)?,
        }
        out.flush()?;
    }
    Ok(match (told.outcome, responses) {
        (Outcome::Found, _) | (_, Some(_)) => Answer::Yes,
        _ => Answer::No,
    })
}

/// Why a look-up ends as it does.
pub(super) fn reason(told: &Explanation) -> String {
    let damage = told.damage.as_ref().map(|damage| format!(": {damage}"));
    let damage = damage.unwrap_or_default();
    let text = match told.outcome {
        Outcome::Found => "all that a look-up reads is right".to_owned(),
        Outcome::NoIndex => {
            format!(
                "there is no index that can be read, so the next writer makes an empty one{damage}"
            )
        }
        Outcome::NoSlot if told.damaged > 0 => format!(
            "no slot has its digest. {} of its sets cannot be read, and may have been its slot",
            count(told.damaged.into(), "slot", "slots")
        ),
        Outcome::NoSlot => {
            "no slot has its digest: nobody inserted it, or it was evicted or removed".to_owned()
        }
        Outcome::SlotDamaged => format!("its slot is damaged{damage}"),
        Outcome::NoSegment => {
            let file = told
                .slot
                .as_ref()
                .map(|slot| format!("{:016x}", slot.segment));
            format!(
                "its slot names the file {}, which does not exist: it was evicted, or the disk has lost it",
                file.unwrap_or_default()
            )
        }
        Outcome::SegmentDamaged => format!("the header of its file is damaged{damage}"),
        Outcome::RecordDamaged => format!("its record is damaged{damage}"),
        Outcome::OtherKey => {
            let key = told.record.as_ref().map(|record| shown_key(&record.key));
            format!(
                "its slot belongs to another key with the same digest, {}",
                key.unwrap_or_default()
            )
        }
        Outcome::ValueDamaged => format!("its value is damaged{damage}"),
        other => other.name().to_owned(),
    };
    printable(&text).into_owned()
}

fn print(out: &mut impl Write, key: &[u8], told: &Explanation) -> io::Result<()> {
    writeln!(
        out,
        "key        {} ({})",
        shown_key(key),
        count(key.len() as u64, "byte", "bytes")
    )?;
    if let Some(digest) = told.digest {
        let [first, second] = told.sets;
        writeln!(out, "digest     {digest:032x}, with the seed of the index")?;
        writeln!(
            out,
            "sets       {first} and {second} of block {}, from slot {} on; {} of 16 slots in use, {} damaged",
            told.block, told.first_slot, told.occupied, told.damaged
        )?;
    }
    if let Some(slot) = &told.slot {
        writeln!(
            out,
            "slot       {} of set {}, at byte {} of the index; its check is right",
            slot.number, slot.set, slot.at
        )?;
        writeln!(
            out,
            "           inserted {}, last use noted {}, bucket {}; {}",
            minute(slot.written),
            minute(slot.used),
            slot.bucket,
            match slot.noted {
                true => "used, so eviction copies it forward",
                false => "no use noted since, so it goes with its file",
            }
        )?;
        writeln!(
            out,
            "           names {} at byte {} of the {} {:016x}",
            count(slot.record_len, "byte", "bytes"),
            slot.record_at,
            if slot.alone { "value" } else { "segment" },
            slot.segment
        )?;
    }
    if let Some(segment) = &told.segment {
        writeln!(
            out,
            "file       {}, {}, begun as number {}; its header is right",
            segment.file,
            count(segment.bytes, "byte", "bytes"),
            segment.sequence
        )?;
    }
    if let Some(record) = &told.record {
        let same = match record.key == key {
            true => "its key is the wanted one".to_owned(),
            false => format!("its key is {}", shown_key(&record.key)),
        };
        writeln!(out, "record     its check is right, and {same}")?;
        writeln!(
            out,
            "value      {} at byte {}, {}; fingerprint {:016x}",
            count(record.value_len, "byte", "bytes"),
            record.value_at,
            match record.chunks {
                0 => "which the record's check covers".to_owned(),
                chunks => format!("in {} with checks", count(chunks, "chunk", "chunks")),
            },
            record.fingerprint
        )?;
    }
    match told.outcome {
        Outcome::Found => writeln!(out, "found      {}", reason(told)),
        _ => writeln!(out, "not found  {}", reason(told)),
    }
}

/// What `brisk cache explain --json` prints.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ExplainJson<'a> {
    /// The key.
    key: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_hex: Option<String>,
    /// Whether it is found.
    is_found: bool,
    /// How the look-up ends: `found`, `no-index`, `no-slot`, `slot-damaged`, `no-segment`, `segment-damaged`,
    /// `record-damaged`, `other-key` (the slot belongs to another key with the same digest), `value-damaged`.
    outcome: &'static str,
    /// The same in words.
    reason: String,
    /// Slots of the index.
    slots: u64,
    /// Where the slot can be.
    ///
    /// Null if the look-up does not reach this.
    look_up: Option<LookUpJson>,
    /// The slot.
    ///
    /// Null if the look-up does not reach this.
    slot: Option<SlotJson>,
    /// The file.
    ///
    /// Null if the look-up does not reach this.
    data_file: Option<DataFileJson<'a>>,
    /// The record.
    ///
    /// Null if the look-up does not reach this.
    record: Option<RecordJson<'a>>,
    /// What is wrong.
    ///
    /// Null if nothing is.
    damage: Option<DamageJson<'a>>,
    /// The HTTP responses that are stored of the URL that the key is.
    ///
    /// Null if the key is found, or is no URL with responses.
    responses: Option<Vec<ResponseJson>>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct LookUpJson {
    /// Digest of the key.
    digest: String,
    /// Block of the index.
    block: u32,
    /// The two sets of the block in which the slot can be.
    sets: [u32; 2],
    /// The slot of a set at which the look-up begins.
    first_slot: u32,
    /// Slots of these sets with entries.
    in_use: u32,
    /// Damaged slots of these sets.
    damaged: u32,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct SlotJson {
    /// Byte of the index at which the slot is.
    at: u64,
    /// Its set.
    set: u32,
    /// Its place in the set.
    number: u32,
    /// Number of the file that it names.
    segment: String,
    /// Where the record is in that file.
    record_at: u64,
    /// Size of the record.
    record_bytes: u64,
    /// Check of the record.
    record_check: String,
    /// As in `cache ls`.
    written: u64,
    /// As in `cache ls`.
    last_used: u64,
    /// Whether a use was noted since the record was put there: eviction copies such a record.
    noted: bool,
    /// As in `cache ls`.
    bucket: u16,
    /// As in `cache ls`.
    own_file: bool,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct DataFileJson<'a> {
    /// Its name.
    name: &'a str,
    /// Its size.
    bytes: u64,
    /// When it was begun, among all files of the cache.
    sequence: u64,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct RecordJson<'a> {
    /// Key in the record.
    key: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_hex: Option<String>,
    /// As in `cache ls`.
    fingerprint: String,
    /// Where the value is in the file.
    value_at: u64,
    /// Size of the value.
    bytes: u64,
    /// Chunks of the value with checks of their own; 0 if the record's check covers the value.
    chunks: u64,
}

impl<'a> ExplainJson<'a> {
    fn of(key: &'a [u8], told: &'a Explanation, responses: Option<&HttpResponses>) -> Self {
        let (key, key_hex) = json_key(key);
        Self {
            key,
            key_hex,
            is_found: told.outcome == Outcome::Found,
            outcome: told.outcome.name(),
            reason: reason(told),
            slots: told.slots,
            look_up: told.digest.map(|digest| LookUpJson {
                digest: format!("{digest:032x}"),
                block: told.block,
                sets: told.sets,
                first_slot: told.first_slot,
                in_use: told.occupied,
                damaged: told.damaged,
            }),
            slot: told.slot.as_ref().map(|slot| SlotJson {
                at: slot.at,
                set: slot.set,
                number: slot.number,
                segment: format!("{:016x}", slot.segment),
                record_at: slot.record_at,
                record_bytes: slot.record_len,
                record_check: format!("{:016x}", slot.record_check),
                written: seconds(slot.written),
                last_used: seconds(slot.used),
                noted: slot.noted,
                bucket: slot.bucket,
                own_file: slot.alone,
            }),
            data_file: told.segment.as_ref().map(|segment| DataFileJson {
                name: &segment.file,
                bytes: segment.bytes,
                sequence: segment.sequence,
            }),
            record: told.record.as_ref().map(|record| {
                let (key, key_hex) = json_key(&record.key);
                RecordJson {
                    key,
                    key_hex,
                    fingerprint: format!("{:016x}", record.fingerprint),
                    value_at: record.value_at,
                    bytes: record.value_len,
                    chunks: record.chunks,
                }
            }),
            damage: told.damage.as_ref().map(DamageJson::of),
            responses: responses.map(HttpResponses::to_json),
        }
    }
}
