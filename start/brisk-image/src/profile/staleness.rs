//! Whether a tree is still the one that a profile was recorded from.

use super::origin::Origin;
use super::{Asked, Profile};
use crate::error::Result;
use crate::ordered;
use crate::work::Work;

/// How much of a profile a tree still has.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Staleness {
    /// The number of the root that the tree was compared with, in the profile as
    /// [`Origin::narrow`] makes it.
    pub root: u32,
    /// What became of each file of the profile.
    pub files: Vec<FileState>,
    /// Pages of the profile, by what became of their file.
    pub pages: PagesByState,
    /// Look-ups in the root whose answer is now the other one.
    pub look_ups_changed: u64,
    /// Look-ups in the root.
    pub look_ups: u64,
}

/// Pages, counted by the state of their files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct PagesByState {
    /// In unchanged files.
    pub same: u64,
    /// In files with other contents.
    pub changed: u64,
    /// In files that are gone.
    pub missing: u64,
    /// In files of other roots.
    pub outside: u64,
}

/// What became of a file of a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileState {
    /// It has the same length, and the same digest if the profile has one.
    Same,
    /// It has another length, which is this one.
    Length(u64),
    /// It has the same length but other contents.
    Contents,
    /// There is no such file.
    Missing,
    /// It belongs to another root.
    Outside,
}

impl Staleness {
    /// True if a file of the root changed or is not there.
    pub fn is_stale(&self) -> bool {
        self.pages.changed > 0 || self.pages.missing > 0
    }
}

impl Profile {
    /// Compares the files of one root with those of `origin`. It reads all of each file whose
    /// digest the profile has.
    ///
    /// # Errors
    ///
    /// `Io` for what cannot be read. A difference is no error.
    pub fn check(&self, origin: &Origin, work: &Work) -> Result<Staleness> {
        let profile = &*origin.narrow(self)?;
        let root = origin.root_of(profile)?;
        let mut staleness = Staleness {
            root,
            files: Vec::with_capacity(profile.files.len()),
            pages: PagesByState::default(),
            look_ups_changed: 0,
            look_ups: 0,
        };
        let mut demand = profile.demand_by_file().into_iter();
        ordered::for_each(
            work.thread_count(),
            work.thread_count().saturating_mul(8),
            profile.files.iter(),
            || (),
            |(), file| {
                if file.root != root {
                    return Ok(FileState::Outside);
                }
                let Some(found) = origin.open(&file.path)? else {
                    return Ok(FileState::Missing);
                };
                let state = match (found.len() == file.len, file.digest) {
                    (false, _) => FileState::Length(found.len()),
                    (true, Some(digest)) if digest != found.digest()? => FileState::Contents,
                    (true, _) => FileState::Same,
                };
                work.tell(file.len)?;
                Ok(state)
            },
            |state| {
                let state = state?;
                let (pages, _) = demand.next().unwrap_or_default();
                let count = match state {
                    FileState::Same => &mut staleness.pages.same,
                    FileState::Length(_) | FileState::Contents => &mut staleness.pages.changed,
                    FileState::Missing => &mut staleness.pages.missing,
                    FileState::Outside => &mut staleness.pages.outside,
                };
                *count = count.saturating_add(pages);
                staleness.files.push(state);
                Ok(())
            },
        )?;
        for step in &profile.steps {
            let Asked::LookUp(look_up) = &step.asked else {
                continue;
            };
            let directory = &profile.directories[look_up.directory as usize];
            if directory.root == root {
                staleness.look_ups += 1;
                let is_there = origin.exists(&directory.path.join(&look_up.name))?;
                staleness.look_ups_changed += u64::from(is_there != look_up.found);
            }
        }
        Ok(staleness)
    }
}
