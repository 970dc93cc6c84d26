use std::collections::BTreeMap;
use std::io;

use super::files::Known;
use super::handle::Inspection;
use super::index_file::AtSlot;
use crate::format::UNIT;
use crate::format::fault::Fault;
use crate::format::record::{self, HEADER};
use crate::format::slot::Slot;
use crate::segment::expected;

/// How many entries have values of one layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LayoutStat {
    /// The caller's name for the layout.
    pub fingerprint: u64,
    /// How many of the entries that were asked have it.
    pub entries: u64,
}

impl Inspection {
    /// The layouts of entries, the one of most entries first. It asks the headers of the records of `most` entries at most.
    /// The digests of keys say where their slots are, so these are as good as drawn.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn layouts(&self, most: u64) -> io::Result<Vec<LayoutStat>> {
        let Some(index) = &self.index else {
            return Ok(Vec::new());
        };
        let mut layouts: BTreeMap<u64, u64> = BTreeMap::new();
        let mut asked = 0;
        index.each_slot(|_, found| {
            if let AtSlot::Slot(slot) = found
                && asked < most
                && let Some(fingerprint) = self.fingerprint_of(&slot)?
            {
                asked += 1;
                *layouts.entry(fingerprint).or_default() += 1;
            }
            Ok(())
        })?;
        let mut layouts: Vec<_> = layouts
            .into_iter()
            .map(|(fingerprint, entries)| LayoutStat {
                fingerprint,
                entries,
            })
            .collect();
        layouts.sort_by_key(|layout| std::cmp::Reverse(layout.entries));
        Ok(layouts)
    }

    /// None if the header of the record does not agree with the slot.
    fn fingerprint_of(&self, slot: &Slot) -> io::Result<Option<u64>> {
        let Known::Right(segment) = self.files.segment_of(slot)? else {
            return Ok(None);
        };
        let mut header = [0; HEADER];
        match segment.read_exact_at(u64::from(slot.place) * UNIT, &mut header) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(e) => return Err(e),
        }
        let room = usize::try_from(u64::from(slot.room) * UNIT).unwrap_or(usize::MAX);
        let fault = Fault::of_record(&header, &expected(slot, None, room));
        Ok(fault.is_none().then(|| record::fingerprint(&header)))
    }
}
