//! What a launch asked for.

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::page_set::PageSet;

use crate::error::{Allowed, Corrupt, Error, Location, Result};
use crate::format::PATH_MAX;
use crate::format::path_rules::{file_path_fault, name_fault, path_fault};

/// Bytes of a page in a [`Profile`] and in a [`HotPack`](crate::hot_pack::HotPack), on every machine.
pub const PAGE: u64 = 4096;

/// What a launch asked for: ranges of pages and look-ups of names, in the order in which they were
/// first asked for.
///
/// Made by a [`ProfileBuilder`](crate::profile::ProfileBuilder) or read from its text
/// ([`Profile::from_text`]); [`Profile::merge`] makes one of several.
///
/// 1. `runs` is at least 1, and each step was seen in 1 to `runs` of them.
/// 2. Paths of roots are absolute, and each is there once. Paths in roots are relative and normal,
///    and no two files and no two directories have one path. Only a directory has an empty path.
/// 3. What a step or a path refers to is there.
/// 4. The pages of a step are at least one, and in their file.
/// 5. No page is in two steps, and no name was looked up in a directory with the same answer in two.
/// 6. Names of look-ups have 1 to 255 bytes, no slash and no zero, and are neither `.` nor `..`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    pub(crate) brisk: String,
    pub(crate) command: Vec<OsString>,
    pub(crate) runs: u32,
    pub(crate) ready: Option<Ready>,
    pub(crate) roots: Vec<Root>,
    pub(crate) files: Vec<ProfileFile>,
    pub(crate) directories: Vec<ProfileDirectory>,
    pub(crate) steps: Vec<Step>,
}

/// When the recording was cut.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ready {
    /// What was taken for readiness, for people: "exit", "socket /run/app".
    pub by: String,
    /// Microseconds from the start until then.
    pub at: u64,
}

impl Ready {
    /// The program was ready `at` microseconds after its start, as `by` showed.
    pub fn new(by: impl Into<String>, at: u64) -> Self {
        Self { by: by.into(), at }
    }
}

/// Something that files were read from.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Root {
    /// The absolute path at which the program saw it.
    pub path: PathBuf,
    /// What it was.
    pub kind: RootKind,
}

/// What a [`Root`] was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RootKind {
    /// A directory.
    Directory,
    /// An image.
    Image,
    /// The system itself: whatever was in none of the other roots.
    System,
}

impl RootKind {
    const ALL: [Self; 3] = [Self::Directory, Self::Image, Self::System];

    /// `directory`, `image` or `system`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Directory => "directory",
            Self::Image => "image",
            Self::System => "system",
        }
    }

    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// A file that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProfileFile {
    /// The number of its root.
    pub root: u32,
    /// The path in the root.
    pub path: PathBuf,
    /// Bytes.
    pub len: u64,
    /// BLAKE3 of the contents, where it is known.
    pub digest: Option<[u8; 32]>,
}

/// A directory in which names were looked up.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ProfileDirectory {
    /// The number of its root.
    pub root: u32,
    /// The path in the root; empty for the root itself.
    pub path: PathBuf,
}

/// A step of a launch: something that it asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Step {
    /// What.
    pub asked: Asked,
    /// When it was first asked for, in microseconds from the start; of several runs, the median.
    pub at: u64,
    /// In how many runs.
    pub runs: u32,
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Asked {
    /// Pages of a file.
    Pages(PageRange),
    /// A name.
    LookUp(LookUp),
}

/// Pages of a file that follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageRange {
    /// The number of the file.
    pub file: u32,
    /// The first page; the first of the file is 0.
    pub first: u64,
    /// How many, at least 1.
    pub count: u64,
}

impl PageRange {
    /// The page behind the last.
    pub fn end(&self) -> u64 {
        self.first + self.count
    }

    /// Bytes of the range in a file of `len` bytes, whose last page may be short.
    pub fn bytes_of(&self, len: u64) -> u64 {
        let end = self.end().saturating_mul(PAGE).min(len);
        end.saturating_sub(self.first.saturating_mul(PAGE))
    }
}

/// A name that was looked up in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LookUp {
    /// The number of the directory.
    pub directory: u32,
    /// The name.
    pub name: OsString,
    /// Whether it was there.
    pub found: bool,
}

/// How much a profile, or one root of it, asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Demand {
    /// Files with at least one page.
    pub files: u64,
    /// Pages.
    pub pages: u64,
    /// Bytes of those pages.
    pub bytes: u64,
    /// Ranges of pages.
    pub ranges: u64,
    /// Names that were looked up and found.
    pub found: u64,
    /// Names that were looked up and were not there.
    pub absent: u64,
}

