use std::collections::HashSet;
use std::io;

use brisk_io::ByteSource;

use super::damage::Damage;
use super::files::{Known, Opened};
use super::handle::Inspection;
use super::index_file::{AtSlot, IndexFile};
use super::value::{each_chunk, head_of};
use crate::directory::{INDEX, Name};
use crate::format::digest::Digest;
use crate::format::fault::Fault;
use crate::format::index_header::{BLOCK, SLOTS_AT};
use crate::format::segment_header;
use crate::format::slot::{self, Kind, Slot, WAYS};
use crate::segment::file_name;

/// What was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Verification {
    /// Entries that are right.
    pub entries: u64,
    /// The bytes of their values.
    pub bytes: u64,
    /// Files with records.
    pub files: u64,
    /// Entries that were replaced or removed while they were read.
    pub changed: u64,
    /// How often something is not as the format demands.
    pub faults: u64,
}

/// A slot, and where it is in the index.
type Placed = (u64, Slot);

impl Inspection {
    /// Reads everything, compares it with its checks, and shows what is wrong. `on_read` is told of the bytes that were
    /// read.
    ///
    /// The ledger, each slot, the header of each file, each record with its key, and each chunk are looked at. A slot must
    /// be where a look-up finds it, and no two records may share bytes.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn verify(
        &self,
        mut on_read: impl FnMut(u64),
        mut on_damage: impl FnMut(Damage),
    ) -> io::Result<Verification> {
        let mut done = Verification::default();
        let mut tell = |done: &mut Verification, damage: Damage| {
            done.faults += 1;
            on_damage(damage);
        };
        let (found, _) = self.files.list()?;
        let numbers = found.iter().filter_map(|file| match file.name {
            Name::Segment(number) => Some((Kind::Shared, number)),
            Name::Value(number) => Some((Kind::Alone, number)),
            _ => None,
        });
        let numbers: Vec<_> = numbers.collect();
        done.files = numbers.len() as u64;
        let missing = self.missing_index(!numbers.is_empty());
        for damage in self.index_damage.clone().into_iter().chain(missing) {
            tell(&mut done, damage);
        }
        if let Err(Some(damage)) = self.ledger()? {
            tell(&mut done, damage);
        }
        let mut named = HashSet::new();
        if let Some(index) = &self.index {
            let mut slots: Vec<Placed> = Vec::new();
            index.each_slot(|at, found| {
                match found {
                    AtSlot::Slot(slot) => slots.push((at, slot)),
                    AtSlot::Damaged(fault) => tell(&mut done, Damage::of(INDEX, at, &fault)),
                }
                Ok(())
            })?;
            on_read(u64::from(index.header.blocks) * BLOCK);
            let place = |slot: &Slot| (slot.kind == Kind::Alone, slot.segment, slot.place);
            slots.sort_unstable_by_key(|(_, slot)| place(slot));
            let mut before: Option<Slot> = None;
            for (at, slot) in &slots {
                named.insert((slot.kind == Kind::Alone, slot.segment));
                match self.check_entry(index, *at, slot, before.as_ref())? {
                    Ok(bytes) => {
                        done.entries += 1;
                        done.bytes = done.bytes.saturating_add(bytes);
                        on_read(bytes);
                    }
                    Err(_) if self.is_changed(index, *at, slot)? => done.changed += 1,
                    Err(damage) => tell(&mut done, damage),
                }
                before = Some(*slot);
            }
        }
        for (kind, number) in numbers {
            if named.contains(&(kind == Kind::Alone, number)) {
                continue;
            }
            if let Some(damage) = self.check_unnamed(kind, number)? {
                tell(&mut done, damage);
            }
        }
        Ok(done)
    }

    /// The bytes of the value of an entry that is right, or what is wrong with it.
    fn check_entry(
        &self,
        index: &IndexFile,
        at: u64,
        slot: &Slot,
        before: Option<&Slot>,
    ) -> io::Result<Result<u64, Damage>> {
        let name = file_name(slot.kind, slot.segment);
        let blocks = index.header.blocks;
        let set = at.saturating_sub(SLOTS_AT) / (u64::from(WAYS) * slot::LEN as u64);
        let sets_of_block = BLOCK / (u64::from(WAYS) * slot::LEN as u64);
        let (block, set) = (set / sets_of_block, set % sets_of_block);
        let right = slot.digest.sets().iter().any(|&own| u64::from(own) == set)
            && u64::from(slot.digest.block(blocks)) == block;
        if !right {
            let [first, second] = slot.digest.sets();
            let message = format!(
                "the slot is in set {set} of block {block}, allowed are the sets {first} and {second} of block {}: no \
                 look-up finds it",
                slot.digest.block(blocks)
            );
            return Ok(Err(Damage::new(INDEX, at, message)));
        }
        let end = |slot: &Slot| u64::from(slot.place) + u64::from(slot.room);
        let same_file = |other: &&Slot| (other.kind, other.segment) == (slot.kind, slot.segment);
        if let Some(other) = before.filter(same_file)
            && end(other) > slot.place.into()
        {
            let message = format!(
                "the record begins at byte {} of {name}, allowed is {} or more, where another ends",
                u64::from(slot.place) * crate::format::UNIT,
                end(other) * crate::format::UNIT
            );
            return Ok(Err(Damage::new(INDEX, at, message)));
        }
        let segment = match self.files.segment_of(slot)? {
            Known::Right(segment) => segment,
            Known::Damaged(damage) => return Ok(Err(damage)),
            Known::Missing => {
                let message = format!("the slot names {name}, allowed is a file that exists");
                return Ok(Err(Damage::new(INDEX, at, message)));
            }
        };
        let head = match head_of(&segment, slot)? {
            Ok(head) => head,
            Err(damage) => return Ok(Err(damage)),
        };
        let key = || Some(head.key().to_vec());
        if Digest::of(index.header.seed, head.key()) != slot.digest {
            let message =
                "the slot has the digest of another key than its record, allowed is the same";
            return Ok(Err(Damage::new(INDEX, at, message).with_key(key())));
        }
        let checked = each_chunk(&segment, slot, &head, |_| Ok(()))?;
        Ok(match checked {
            Ok(()) => Ok(head.record.layout.value_len as u64),
            Err(damage) => Err(damage.with_key(key())),
        })
    }

    /// Whether somebody has written the slot, or the index, since it was read.
    fn is_changed(&self, index: &IndexFile, at: u64, slot: &Slot) -> io::Result<bool> {
        let now = Slot::parse(index.header.seed, &index.slot_bytes(at)?);
        let same = now.is_some_and(|now| now.names_the_record_of(slot));
        Ok(!same || !self.is_current(index))
    }

    /// What is wrong with a file that no slot names. A writer was killed before its header was written if that is zero.
    fn check_unnamed(&self, kind: Kind, number: u64) -> io::Result<Option<Damage>> {
        let name = file_name(kind, number);
        let Opened::File(file, _) = self.files.file(&name)? else {
            return Ok(None);
        };
        let mut header = [0; segment_header::LEN];
        let read = file.read_exact_bytes_at(0, &mut header);
        if read.is_err() || header == [0; segment_header::LEN] {
            return Ok(None);
        }
        let fault = Fault::of_segment(&header, kind, number);
        Ok(fault.map(|fault| Damage::of(&name, 0, &fault)))
    }
}
