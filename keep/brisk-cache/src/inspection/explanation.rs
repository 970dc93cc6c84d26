use std::io;
use std::rc::Rc;
use std::time::SystemTime;

use super::damage::Damage;
use super::files::Known;
use super::handle::Inspection;
use super::index_file::{AtSlot, IndexFile, TRIES};
use super::value::{each_chunk, head_of};
use crate::clock::time_of;
use crate::directory::INDEX;
use crate::format::UNIT;
use crate::format::digest::{self, Digest};
use crate::format::index_header::{BLOCK, SLOTS_AT};
use crate::format::slot::{self, Kind, Slot, WAYS};
use crate::segment::{Segment, file_name};

/// Whether a key is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// It is, and all of its value is right.
    Found,
    /// There is no index that can be read.
    NoIndex,
    /// No slot has the digest of the key: nobody inserted it, or it was evicted or removed.
    NoSlot,
    /// The slot with the digest of the key fails its check.
    SlotDamaged,
    /// The file that the slot names does not exist: it was evicted, or lost.
    NoSegment,
    /// The file that the slot names has a damaged header.
    SegmentDamaged,
    /// The record is not what was written.
    RecordDamaged,
    /// The slot belongs to another key with the same digest.
    OtherKey,
    /// A part of the value is not what was written.
    ValueDamaged,
}

impl Outcome {
    /// A name for programs, such as `no-slot`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Found => "found",
            Self::NoIndex => "no-index",
            Self::NoSlot => "no-slot",
            Self::SlotDamaged => "slot-damaged",
            Self::NoSegment => "no-segment",
            Self::SegmentDamaged => "segment-damaged",
            Self::RecordDamaged => "record-damaged",
            Self::OtherKey => "other-key",
            Self::ValueDamaged => "value-damaged",
        }
    }
}

/// Why a key is found or not: what a look-up reads, step by step. A step that is not reached is None.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explanation {
    /// The end of it.
    pub outcome: Outcome,
    /// How many slots the index has.
    pub slots: u64,
    /// The digest of the key, with the seed of the index.
    pub digest: Option<u128>,
    /// The block in which a slot with that digest can be.
    pub block: u32,
    /// The two sets of that block, in the order in which they are looked at.
    pub sets: [u32; 2],
    /// The slot of a set at which the look begins.
    pub first_slot: u32,
    /// How many entries the two sets have.
    pub occupied: u32,
    /// How many slots of the two sets are damaged. One of them may have been that of the key.
    pub damaged: u32,
    /// The slot.
    pub slot: Option<FoundSlot>,
    /// The file that the slot names.
    pub segment: Option<FoundSegment>,
    /// The record.
    pub record: Option<FoundRecord>,
    /// What is wrong.
    pub damage: Option<Damage>,
}

/// A slot that passed its check.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FoundSlot {
    /// Where it is in the index.
    pub at: u64,
    /// Its set.
    pub set: u32,
    /// Its number in the set.
    pub number: u32,
    /// The number of the file that it names.
    pub segment: u64,
    /// Where the record begins in that file.
    pub record_at: u64,
    /// The bytes of the record.
    pub record_len: u64,
    /// The check of the record.
    pub record_check: u64,
    /// When the entry was inserted, to the minute.
    pub written: SystemTime,
    /// When a use was last noted, or when it was inserted.
    pub used: SystemTime,
    /// Whether a use was noted since the record was put there. Eviction copies such a record.
    pub noted: bool,
    /// The bucket.
    pub bucket: u16,
    /// Whether the value has a file of its own.
    pub alone: bool,
}

/// The file that a slot names.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FoundSegment {
    /// Its name in the directory.
    pub file: String,
    /// Its length.
    pub bytes: u64,
    /// When it was begun, among all files of the cache. The lowest goes first.
    pub sequence: u64,
}

/// A record whose head passed its check.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FoundRecord {
    /// Its key.
    pub key: Vec<u8>,
    /// The fingerprint of the value's layout.
    pub fingerprint: u64,
    /// Where the value begins in the file.
    pub value_at: u64,
    /// The bytes of the value.
    pub value_len: u64,
    /// How many chunks of the value have checks of their own. 0: the check of the record covers it.
    pub chunks: u64,
}

impl FoundSlot {
    fn new(at: u64, set: u32, number: u32, slot: &Slot) -> Self {
        Self {
            at,
            set,
            number,
            segment: slot.segment,
            record_at: u64::from(slot.place) * UNIT,
            record_len: u64::from(slot.room) * UNIT,
            record_check: slot.record,
            written: time_of(slot.written),
            used: time_of(slot.last_use()),
            noted: slot.touched,
            bucket: slot.bucket,
            alone: slot.kind == Kind::Alone,
        }
    }
}

/// Where the value of a key is.
type Place = (Rc<Segment>, Slot);

impl Inspection {
    /// Says why a key is found or not, and checks all that a look-up reads, with the whole value.
    ///
    /// The age that a program allows is its own, so an entry that is found here may be too old for it.
    ///
    /// # Errors
    ///
    /// Those of the system. Damage is an [`Outcome`].
    pub fn explain(&self, key: &[u8]) -> io::Result<Explanation> {
        Ok(self.look_up(key)?.0)
    }