impl Profile {
    /// The version of brisk that recorded it.
    pub fn brisk(&self) -> &str {
        &self.brisk
    }

    /// The command that was started, with its arguments. A merged profile has that of the first.
    pub fn command(&self) -> &[OsString] {
        &self.command
    }

    /// Launches that were recorded.
    pub fn runs(&self) -> u32 {
        self.runs
    }

    /// When the recording was cut; none if it was not.
    pub fn ready(&self) -> Option<&Ready> {
        self.ready.as_ref()
    }

    /// What files were read from.
    pub fn roots(&self) -> &[Root] {
        &self.roots
    }

    /// The files that were read.
    pub fn files(&self) -> &[ProfileFile] {
        &self.files
    }

    /// The directories that names were looked up in.
    pub fn directories(&self) -> &[ProfileDirectory] {
        &self.directories
    }

    /// What was asked for, in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The path of a file for people: within its tree, or with the path of the tree before it if
    /// there are several trees.
    pub fn shown_path(&self, file: &ProfileFile) -> PathBuf {
        let root = usize::try_from(file.root).ok();
        match root.and_then(|root| self.roots.get(root)) {
            Some(root) if self.roots.len() > 1 => root.path.join(&file.path),
            _ => file.path.clone(),
        }
    }

    /// The ranges of pages, in order.
    pub fn ranges(&self) -> impl Iterator<Item = (&Step, PageRange)> {
        self.steps.iter().filter_map(|step| match &step.asked {
            Asked::Pages(range) => Some((step, *range)),
            Asked::LookUp(_) => None,
        })
    }

    /// How much was asked for, of each file: pages and bytes.
    pub fn demand_by_file(&self) -> Vec<(u64, u64)> {
        let mut demand = vec![(0, 0); self.files.len()];
        for (_, range) in self.ranges() {
            let file = range.file as usize;
            let bytes = range.bytes_of(self.files[file].len);
            // Invariant 5: no sum passes the length of the file.
            demand[file].0 += range.count;
            demand[file].1 += bytes;
        }
        demand
    }

    /// How much was asked for, of each root.
    pub fn demand_by_root(&self) -> Vec<Demand> {
        let mut demand = vec![Demand::default(); self.roots.len()];
        for (file, (pages, bytes)) in self.files.iter().zip(self.demand_by_file()) {
            let demand = &mut demand[file.root as usize];
            demand.files += u64::from(pages > 0);
            demand.pages = demand.pages.saturating_add(pages);
            demand.bytes = demand.bytes.saturating_add(bytes);
        }
        for step in &self.steps {
            match &step.asked {
                Asked::Pages(range) => {
                    demand[self.files[range.file as usize].root as usize].ranges += 1;
                }
                Asked::LookUp(look_up) => {
                    let directory = &self.directories[look_up.directory as usize];
                    let demand = &mut demand[directory.root as usize];
                    match look_up.found {
                        true => demand.found += 1,
                        false => demand.absent += 1,
                    }
                }
            }
        }
        demand
    }

    /// The pages of each file.
    pub(crate) fn page_sets(&self) -> Vec<PageSet> {
        let mut sets = vec![PageSet::default(); self.files.len()];
        for (_, range) in self.ranges() {
            sets[range.file as usize].insert(range.first, range.end(), |_, _| {});
        }
        sets
    }

    /// The same profile, said to be of this command.
    pub fn of_command(mut self, command: Vec<OsString>) -> Self {
        self.command = command;
        self
    }

    /// The same profile, with the root of this number at `path`.
    ///
    /// # Errors
    ///
    /// `Corrupt` if another root has this path, or if no root can have it.
    pub fn moved(mut self, root: u32, path: impl Into<PathBuf>) -> Result<Self> {
        if let Some(root) = self.roots.get_mut(root as usize) {
            root.path = path.into();
        }
        self.check_paths()?;
        Ok(self)
    }

    /// Checks all invariants.
    pub(crate) fn check_invariants(&self) -> Result<()> {
        self.check_paths().and_then(|()| self.check_steps())
    }

