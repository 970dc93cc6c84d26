//! Variants of a replay or a fill: without one of its parts, or with another number of threads.

use std::time::Duration;

use anyhow::{Context, Result};
use brisk_image::profile::{Asked, Named, PAGE, Profile, ProfileBuilder};

/// Pages in a block of 128 KiB. That is the default block of SquashFS images, and the unit of other tools
/// that fill.
const BLOCK: u64 = 32;

/// The difference to the normal replay or fill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// Contents only: no name is looked up ahead.
    Pages,
    /// Look-ups only.
    Names,
    /// Every block that contains a page that the launch asks for, as a whole.
    Blocks,
    /// This many threads that read, or that decode and store.
    Threads(u8),
}

impl Change {
    /// The number of threads, if that is the difference.
    pub fn threads(self) -> Option<u8> {
        match self {
            Self::Threads(number) => Some(number),
            _ => None,
        }
    }

    /// `profile` with this change. None if the profile stays the same. A hot pack needs at least one page:
    /// with `is_packed`, the first page stays even if only look-ups are wanted.
    pub fn of(self, profile: &Profile, is_packed: bool) -> Result<Option<Profile>> {
        if let Self::Threads(_) = self {
            return Ok(None);
        }
        let builder = ProfileBuilder::new();
        let roots: Vec<_> = profile
            .roots()
            .iter()
            .map(|root| builder.add_root(&root.path, root.kind))
            .collect();
        let root_of = |number: u32| {
            let root = roots.get(number as usize);
            root.copied()
                .context("the profile has a root that it does not list")
        };
        let mut pages = 0;
        // Only the order matters. Medians of several runs may not be in order, so each step gets a new time.
        for (at, step) in (0..).map(Duration::from_micros).zip(profile.steps()) {
            match &step.asked {
                Asked::LookUp(look_up) if self != Self::Pages => {
                    let directory = profile.directories().get(look_up.directory as usize);
                    let root = root_of(directory.map_or(u32::MAX, |of| of.root))?;
                    let id = directory_id(look_up.directory);
                    builder.look_up(root, id, &look_up.name, look_up.found, at);
                }
                Asked::Pages(range) => {
                    let file = profile.files().get(range.file as usize);
                    let root = root_of(file.map_or(u32::MAX, |of| of.root))?;
                    let (first, end) = match self {
                        Self::Names if !is_packed || pages > 0 => continue,
                        Self::Names => (range.first, range.first + 1),
                        Self::Blocks => (
                            range.first / BLOCK * BLOCK,
                            range.end().next_multiple_of(BLOCK),
                        ),
                        _ => (range.first, range.end()),
                    };
                    pages += end - first;
                    let id = file_id(range.file);
                    builder.range(root, id, first * PAGE, (end - first) * PAGE, at);
                }
                _ => {}
            }
        }
        let name = |_, id: u64| {
            let number = usize::try_from(id / 2).ok()?;
            if id % 2 == 1 {
                let directory = profile.directories().get(number)?;
                return Some(Named::new(directory.path.clone(), 0));
            }
            let file = profile.files().get(number)?;
            Some(Named::new(file.path.clone(), file.len).digest(file.digest))
        };
        let recorded = builder.finish(profile.command().to_vec(), None, name)?;
        Ok(Some(recorded.profile))
    }
}

/// The numbers of files are even, those of directories odd.
fn file_id(number: u32) -> u64 {
    u64::from(number) * 2
}

fn directory_id(number: u32) -> u64 {
    u64::from(number) * 2 + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use brisk_image::profile::RootKind;
    use std::ffi::OsStr;

    fn recorded() -> Profile {
        let builder = ProfileBuilder::new();
        let root = builder.add_root("/tree", RootKind::Image);
        let ms = Duration::from_millis;
        builder.look_up(root, 1, OsStr::new("file"), true, ms(1));
        builder.range(root, 2, 40 * PAGE, 2 * PAGE, ms(2));
        builder.look_up(root, 1, OsStr::new("none"), false, ms(3));
        builder.range(root, 2, 3 * PAGE, PAGE, ms(4));
        let name = |_, id: u64| {
            Some(
                Named::new(
                    ["", "file"][usize::try_from(id).ok()?.checked_sub(1)?],
                    50 * PAGE - 1,
                )
                .digest([7; 32]),
            )
        };
        builder.finish(Vec::new(), None, name).unwrap().profile
    }

    fn steps(profile: &Profile) -> Vec<String> {
        let shown = profile.steps().iter().map(|step| match &step.asked {
            Asked::Pages(range) => format!("{}+{}", range.first, range.count),
            Asked::LookUp(look_up) => look_up.name.display().to_string(),
            other => panic!("{other:?}"),
        });
        shown.collect()
    }

    #[test]
    fn each_change_leaves_the_rest_as_it_is() {
        let profile = recorded();
        let table: [(Change, bool, &[&str]); 5] = [
            (Change::Pages, true, &["40+2", "3+1"]),
            (Change::Names, false, &["file", "none"]),
            (Change::Names, true, &["file", "40+1", "none"]),
            // The file has 50 pages.
            (Change::Blocks, true, &["file", "32+18", "none", "0+32"]),
            (Change::Blocks, false, &["file", "32+18", "none", "0+32"]),
        ];
        for (change, is_packed, expected) in table {
            let changed = change.of(&profile, is_packed).unwrap().unwrap();
            assert_eq!(steps(&changed), expected, "{change:?}");
            assert_eq!(changed.roots(), profile.roots());
            for file in changed.files() {
                assert_eq!(file, &profile.files()[0]);
            }
        }
        assert!(Change::Threads(8).of(&profile, true).unwrap().is_none());
        assert_eq!(Change::Threads(8).threads(), Some(8));
    }
}
