use std::collections::HashMap;
use std::io;

use brisk_io::ByteSource;

use super::damage::Damage;
use super::files::{Known, Opened};
use super::handle::Inspection;
use super::index_file::{AtSlot, IndexMark};
use crate::BucketStat;
use crate::directory::{FileId, INDEX, LEDGER, Name};
use crate::format::UNIT;
use crate::format::fault::Fault;
use crate::format::index_header::{BLOCK, VERSION};
use crate::format::ledger_state::{self, LedgerState, TOTALS_AT};
use crate::format::noted_limit::{self, LIMIT_AT};
use crate::format::slot::{self, BUCKETS, Kind};
use crate::segment::file_name;
use crate::writer::home_of;

/// What the files of a cache have, counted slot by slot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Summary {
    /// The version of the format.
    pub version: u32,
    /// Bytes of all files of the cache.
    pub bytes: u64,
    /// The most that they may have, by the last program that inserted. None if no program has said it.
    pub limit: Option<u64>,
    /// Slots that pass their checks.
    pub entries: u64,
    /// The bytes of their records.
    pub entry_bytes: u64,
    /// Entries whose file is not there: each is a miss.
    pub dangling: u64,
    /// All slots of the index.
    pub slots: u64,
    /// Slots that fail their checks: each is a miss.
    pub damaged_slots: u64,
    /// Bytes of the index.
    pub index_bytes: u64,
    /// What the index says about itself. None if it cannot be read.
    pub mark: Option<IndexMark>,
    /// What the writers' ledger says. None if there is none that can be read.
    pub ledger: Option<LedgerSummary>,
    /// The files with records, the one that goes first before the others.
    pub files: Vec<DataFile>,
    /// The buckets that have entries.
    pub buckets: Vec<BucketStat>,
    /// Files that are being written, or that killed writers have left.
    pub unfinished: u64,
    /// Their bytes.
    pub unfinished_bytes: u64,
    /// Files of the directory that are no cache's.
    pub other_files: u64,
}

/// What the writers' ledger says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LedgerSummary {
    /// Whether it was written here since the machine was switched on. If not, the next writer closes the active segment
    /// and counts again.
    pub is_of_this_boot: bool,
    /// Whether a writer is making or removing files. If none is, it was killed, and the next one removes what it left.
    pub is_unsettled: bool,
    /// The number of the segment that is appended to.
    pub active: Option<u64>,
    /// Where that has room.
    pub tail: u64,
    /// How many files with records were begun before.
    pub begun: u64,
    /// The bytes of all files, by the writers' count.
    pub bytes: u64,
    /// The entries, by the writers' count.
    pub entries: u64,
    /// The bytes of their records, by the writers' count.
    pub entry_bytes: u64,
}

/// A file with records.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DataFile {
    /// Its name in the directory.
    pub name: String,
    /// Its number.
    pub number: u64,
    /// Whether it has one value, and not many.
    pub alone: bool,
    /// Its length.
    pub bytes: u64,
    /// When it was begun, among all files of the cache. None if its header is damaged.
    pub sequence: Option<u64>,
    /// Whether writers append to it.
    pub active: bool,
    /// The entries in it.
    pub entries: u64,
    /// The bytes of their records. The rest was replaced or removed, or is still free.
    pub entry_bytes: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    entries: u64,
    bytes: u64,
}

