use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use crate::format::slot::Slot;
use crate::index::Found;

/// So many are remembered at most. After that, it begins anew.
const MOST: usize = 4096;

/// What a process has found damaged with the lock, or though it could not have it for long. It stays so: a slot that
/// somebody writes has other bytes then, and a record that was published never changes. So who finds it again need not
/// wait for the lock again.
#[derive(Debug, Default)]
pub(crate) struct KnownDamage(Mutex<HashSet<Damaged>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Damaged {
    /// A slot, by the check of its place and its bytes.
    Slot(u64),
    /// A record that is not what its slot says, or not there: segment, place and check.
    Record(u64, u32, u64),
}

impl Damaged {
    /// What would be damaged of what was found, if it was not right.
    pub(crate) fn found(found: &Found) -> Option<Self> {
        match found {
            Found::Slot(_, slot) => Some(Self::record(slot)),
            Found::Torn { check } => Some(Self::Slot(*check)),
            Found::Nothing => None,
        }
    }

    pub(crate) fn record(slot: &Slot) -> Self {
        Self::Record(slot.segment, slot.place, slot.record)
    }
}

impl KnownDamage {
    pub(crate) fn has(&self, damaged: Damaged) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.contains(&damaged)
    }

    pub(crate) fn note(&self, damaged: Damaged) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(damaged);
    }
}
