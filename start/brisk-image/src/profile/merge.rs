//! One profile of several.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::path::PathBuf;

use super::{Asked, LookUp, PageRange, Profile, ProfileDirectory, ProfileFile, Root, Step};
use crate::error::{Error, Result, shown};

/// A part of a step of one of the profiles.
#[derive(Debug, Clone, Copy)]
struct Seen {
    at: u64,
    runs: u32,
    /// The profile and the step, to keep the order of what came at one time.
    source: (usize, usize),
}

/// What is asked for, as the merged profile numbers it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Key {
    Pages {
        file: u32,
        first: u64,
        end: u64,
    },
    LookUp {
        directory: u32,
        name: OsString,
        found: bool,
    },
}

/// A step of the merged profile, and what it is sorted by beside its time and runs.
struct Merged {
    key: Key,
    at: u64,
    runs: u32,
    source: (usize, usize),
}

/// Where the files and directories of one profile are in the merged one.
struct Renumbered {
    files: Vec<u32>,
    directories: Vec<u32>,
}

impl Profile {
    /// One profile of all runs of `profiles`: first what every run asks for, then what fewer and fewer
    /// do, each in the order of the median time at which runs first ask for it.
    ///
    /// Ranges are split where the number of runs or the time changes, so both are exact for each
    /// page. Neighbouring pages with the same time and number of runs are one range. The median of
    /// an even number of times is the lower of the two in the middle. The command, and when the
    /// recording was cut, are those of the first profile.
    ///
    /// # Errors
    ///
    /// `Input` if there is no profile, or a file is not the same in all that have it; `Limit` for
    /// more than 2^32 - 1 runs.
    pub fn merge(profiles: &[Self]) -> Result<Self> {
        let Some(first) = profiles.first() else {
            return Err(Error::input(
                "there is no profile to merge; name at least one",
            ));
        };
        let runs = profiles.iter().map(|profile| u64::from(profile.runs)).sum();
        let runs = u32::try_from(runs)
            .map_err(|_| Error::limit("the number of runs", runs, u32::MAX.into()))?;
        let mut merged = Self {
            brisk: env!("CARGO_PKG_VERSION").to_owned(),
            command: first.command.clone(),
            runs,
            ready: first.ready.clone(),
            roots: Vec::new(),
            files: Vec::new(),
            directories: Vec::new(),
            steps: Vec::new(),
        };
        let renumbered = merged.take_paths(profiles)?;
        let mut steps = merged_pages(profiles, &renumbered, merged.files.len());
        steps.extend(merged_look_ups(profiles, &renumbered));
        steps.sort_by(|a, b| {
            let order = |step: &Merged| (Reverse(step.runs), step.at, step.source);
            order(a).cmp(&order(b)).then_with(|| a.key.cmp(&b.key))
        });
        merged.steps = coalesced(steps);
        Ok(merged)
    }

    /// As [`Profile::merge`], for runs between which files may have changed. It leaves such files
    /// out, and also returns how many they are.
    ///
    /// # Errors
    ///
    /// As [`Profile::merge`], but for files.
    pub fn merge_unchanged(mut profiles: Vec<Self>) -> Result<(Self, usize)> {
        let mut known: HashMap<(PathBuf, PathBuf), ProfileFile> = HashMap::new();
        let mut changed = HashSet::new();
        for profile in &profiles {
            for file in &profile.files {
                let root = &profile.roots[file.root as usize];
                let name = (root.path.clone(), file.path.clone());
                let first = known.entry(name.clone()).or_insert_with(|| file.clone());
                if first.may_be(file) {
                    first.digest = first.digest.or(file.digest);
                } else {
                    changed.insert(name);
                }
            }
        }
        for profile in &mut profiles {
            let roots = profile.roots.clone();
            profile.retain_files(|file| {
                let root = roots[file.root as usize].path.clone();
                !changed.contains(&(root, file.path.clone()))
            });
        }
        Ok((Self::merge(&profiles)?, changed.len()))
    }