impl Tally {
    fn add(&mut self, bytes: u64) {
        self.entries += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

impl Inspection {
    /// Counts what the files have. It reads the whole index, and the headers of the other files.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn summary(&self) -> io::Result<Summary> {
        let mut summary = Summary {
            version: VERSION,
            ledger: self.ledger()?.ok(),
            ..Summary::default()
        };
        let mut by_file: HashMap<(bool, u64), Tally> = HashMap::new();
        let mut by_bucket = vec![Tally::default(); usize::from(BUCKETS)];
        if let Some(index) = &self.index {
            summary.mark = Some(index.mark()?);
            let mut limit = [0; noted_limit::LEN];
            index.file.read_exact_bytes_at(LIMIT_AT, &mut limit)?;
            summary.limit = noted_limit::parse(&limit, index.header.seed);
            summary.slots = u64::from(index.header.blocks) * (BLOCK / slot::LEN as u64);
            index.each_slot(|_, found| {
                let AtSlot::Slot(slot) = found else {
                    summary.damaged_slots += 1;
                    return Ok(());
                };
                let bytes = u64::from(slot.room) * UNIT;
                let file = (slot.kind == Kind::Alone, slot.segment);
                by_file.entry(file).or_default().add(bytes);
                if let Some(bucket) = by_bucket.get_mut(usize::from(slot.bucket)) {
                    bucket.add(bytes);
                }
                Ok(())
            })?;
        }
        let active = summary.ledger.and_then(|ledger| ledger.active);
        let (found, others) = self.files.list()?;
        summary.other_files = others;
        for file in found {
            summary.bytes = summary.bytes.saturating_add(file.len);
            let (number, alone) = match file.name {
                Name::Segment(number) => (number, false),
                Name::Value(number) => (number, true),
                Name::Unfinished(_) => {
                    summary.unfinished += 1;
                    summary.unfinished_bytes = summary.unfinished_bytes.saturating_add(file.len);
                    continue;
                }
                Name::Index => {
                    summary.index_bytes = file.len;
                    continue;
                }
                Name::Small => continue,
            };
            let kind = if alone { Kind::Alone } else { Kind::Shared };
            let tally = by_file.remove(&(alone, number)).unwrap_or_default();
            summary.entries += tally.entries;
            summary.entry_bytes = summary.entry_bytes.saturating_add(tally.bytes);
            summary.files.push(DataFile {
                name: file_name(kind, number),
                number,
                alone,
                bytes: file.len,
                sequence: match self.files.open_segment(kind, number)? {
                    Known::Right(segment) => Some(segment.header.sequence),
                    _ => None,
                },
                active: !alone && active == Some(number),
                entries: tally.entries,
                entry_bytes: tally.bytes,
            });
        }
        for tally in by_file.into_values() {
            summary.entries += tally.entries;
            summary.dangling += tally.entries;
            summary.entry_bytes = summary.entry_bytes.saturating_add(tally.bytes);
        }
        summary
            .files
            .sort_by_key(|file| (file.sequence, file.number));
        let all = (0..BUCKETS)
            .zip(by_bucket)
            .map(|(bucket, tally)| BucketStat {
                bucket,
                entries: tally.entries,
                bytes: tally.bytes,
            });
        summary.buckets = all.filter(|bucket| bucket.entries > 0).collect();
        Ok(summary)
    }

    /// What the ledger says, or what is wrong with it. A ledger of no bytes is new.
    pub(super) fn ledger(&self) -> io::Result<Result<LedgerSummary, Option<Damage>>> {
        let (file, len) = match self.files.file(LEDGER)? {
            Opened::File(_, 0) | Opened::Nothing => return Ok(Err(None)),
            Opened::File(file, len) => (file, len),
            Opened::Other(damage) => return Ok(Err(Some(damage))),
        };
        let mut bytes = [0; ledger_state::LEN];
        let fault = match file.read_exact_bytes_at(0, &mut bytes) {
            Ok(()) => Fault::of_ledger(&bytes),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                let least = ledger_state::LEN;
                Some(Fault::new(
                    0,
                    "the file's length",
                    len,
                    format_args!("at least {least}"),
                ))
            }
            Err(e) => return Err(e),
        };
        if let Some(fault) = fault {
            return Ok(Err(Some(Damage::of(LEDGER, 0, &fault))));
        }
        let Some(state) = LedgerState::parse(&bytes) else {
            return Ok(Err(None));
        };
        let home = home_of(FileId::of(&file)?);
        let mut totals = vec![0; usize::from(BUCKETS) * 16];
        // A shorter file has the totals of fewer buckets.
        let room = usize::try_from(len.saturating_sub(TOTALS_AT)).unwrap_or(usize::MAX);
        let room = room.min(totals.len());
        file.read_exact_bytes_at(TOTALS_AT, totals.get_mut(..room).unwrap_or_default())?;
        let (numbers, _) = totals.as_chunks::<16>();
        let mut counted = Tally::default();
        for pair in numbers {
            let (entries, bytes) = pair.split_at(8);
            let number = |bytes: &[u8]| {
                let bytes = bytes.first_chunk().copied().unwrap_or_default();
                u64::from_le_bytes(bytes)
            };
            counted.entries = counted.entries.saturating_add(number(entries));
            counted.bytes = counted.bytes.saturating_add(number(bytes));
        }
        Ok(Ok(LedgerSummary {
            is_of_this_boot: state.home == home,
            is_unsettled: state.unsettled,
            active: Some(state.active).filter(|&number| number != 0),
            tail: state.tail,
            begun: state.sequence.saturating_sub(1),
            bytes: state.bytes,
            entries: counted.entries,
            entry_bytes: counted.bytes,
        }))
    }

    /// What is wrong with a missing index, if there are records.
    pub(super) fn missing_index(&self, has_records: bool) -> Option<Damage> {
        let missing = self.index.is_none() && self.index_damage.is_none() && has_records;
        missing.then(|| {
            let message =
                "there is no such file, allowed is one; the next writer makes an empty one";
            Damage::new(INDEX, 0, message)
        })
    }
}
