//! A profile of pages that a launch never asks for. It shows what the worst profile costs.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use brisk_image::profile::{Asked, Named, PAGE, Profile, ProfileBuilder};

use super::walk::WalkedFile;

/// A profile with as many pages as `right`, and none of the pages that `right` asks for. It takes them from
/// the largest of `files` first, with the names that lead to them. It has fewer pages if the tree has no
/// more.
///
/// Paths of `files` are in the tree `tree`, from which `right` was recorded.
pub fn profile(right: &Profile, tree: &Path, files: &[WalkedFile]) -> Result<Profile> {
    let root = right.roots().first().context("the profile has no root")?;
    ensure!(
        right.roots().len() == 1,
        "the profile has {} roots, allowed is 1",
        right.roots().len()
    );
    let mut asked: HashMap<&Path, Vec<(u64, u64)>> = HashMap::new();
    let mut left = 0;
    for step in right.steps() {
        if let Asked::Pages(range) = &step.asked {
            let file = usize::try_from(range.file)
                .ok()
                .and_then(|number| right.files().get(number))
                .context("the profile has pages of a file that it does not have")?;
            let ranges = asked.entry(&file.path).or_default();
            ranges.push((range.first, range.end()));
            left += range.count;
        }
    }
    let builder = ProfileBuilder::new();
    let id = builder.add_root(&root.path, root.kind);
    let mut largest: Vec<_> = files.iter().collect();
    largest.sort_by_key(|file| std::cmp::Reverse(file.len));
    // The numbers of directories and files. No two have the same.
    let mut numbers: BTreeMap<PathBuf, u64> = BTreeMap::new();
    let mut number = |path: &Path| {
        let next = numbers.len() as u64;
        *numbers.entry(path.to_owned()).or_insert(next)
    };
    let mut lens = HashMap::new();
    let at = Duration::ZERO;
    for file in largest {
        let path = file.path.strip_prefix(tree)?;
        let mut asked = asked.remove(path).unwrap_or_default();
        // The end of the file, after its last page.
        let pages = file.len.div_ceil(PAGE);
        asked.push((pages, pages));
        asked.sort_unstable();
        let mut free = Vec::new();
        let mut from = 0;
        for (first, end) in asked {
            let count = first.saturating_sub(from).min(left);
            if count > 0 {
                free.push((from, count));
                left -= count;
            }
            from = from.max(end);
        }
        if free.is_empty() {
            continue;
        }
        let parts: Vec<_> = path.ancestors().collect();
        for pair in parts.windows(2).rev() {
            if let ([name, directory], Some(last)) = (pair, pair[0].file_name()) {
                debug_assert!(name.parent() == Some(directory));
                builder.look_up(id, number(directory), last, true, at);
            }
        }
        let file_number = number(path);
        lens.insert(file_number, file.len);
        for (first, count) in free {
            builder.range(id, file_number, first * PAGE, count * PAGE, at);
        }
        if left == 0 {
            break;
        }
    }
    let paths: HashMap<_, _> = numbers.into_iter().map(|(path, id)| (id, path)).collect();
    let recorded = builder.finish(Vec::new(), None, |_, id| {
        Some(Named::new(
            paths.get(&id)?.clone(),
            lens.get(&id).copied().unwrap_or(0),
        ))
    })?;
    Ok(recorded.profile)
}

#[cfg(test)]
mod tests {
    use super::*;
    use brisk_image::profile::RootKind;

    #[test]
    fn no_page_is_one_that_is_asked_for() {
        let builder = ProfileBuilder::new();
        let root = builder.add_root("/tree", RootKind::Image);
        builder.range(root, 1, 2 * PAGE, 3 * PAGE, Duration::ZERO);
        builder.range(root, 1, 8 * PAGE, PAGE, Duration::ZERO);
        builder.range(root, 2, 0, 6 * PAGE, Duration::ZERO);
        let files = [("a/large", 12 * PAGE - 1), ("small", 6 * PAGE), ("none", 9)];
        let name = |_, id: u64| {
            let (path, len) = *files.get(usize::try_from(id).ok()?.checked_sub(1)?)?;
            Some(Named::new(path, len))
        };
        let right = builder.finish(Vec::new(), None, name).unwrap().profile;
        let walked = files.map(|(path, len)| WalkedFile {
            path: Path::new("/tree").join(path),
            len,
        });
        let wrong = profile(&right, Path::new("/tree"), &walked).unwrap();
        let pages = |asked: &Asked| match asked {
            Asked::Pages(range) => {
                let file = &wrong.files()[range.file as usize];
                let path = file.path.to_str().unwrap();
                Some(format!("{path} {}+{}", range.first, range.count))
            }
            _ => None,
        };
        let found: Vec<_> = wrong
            .steps()
            .iter()
            .filter_map(|s| pages(&s.asked))
            .collect();
        // Four of twelve pages are asked for, so eight are left, and one of the smallest file.
        assert_eq!(
            found,
            ["a/large 0+2", "a/large 5+3", "a/large 9+3", "none 0+1"]
        );
        let found = wrong.demand_by_root()[0].found;
        assert_eq!(found, 3, "a, large, none");
    }
}