    /// As [`Profile::merge`], for a launch after those of `earlier`, between which files may have changed. Of such files,
    /// only what `newer` asked for is kept. Also returns how many pages of `earlier` are kept.
    ///
    /// # Errors
    ///
    /// As [`Profile::merge`], but for files.
    pub fn merge_newer(mut earlier: Self, newer: &Self) -> Result<(Self, u64)> {
        let place = |profile: &Self, file: &ProfileFile| {
            let root = profile.roots[file.root as usize].path.clone();
            (root, file.path.clone())
        };
        let files = newer.files.iter().map(|file| (place(newer, file), file));
        let now: HashMap<_, _> = files.collect();
        let roots = earlier.roots.clone();
        earlier.retain_files(|file| {
            let place = (roots[file.root as usize].path.clone(), file.path.clone());
            now.get(&place).is_none_or(|now| now.may_be(file))
        });
        let demand = earlier.demand_by_root().into_iter();
        let kept = demand.map(|demand| demand.pages);
        let kept = kept.fold(0, u64::saturating_add);
        Ok((Self::merge(&[earlier, newer.clone()])?, kept))
    }

    /// Takes out all other files, with what was asked of them.
    fn retain_files(&mut self, keep: impl Fn(&ProfileFile) -> bool) {
        let mut numbers = Vec::with_capacity(self.files.len());
        let mut next = 0;
        for file in &self.files {
            let kept = keep(file);
            numbers.push(kept.then_some(next));
            next += u32::from(kept);
        }
        let mut numbered = numbers.iter();
        self.files
            .retain(|_| numbered.next().is_some_and(Option::is_some));
        self.steps.retain_mut(|step| match &mut step.asked {
            Asked::Pages(range) => match numbers[range.file as usize] {
                Some(number) => {
                    range.file = number;
                    true
                }
                None => false,
            },
            Asked::LookUp(_) => true,
        });
    }

    /// Adds one run more, whose recording has only what this profile lacks, because the rest was in
    /// memory before the launch asked for it. `missed` then comes behind what this profile has.
    ///
    /// # Errors
    ///
    /// As [`Profile::merge`].
    pub fn with_missed(&self, missed: &Self) -> Result<Self> {
        // The run asked for all of `self`, as far as anybody knows.
        let mut rest = self.clone();
        rest.runs = 1;
        for step in &mut rest.steps {
            step.runs = 1;
        }
        let mut merged = Self::merge(&[self.clone(), rest, missed.clone()])?;
        // The last two are one run.
        merged.runs = merged.runs.saturating_sub(missed.runs);
        for step in &mut merged.steps {
            step.runs = step.runs.min(merged.runs);
        }
        Ok(merged)
    }

    /// Takes over roots, files and directories of `profiles`, which `self` has none of.
    fn take_paths(&mut self, profiles: &[Self]) -> Result<Vec<Renumbered>> {
        let mut roots: HashMap<PathBuf, u32> = HashMap::new();
        let mut files: HashMap<(u32, PathBuf), u32> = HashMap::new();
        let mut directories: HashMap<(u32, PathBuf), u32> = HashMap::new();
        let mut renumbered = Vec::new();
        for profile in profiles {
            let mut root_numbers = Vec::new();
            for root in &profile.roots {
                let next = number(self.roots.len())?;
                let known = *roots.entry(root.path.clone()).or_insert(next);
                if known == next {
                    self.roots.push(Root::clone(root));
                }
                root_numbers.push(known);
            }
            let mut file_numbers = Vec::new();
            for file in &profile.files {
                let next = number(self.files.len())?;
                let root = root_numbers[file.root as usize];
                let known = *files.entry((root, file.path.clone())).or_insert(next);
                match self.files.get_mut(known as usize) {
                    Some(other) => same_file(other, file, &self.roots[root as usize])?,
                    None => self.files.push(ProfileFile {
                        root,
                        ..file.clone()
                    }),
                }
                file_numbers.push(known);
            }
            let mut directory_numbers = Vec::new();
            for directory in &profile.directories {
                let next = number(self.directories.len())?;
                let root = root_numbers[directory.root as usize];
                let path = directory.path.clone();
                let known = *directories.entry((root, path.clone())).or_insert(next);
                if known == next {
                    self.directories.push(ProfileDirectory { root, path });
                }
                directory_numbers.push(known);
            }
            renumbered.push(Renumbered {
                files: file_numbers,
                directories: directory_numbers,
            });
        }
        Ok(renumbered)
    }
}

fn number(len: usize) -> Result<u32> {
    u32::try_from(len).map_err(|_| Error::limit("the number of files", len as u64, u32::MAX.into()))
}

impl ProfileFile {
    /// Whether `other`, of the same name, is this file, as far as both tell.
    fn may_be(&self, other: &Self) -> bool {
        let same_digest = match (self.digest, other.digest) {
            (Some(own), Some(other)) => own == other,
            _ => true,
        };
        self.len == other.len && same_digest
    }
}