    /// Writes the value of a key to `out`. The whole value is checked first, and each piece once more before it is
    /// written. Returns what [`Inspection::explain`] says.
    ///
    /// # Errors
    ///
    /// Those of the system, and of `out`. [`io::ErrorKind::InvalidData`] if the value changes between the two checks,
    /// when a part of it has been written.
    pub fn write_value(&self, key: &[u8], out: &mut dyn io::Write) -> io::Result<Explanation> {
        let (explanation, found) = self.look_up(key)?;
        if let Some((segment, slot)) = found {
            let written = match head_of(&segment, &slot)? {
                Ok(head) => each_chunk(&segment, &slot, &head, |chunk| out.write_all(chunk))?,
                Err(damage) => Err(damage),
            };
            if let Err(damage) = written {
                let path = self.files.path.join(&damage.file);
                let e = format!("{}, byte {}: {}", path.display(), damage.at, damage.message);
                return Err(io::Error::new(io::ErrorKind::InvalidData, e));
            }
        }
        Ok(explanation)
    }

    fn look_up(&self, key: &[u8]) -> io::Result<(Explanation, Option<Place>)> {
        let mut tried = 1;
        loop {
            let (explanation, place) = self.look_up_once(key)?;
            let at = explanation.slot.as_ref().map(|slot| slot.at);
            let read = explanation.outcome == Outcome::Found || tried == TRIES;
            let (false, Some(index), Some(at)) = (read, &self.index, at) else {
                return Ok((explanation, place));
            };
            // Another process may have replaced or evicted it meanwhile.
            let now = Slot::parse(index.header.seed, &index.slot_bytes(at)?);
            let same = |slot: Slot| {
                explanation.slot.as_ref().is_some_and(|found| {
                    let record_at = u64::from(slot.place) * UNIT;
                    (found.segment, found.record_at) == (slot.segment, record_at)
                })
            };
            if now.is_some_and(same) {
                return Ok((explanation, place));
            }
            tried += 1;
        }
    }

    fn look_up_once(&self, key: &[u8]) -> io::Result<(Explanation, Option<Place>)> {
        let mut told = Explanation {
            outcome: Outcome::NoIndex,
            slots: 0,
            digest: None,
            block: 0,
            sets: [0; 2],
            first_slot: 0,
            occupied: 0,
            damaged: 0,
            slot: None,
            segment: None,
            record: None,
            damage: self.index_damage.clone(),
        };
        let Some(index) = &self.index else {
            return Ok((told, None));
        };
        let Some(slot) = self.find_slot(index, key, &mut told)? else {
            return Ok((told, None));
        };
        let segment = match self.files.segment_of(&slot)? {
            Known::Right(segment) => segment,
            Known::Missing => {
                told.outcome = Outcome::NoSegment;
                return Ok((told, None));
            }
            Known::Damaged(damage) => {
                told.outcome = Outcome::SegmentDamaged;
                told.damage = Some(damage);
                return Ok((told, None));
            }
        };
        told.segment = Some(FoundSegment {
            file: file_name(slot.kind, slot.segment),
            bytes: segment.len(),
            sequence: segment.header.sequence,
        });
        let head = match head_of(&segment, &slot)? {
            Ok(head) => head,
            Err(damage) => {
                told.outcome = Outcome::RecordDamaged;
                told.damage = Some(damage);
                return Ok((told, None));
            }
        };
        told.record = Some(FoundRecord {
            key: head.key().to_vec(),
            fingerprint: head.record.fingerprint,
            value_at: head.value_at(),
            value_len: head.record.layout.value_len as u64,
            chunks: head.record.chunks() as u64,
        });
        if head.key() != key {
            told.outcome = Outcome::OtherKey;
            return Ok((told, None));
        }
        if let Err(damage) = each_chunk(&segment, &slot, &head, |_| Ok(()))? {
            told.outcome = Outcome::ValueDamaged;
            told.damage = Some(damage);
            return Ok((told, None));
        }
        told.outcome = Outcome::Found;
        Ok((told, Some((segment, slot))))
    }

    /// The slot with the digest of the key, if it passes its check. Notes all that was seen.
    fn find_slot(
        &self,
        index: &IndexFile,
        key: &[u8],
        told: &mut Explanation,
    ) -> io::Result<Option<Slot>> {
        let blocks = index.header.blocks;
        let digest = Digest::of(index.header.seed, key);
        told.slots = u64::from(blocks) * (BLOCK / slot::LEN as u64);
        told.digest = Some(digest.number());
        told.block = digest.block(blocks);
        told.sets = digest.sets();
        told.first_slot = digest.first_way();
        told.outcome = Outcome::NoSlot;
        let mut found = None;
        for set in digest.sets() {
            for n in 0..WAYS {
                let number = (digest.first_way() + n) % WAYS;
                let at = SLOTS_AT
                    + u64::from(digest.block(blocks)) * BLOCK
                    + u64::from(set * WAYS + number) * slot::LEN as u64;
                let bytes = index.slot_bytes(at)?;
                let same = bytes
                    .first_chunk::<{ digest::LEN }>()
                    .is_some_and(|start| Digest::from_bytes(*start) == digest);
                match index.at_slot(at, bytes)? {
                    None => {}
                    Some(AtSlot::Slot(slot)) => {
                        told.occupied += 1;
                        if slot.digest == digest && found.is_none() {
                            told.slot = Some(FoundSlot::new(at, set, number, &slot));
                            found = Some(slot);
                        }
                    }
                    Some(AtSlot::Damaged(fault)) => {
                        told.damaged += 1;
                        if same {
                            told.outcome = Outcome::SlotDamaged;
                            told.damage = Some(Damage::of(INDEX, at, &fault));
                        }
                    }
                }
            }
        }
        if found.is_some() {
            // A look-up goes on behind the damaged one.
            told.damage = None;
        }
        Ok(found)
    }
}
