//! What two profiles have in common.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::Profile;
use super::page_set::PageSet;

/// What two profiles ask for, page by page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProfileDifference {
    /// All files together.
    pub total: PagesOfBoth,
    /// The files whose pages differ, by path: that of the root, and the one in it.
    pub files: Vec<(PathBuf, PathBuf, PagesOfBoth)>,
}

/// Pages that only one or both of two profiles ask for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct PagesOfBoth {
    /// Pages that only the first profile has.
    pub only_first: u64,
    /// Pages that only the second has.
    pub only_second: u64,
    /// Pages that both have.
    pub both: u64,
}

impl PagesOfBoth {
    pub(crate) fn of(first: &PageSet, second: &PageSet) -> Self {
        let both = first.common_pages(second);
        Self {
            only_first: first.pages() - both,
            only_second: second.pages() - both,
            both,
        }
    }
}

impl Profile {
    /// Counts what only this profile, only `other`, and both ask for.
    ///
    /// Files are the same if their roots and paths are. If each profile has one root, the two count
    /// as the same root.
    pub fn compare(&self, other: &Self) -> ProfileDifference {
        let one_root = self.roots.len() == 1 && other.roots.len() == 1;
        let sets = |profile: &Self| -> BTreeMap<(PathBuf, PathBuf), PageSet> {
            let named = profile
                .files
                .iter()
                .zip(profile.page_sets())
                .map(|(file, set)| {
                    let root: &Path = match one_root {
                        true => &self.roots[0].path,
                        false => &profile.roots[file.root as usize].path,
                    };
                    ((root.to_owned(), file.path.clone()), set)
                });
            named.collect()
        };
        let (mut first, mut second) = (sets(self), sets(other));
        let names: Vec<_> = first.keys().chain(second.keys()).cloned().collect();
        let mut files: BTreeMap<_, PagesOfBoth> = BTreeMap::new();
        for name in names {
            // The name comes twice if both have it: nothing is left the second time.
            let (a, b) = (first.remove(&name), second.remove(&name));
            if a.is_some() || b.is_some() {
                let (a, b) = (a.unwrap_or_default(), b.unwrap_or_default());
                files.insert(name, PagesOfBoth::of(&a, &b));
            }
        }
        let mut difference = ProfileDifference::default();
        for ((root, path), pages) in files {
            let total = &mut difference.total;
            for (sum, more) in [
                (&mut total.only_first, pages.only_first),
                (&mut total.only_second, pages.only_second),
                (&mut total.both, pages.both),
            ] {
                *sum = sum.saturating_add(more);
            }
            if pages.only_first > 0 || pages.only_second > 0 {
                difference.files.push((root, path, pages));
            }
        }
        difference
    }
}