/// Checks that `file` is `known`, as far as both tell, and takes over what only it tells.
fn same_file(known: &mut ProfileFile, file: &ProfileFile, root: &Root) -> Result<()> {
    if known.may_be(file) {
        known.digest = known.digest.or(file.digest);
        return Ok(());
    }
    let what = match known.len == file.len {
        true => "the same length but other contents".to_owned(),
        false => format!("{} and {} bytes", known.len, file.len),
    };
    let path = root.path.join(shown(&file.path));
    Err(Error::input(format!(
        "file has {what} in two of the profiles, allowed is one file; record them from the same tree"
    ))
    .with_path(path))
}

/// The steps with pages: each file cut where any profile has a range start or end.
fn merged_pages(profiles: &[Profile], renumbered: &[Renumbered], files: usize) -> Vec<Merged> {
    // By file, then by profile: ranges with what is known of them.
    let mut ranges: Vec<Vec<(usize, u64, u64, Seen)>> = vec![Vec::new(); files];
    for (p, (profile, numbers)) in profiles.iter().zip(renumbered).enumerate() {
        for (s, step) in profile.steps.iter().enumerate() {
            let Asked::Pages(range) = &step.asked else {
                continue;
            };
            let file = numbers.files[range.file as usize] as usize;
            let seen = Seen {
                at: step.at,
                runs: step.runs,
                source: (p, s),
            };
            ranges[file].push((p, range.first, range.end(), seen));
        }
    }
    let mut merged = Vec::new();
    for (mut ranges, file) in ranges.into_iter().zip(0..) {
        // Invariant 5 of a profile: the ranges of one profile do not overlap, so each of them is
        // looked at as often as it has cuts, and once for each profile.
        ranges.sort_by_key(|&(p, first, ..)| (p, first));
        let mut cuts: Vec<u64> = ranges
            .iter()
            .flat_map(|&(_, first, end, _)| [first, end])
            .collect();
        cuts.sort_unstable();
        cuts.dedup();
        let mut next: Vec<usize> = (0..profiles.len())
            .map(|p| ranges.partition_point(|range| range.0 < p))
            .collect();
        for pair in cuts.windows(2) {
            let (first, end) = (pair[0], pair[1]);
            let mut seen = Vec::new();
            for (p, next) in next.iter_mut().enumerate() {
                while ranges
                    .get(*next)
                    .is_some_and(|range| range.0 == p && range.2 <= first)
                {
                    *next += 1;
                }
                match ranges.get(*next) {
                    Some(range) if range.0 == p && range.1 <= first => seen.push(range.3),
                    _ => {}
                }
            }
            if !seen.is_empty() {
                merged.push(merge_seen(Key::Pages { file, first, end }, &seen));
            }
        }
    }
    merged
}

fn merged_look_ups(profiles: &[Profile], renumbered: &[Renumbered]) -> Vec<Merged> {
    let mut look_ups: HashMap<Key, Vec<Seen>> = HashMap::new();
    for (p, (profile, numbers)) in profiles.iter().zip(renumbered).enumerate() {
        for (s, step) in profile.steps.iter().enumerate() {
            let Asked::LookUp(LookUp {
                directory,
                name,
                found,
            }) = &step.asked
            else {
                continue;
            };
            let directory = numbers.directories[*directory as usize];
            let key = Key::LookUp {
                directory,
                name: name.clone(),
                found: *found,
            };
            let seen = Seen {
                at: step.at,
                runs: step.runs,
                source: (p, s),
            };
            look_ups.entry(key).or_default().push(seen);
        }
    }
    let merge = |(key, seen): (Key, Vec<Seen>)| merge_seen(key, &seen);
    look_ups.into_iter().map(merge).collect()
}

/// The step of `seen`, at least one: the runs of all, and the median of their times, where a time
/// counts as often as there were runs.
fn merge_seen(key: Key, seen: &[Seen]) -> Merged {
    let runs: u32 = seen.iter().map(|seen| seen.runs).sum();
    let mut times: Vec<(u64, u32)> = seen.iter().map(|seen| (seen.at, seen.runs)).collect();
    times.sort_unstable();
    let mut below = 0;
    let median = times.iter().find(|(_, runs_then)| {
        below += *runs_then;
        below >= runs.div_ceil(2)
    });
    Merged {
        key,
        at: median.map_or(0, |(at, _)| *at),
        runs,
        source: seen
            .iter()
            .map(|seen| seen.source)
            .min()
            .unwrap_or_default(),
    }
}