    fn check_paths(&self) -> Result<()> {
        let item = |list, index| Location::Item { list, index };
        if self.runs == 0 {
            return Err(fault(
                Location::Item {
                    list: "runs",
                    index: 0,
                },
                "number of runs",
                0,
                Allowed::Range(1, u32::MAX.into()),
            ));
        }
        let mut known = HashSet::new();
        for (i, root) in self.roots.iter().enumerate() {
            let bytes = root.path.as_os_str().as_bytes();
            let why = match root.path.is_absolute() {
                false => Some("is not an absolute path"),
                true if bytes.contains(&0) => Some("has a zero byte"),
                true if bytes.len() >= PATH_MAX => Some("is longer than 4095 bytes"),
                true if !known.insert(bytes) => Some("is there a second time, allowed is once"),
                true => None,
            };
            bad_name(item("roots", i), bytes, why)?;
        }
        let roots = self.roots.len();
        let mut known = HashSet::new();
        for (i, file) in self.files.iter().enumerate() {
            let at = item("files", i);
            check_number(at, "root", file.root, roots)?;
            let bytes = file.path.as_os_str().as_bytes();
            let again = || {
                (!known.insert((file.root, bytes)))
                    .then_some("is there a second time, allowed is once")
            };
            bad_name(at, bytes, file_path_fault(bytes).or_else(again))?;
        }
        let mut known = HashSet::new();
        for (i, directory) in self.directories.iter().enumerate() {
            let at = item("directories", i);
            check_number(at, "root", directory.root, roots)?;
            let bytes = directory.path.as_os_str().as_bytes();
            let again = || {
                (!known.insert((directory.root, bytes)))
                    .then_some("is there a second time, allowed is once")
            };
            bad_name(at, bytes, path_fault(bytes).or_else(again))?;
        }
        Ok(())
    }

    fn check_steps(&self) -> Result<()> {
        let mut names = HashSet::new();
        for (index, step) in self.steps.iter().enumerate() {
            let at = Location::Item {
                list: "steps",
                index,
            };
            if !(1..=self.runs).contains(&step.runs) {
                return Err(fault(
                    at,
                    "number of runs",
                    step.runs.into(),
                    Allowed::Range(1, self.runs.into()),
                ));
            }
            match &step.asked {
                Asked::Pages(range) => {
                    check_number(at, "file", range.file, self.files.len())?;
                    let file = range.file as usize;
                    let in_file = self.files[file].len.div_ceil(PAGE);
                    let most = in_file.saturating_sub(range.first);
                    if range.count == 0 || range.count > most {
                        let allowed = match most {
                            0 => Allowed::Text("none, as the file has no page there"),
                            most => Allowed::Range(1, most),
                        };
                        return Err(fault(at, "number of pages", range.count, allowed));
                    }
                }
                Asked::LookUp(look_up) => {
                    check_number(at, "directory", look_up.directory, self.directories.len())?;
                    let bytes = look_up.name.as_bytes();
                    let again = || {
                        let key = (look_up.directory, &*look_up.name, look_up.found);
                        (!names.insert(key)).then_some(
                            "is looked up a second time with this answer, allowed is once",
                        )
                    };
                    bad_name(at, bytes, name_fault(bytes).or_else(again))?;
                }
            }
        }
        self.check_pages()
    }

    /// Checks that no page is in two steps. A replay waits for this, and to sort takes less time than to build sets.
    fn check_pages(&self) -> Result<()> {
        let steps = self.steps.iter().enumerate();
        let mut ranges: Vec<_> = steps
            .filter_map(|(index, step)| match &step.asked {
                Asked::Pages(range) => Some((range.file, range.first, range.end(), index)),
                Asked::LookUp(_) => None,
            })
            .collect();
        ranges.sort_unstable();
        for pair in ranges.windows(2) {
            let ((file, _, end, one), (next_file, first, next_end, other)) = (pair[0], pair[1]);
            if file == next_file && first < end {
                let at = Location::Item {
                    list: "steps",
                    index: one.max(other),
                };
                let again = end.min(next_end) - first;
                let allowed = Allowed::Text("none, as each page is in one step");
                return Err(fault(
                    at,
                    "number of pages of earlier steps",
                    again,
                    allowed,
                ));
            }
        }
        Ok(())
    }
}

fn fault(at: Location, field: &'static str, found: u64, allowed: Allowed) -> Error {
    Error::field(at, field, found, allowed).about("profile")
}

/// Checks that `found` is the number of something in a list of `count`.
fn check_number(at: Location, field: &'static str, found: u32, count: usize) -> Result<()> {
    if (found as usize) < count {
        return Ok(());
    }
    let allowed = match count.checked_sub(1) {
        Some(last) => Allowed::AtMost(last as u64),
        None => Allowed::Text("none, as the list of them is empty"),
    };
    Err(fault(at, field, found.into(), allowed))
}

fn bad_name(at: Location, name: &[u8], why: Option<&'static str>) -> Result<()> {
    match why {
        None => Ok(()),
        Some(why) => {
            let name = name.to_vec();
            Err(Error::corrupt(at, Corrupt::Name { name, why }).about("profile"))
        }
    }
}
