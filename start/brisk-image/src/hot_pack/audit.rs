//! How much of a hot pack a launch asked for.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

use super::HotPack;
use crate::profile::page_set::PageSet;
use crate::profile::{Asked, PagesOfBoth, Profile};

/// What a launch asked for, compared with what a hot pack would have put into memory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Audit {
    /// Pages of all files.
    pub pages: Audited,
    /// Look-ups of names.
    pub look_ups: Audited,
    /// The files with useless or missed pages. Those with the most useless pages come first; of
    /// equals, those with the most missed ones.
    pub files: Vec<AuditedFile>,
}

/// Counts of one kind of thing that a launch asked for or a hot pack has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Audited {
    /// Asked for, and in the pack.
    pub used: u64,
    /// Asked for, and not in the pack.
    pub missed: u64,
    /// In the pack, and not asked for.
    pub useless: u64,
}

/// A file of an [`Audit`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct AuditedFile {
    /// The path in the image or tree.
    #[serde(serialize_with = "lossy")]
    pub path: PathBuf,
    /// Its pages.
    #[serde(flatten)]
    pub pages: Audited,
}

/// Bytes that are no UTF-8 are shown in another way: the path is for people.
fn lossy<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

impl Audited {
    /// Of what was asked for, and of what the pack has.
    fn of(asked: &PageSet, pack: &PageSet) -> Self {
        let PagesOfBoth {
            only_first,
            only_second,
            both,
        } = PagesOfBoth::of(asked, pack);
        Self {
            used: both,
            missed: only_first,
            useless: only_second,
        }
    }

    fn add(&mut self, other: Self) {
        self.used = self.used.saturating_add(other.used);
        self.missed = self.missed.saturating_add(other.missed);
        self.useless = self.useless.saturating_add(other.useless);
    }

    /// What was asked for.
    pub fn asked(&self) -> u64 {
        self.used.saturating_add(self.missed)
    }

    /// What the pack has.
    pub fn in_pack(&self) -> u64 {
        self.used.saturating_add(self.useless)
    }
}

impl Profile {
    /// Compares what this launch asked for in its root `root` with what `pack` has. Files are the
    /// same if their paths are.
    pub fn audit(&self, root: u32, pack: &HotPack) -> Audit {
        let mut files: BTreeMap<&Path, (PageSet, PageSet)> = BTreeMap::new();
        for (file, pages) in self.files.iter().zip(self.page_sets()) {
            if file.root == root {
                files.entry(&file.path).or_default().0 = pages;
            }
        }
        for range in (0..pack.range_count()).map_while(|number| pack.range(number)) {
            // A page is in one range only, and a range in one file: a number beyond is no file's.
            if let Some(file) = pack.file(range.file as usize) {
                let pages = &mut files.entry(file.path()).or_default().1;
                pages.insert(range.first, range.end(), |_, _| {});
            }
        }
        let mut audit = Audit::default();
        for (path, (asked, in_pack)) in files {
            let pages = Audited::of(&asked, &in_pack);
            audit.pages.add(pages);
            if pages.missed > 0 || pages.useless > 0 {
                let path = path.to_owned();
                audit.files.push(AuditedFile { path, pages });
            }
        }
        // The sort is stable: the others stay in the order of their paths.
        let worst = |file: &AuditedFile| (file.pages.useless, file.pages.missed);
        audit
            .files
            .sort_by_key(|file| std::cmp::Reverse(worst(file)));
        audit.look_ups = self.audit_look_ups(root, pack);
        audit
    }

    fn audit_look_ups(&self, root: u32, pack: &HotPack) -> Audited {
        let asked = self.steps.iter().filter_map(|step| match &step.asked {
            Asked::LookUp(look_up) => {
                let directory = &self.directories[look_up.directory as usize];
                (directory.root == root).then_some((&*directory.path, &*look_up.name))
            }
            Asked::Pages(_) => None,
        });
        let asked: HashSet<(&Path, &OsStr)> = asked.collect();
        let in_pack: HashSet<(&Path, &OsStr)> = pack
            .look_ups()
            .map(|look_up| (look_up.directory, look_up.name))
            .collect();
        let used = asked.intersection(&in_pack).count() as u64;
        Audited {
            used,
            missed: asked.len() as u64 - used,
            useless: in_pack.len() as u64 - used,
        }
    }
}