fn coalesced(merged: Vec<Merged>) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for Merged { key, at, runs, .. } in merged {
        let asked = match key {
            Key::LookUp {
                directory,
                name,
                found,
            } => Asked::LookUp(LookUp {
                directory,
                name,
                found,
            }),
            Key::Pages { file, first, end } => {
                if let Some(Step {
                    asked: Asked::Pages(last),
                    at: last_at,
                    runs: last_runs,
                }) = steps.last_mut()
                    && (last.file, last.end(), *last_at, *last_runs) == (file, first, at, runs)
                {
                    last.count += end - first;
                    continue;
                }
                Asked::Pages(PageRange {
                    file,
                    first,
                    count: end - first,
                })
            }
        };
        steps.push(Step { asked, at, runs });
    }
    steps
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::profile::RootKind;
    use crate::profile::page_set::PageSet;

    /// A profile of `/app` with the files `0`, `1`, ….
    fn profile(runs: u32, steps: &[(u32, u64, u64, u64, u32)]) -> Profile {
        let files = steps.iter().map(|step| step.0 + 1).max().unwrap_or(0);
        let file = |n: u32| ProfileFile {
            root: 0,
            path: n.to_string().into(),
            len: 1 << 20,
            digest: None,
        };
        let mut seen = HashMap::<u32, PageSet>::new();
        let mut list = Vec::new();
        for &(file, first, count, at, runs) in steps {
            seen.entry(file)
                .or_default()
                .insert(first, first + count, |first, end| {
                    let asked = Asked::Pages(PageRange {
                        file,
                        first,
                        count: end - first,
                    });
                    list.push(Step { asked, at, runs });
                });
        }
        let profile = Profile {
            brisk: "1".to_owned(),
            command: Vec::new(),
            runs,
            ready: None,
            roots: vec![Root {
                path: "/app".into(),
                kind: RootKind::Directory,
            }],
            files: (0..files).map(file).collect(),
            directories: Vec::new(),
            steps: list,
        };
        profile.check_invariants().unwrap();
        profile
    }

    fn steps(profile: &Profile) -> Vec<(u32, u64, u64, u64, u32)> {
        let ranges = profile.ranges();
        ranges
            .map(|(step, r)| (r.file, r.first, r.count, step.at, step.runs))
            .collect()
    }

    #[test]
    fn what_every_run_needs_comes_first() {
        let a = profile(1, &[(0, 0, 10, 5, 1), (1, 0, 4, 7, 1)]);
        let b = profile(1, &[(1, 2, 4, 3, 1), (0, 5, 10, 9, 1)]);
        let merged = Profile::merge(&[a.clone(), b]).unwrap();
        assert_eq!(
            steps(&merged),
            [
                (1, 2, 2, 3, 2),
                (0, 5, 5, 5, 2),
                (1, 4, 2, 3, 1),
                (0, 0, 5, 5, 1),
                (1, 0, 2, 7, 1),
                (0, 10, 5, 9, 1)
            ]
        );
        assert_eq!(merged.runs, 2);
        let again = Profile::merge(std::slice::from_ref(&a)).unwrap();
        assert_eq!(steps(&again), steps(&a));
    }

    #[test]
    fn what_was_missed_is_behind_what_is_known() {
        let known = profile(2, &[(0, 0, 10, 50, 2), (1, 0, 4, 70, 1)]);
        let missed = profile(1, &[(2, 0, 3, 1, 1), (0, 8, 4, 2, 1)]);
        let all = known.with_missed(&missed).unwrap();
        all.check_invariants().unwrap();
        assert_eq!(all.runs, 3);
        let expected = [
            // Known, and missed all the same: evicted.
            (0, 8, 2, 50, 3),
            (0, 0, 8, 50, 3),
            (1, 0, 4, 70, 2),
            (2, 0, 3, 1, 1),
            (0, 10, 2, 2, 1),
        ];
        assert_eq!(steps(&all), expected);
    }

    #[test]
    fn other_contents_are_said() {
        let a = profile(1, &[(0, 0, 1, 0, 1)]);
        let mut b = a.clone();
        b.files[0].len += 1;
        let e = Profile::merge(&[a.clone(), b.clone()]).unwrap_err();
        assert_eq!(
            e.to_string(),
            "/app/0: file has 1048576 and 1048577 bytes in two of the profiles, allowed is one file; \
             record them from the same tree"
        );
        (b.files[0].len, b.files[0].digest) = (1 << 20, Some([1; 32]));
        let mut c = b.clone();
        assert_eq!(
            Profile::merge(&[a, b.clone()]).unwrap().files[0].digest,
            Some([1; 32])
        );
        c.files[0].digest = Some([2; 32]);
        let e = Profile::merge(&[b, c]).unwrap_err();
        assert!(
            e.to_string().contains("the same length but other contents"),
            "{e}"
        );
        let e = Profile::merge(&[]).unwrap_err();
        assert_eq!(
            e.to_string(),
            "there is no profile to merge; name at least one"
        );
    }

    #[test]
    fn what_changed_between_runs_is_left_out() {
        let a = profile(1, &[(0, 0, 2, 0, 1), (1, 0, 1, 3, 1), (2, 4, 1, 5, 1)]);
        let mut b = profile(1, &[(0, 0, 1, 2, 1), (1, 0, 4, 4, 1), (2, 4, 2, 6, 1)]);
        b.files[1].len += 1;
        let (merged, changed) = Profile::merge_unchanged(vec![a.clone(), b.clone()]).unwrap();
        merged.check_invariants().unwrap();
        assert_eq!(changed, 1);
        let paths: Vec<_> = merged.files.iter().map(|file| &file.path).collect();
        assert_eq!(paths, [Path::new("0"), Path::new("2")]);
        let expected = [
            (0, 0, 1, 0, 2),
            (1, 4, 1, 5, 2),
            (0, 1, 1, 0, 1),
            (1, 5, 1, 6, 1),
        ];
        assert_eq!(steps(&merged), expected);
        assert_eq!(merged.runs, 2);
        b.files[1].len -= 1;
        let whole = Profile::merge(&[a.clone(), b.clone()]).unwrap();
        let (merged, changed) = Profile::merge_unchanged(vec![a, b]).unwrap();
        assert_eq!((merged, changed), (whole, 0));
    }

    #[test]
    fn look_ups_are_counted_by_their_answer() {
        let with = |found, at| {
            let mut p = profile(1, &[]);
            p.directories.push(ProfileDirectory {
                root: 0,
                path: "".into(),
            });
            let asked = Asked::LookUp(LookUp {
                directory: 0,
                name: "x".into(),
                found,
            });
            p.steps.push(Step { asked, at, runs: 1 });
            p
        };
        let merged = Profile::merge(&[with(true, 9), with(false, 1), with(true, 3)]).unwrap();
        let seen: Vec<_> = merged
            .steps
            .iter()
            .map(|step| (step.at, step.runs))
            .collect();
        assert_eq!(seen, [(3, 2), (1, 1)]);
        merged.check_invariants().unwrap();
    }

    type Ranges = Vec<(u32, u64, u64, u64, u32)>;

    fn some_profile() -> impl Strategy<Value = (u32, Ranges)> {
        (1u32..4).prop_flat_map(|runs| {
            let step = (0u32..3, 0u64..40, 1u64..12, 0u64..6, 1..=runs);
            (Just(runs), prop::collection::vec(step, 0..12))
        })
    }

    proptest! {
        /// Against a map of pages.
        #[test]
        fn counts_and_times_are_exact_for_each_page(
            inputs in prop::collection::vec(some_profile(), 1..5),
        ) {
            let profiles: Vec<_> = inputs.iter().map(|(runs, list)| profile(*runs, list)).collect();
            let merged = Profile::merge(&profiles).unwrap();
            merged.check_invariants().unwrap();
            let name = |profile: &Profile, file: u32| profile.files[file as usize].path.clone();
            let mut model: BTreeMap<(PathBuf, u64), Vec<u64>> = BTreeMap::new();
            for profile in &profiles {
                for (step, range) in profile.ranges() {
                    for page in range.first..range.end() {
                        let times = model.entry((name(profile, range.file), page)).or_default();
                        times.extend(std::iter::repeat_n(step.at, step.runs as usize));
                    }
                }
            }
            let expected: BTreeMap<_, _> = model.into_iter().map(|(page, mut times)| {
                times.sort_unstable();
                (page, (times.len() as u32, times[(times.len() - 1) / 2]))
            }).collect();
            let mut found = BTreeMap::new();
            for (step, range) in merged.ranges() {
                for page in range.first..range.end() {
                    found.insert((name(&merged, range.file), page), (step.runs, step.at));
                }
            }
            prop_assert_eq!(found, expected);
            let order: Vec<_> = merged.steps.iter().map(|s| (Reverse(s.runs), s.at)).collect();
            prop_assert!(order.is_sorted());
            let distinct: HashSet<_> = merged.files.iter().map(|file| &file.path).collect();
            prop_assert_eq!(distinct.len(), merged.files.len());
        }
    }
}
