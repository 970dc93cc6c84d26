use std::io;

use super::files::Known;
use super::handle::Inspection;
use super::index_file::AtSlot;
use super::value::head_of;
use crate::Entry;
use crate::clock::time_of;
use crate::format::slot::{Kind, Slot};

impl Inspection {
    /// Shows all entries, in no order. Returns how many it left out, because their slots or their records are damaged,
    /// or gone meanwhile: [`Inspection::verify`] names those.
    ///
    /// # Errors
    ///
    /// Those of the system, and of `visit`.
    pub fn each_entry(&self, mut visit: impl FnMut(Entry) -> io::Result<()>) -> io::Result<u64> {
        let Some(index) = &self.index else {
            return Ok(0);
        };
        let mut left_out = 0;
        index.each_slot(|_, found| {
            let entry = match found {
                AtSlot::Slot(slot) => self.entry(&slot)?,
                AtSlot::Damaged(_) => None,
            };
            match entry {
                Some(entry) => visit(entry),
                None => {
                    left_out += 1;
                    Ok(())
                }
            }
        })?;
        Ok(left_out)
    }

    fn entry(&self, slot: &Slot) -> io::Result<Option<Entry>> {
        let Known::Right(segment) = self.files.segment_of(slot)? else {
            return Ok(None);
        };
        let head = head_of(&segment, slot)?;
        Ok(head.ok().map(|head| Entry {
            key: head.key().to_vec(),
            len: head.record.layout.value_len as u64,
            fingerprint: head.record.fingerprint,
            bucket: slot.bucket,
            written: time_of(slot.written),
            used: time_of(slot.last_use()),
            alone: slot.kind == Kind::Alone,
        }))
    }
}
