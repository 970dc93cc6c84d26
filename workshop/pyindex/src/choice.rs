use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::io;
use std::sync::Arc;

use crate::file_name::Tail;
use crate::known_texts::KnownTexts;
use crate::sort_key::{KeyFlags, SortKey};
use crate::specifiers::{Specifiers, meets};
use crate::table::{FileFlags, FileRow, IndexTable};
use crate::tags::Tags;
use crate::version_parts::VersionParts;

/// What files are for: a version of Python and the wheels that it takes.
#[derive(Debug, Clone)]
pub struct Target {
    python: String,
    key: SortKey,
    flags: KeyFlags,
    tags: Tags,
}

impl Target {
    /// None if the version is none of PEP 440.
    pub fn new(python: &str, tags: Tags) -> Option<Self> {
        let (key, flags) = SortKey::of(&VersionParts::parse(python)?);
        Some(Self {
            python: python.to_owned(),
            key,
            flags,
            tags,
        })
    }

    /// The version of Python.
    pub fn python(&self) -> &str {
        &self.python
    }
}

/// What is asked of a project.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// These versions.
    pub specifiers: &'a Specifiers,
    /// Pre-releases even if nothing names one and there are others.
    pub prereleases: bool,
    /// Whether wheels will do.
    pub wheels: bool,
    /// Whether source distributions will do.
    pub sdists: bool,
}

impl<'a> Wanted<'a> {
    /// Any file of these versions.
    pub fn of(specifiers: &'a Specifiers) -> Self {
        Self {
            specifiers,
            prereleases: false,
            wheels: true,
            sdists: true,
        }
    }
}

/// The file that was chosen, by its place in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// The place of its version: see [`IndexTable::version`].
    pub version: usize,
    /// Its place: see [`IndexTable::file`].
    pub file: usize,
}

/// Chooses files for a target, in one table after another.
///
/// What it finds out about distinct ends of names and distinct texts of requires-python it remembers for the table, so a
/// file costs a few loads, and for other tables, because projects share them. It allocates for the largest table and for the
/// texts that it has seen, and for no file.
///
/// The newest version wins that is allowed and has a file for the target, then the best tag, then the highest build
/// number, then the last one of the page. Wheels come before source distributions. These are the rules of pip 26:
///
/// * Pre-releases count if [`Wanted::prereleases`] says so, if a specifier names one, or if no other version is allowed and
///   has a file for the target.
/// * Yanked files count only if a specifier pins their version with `==` or `===`, and if all files that would do are yanked.
/// * What requires-python has that are no specifiers takes every Python.
#[derive(Debug, Clone)]
pub struct Chooser {
    /// The same for all clones.
    target: Arc<Target>,
    /// By distinct end of a name: `UNKNOWN`, `NEVER`, or a rank, of which the lowest wins.
    ranks: Vec<u32>,
    /// By distinct text of requires-python: `UNKNOWN`, `NEVER`, or `TAKEN`.
    pythons: Vec<u32>,
    /// Ranks of the ends of names in all tables.
    known_tails: KnownTexts,
    /// `NEVER` or `TAKEN` for the texts of requires-python in all tables.
    known_pythons: KnownTexts,
}

const UNKNOWN: u32 = 0;
const NEVER: u32 = 1;
const TAKEN: u32 = 2;
/// Ranks of wheels are below it, and those of source distributions are not.
const FIRST_SDIST: u32 = 1 << 31;

/// What a file is to a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Fit(u32),
    /// Its tags are of other interpreters or platforms.
    Tags,
    /// It requires another Python.
    Python,
    /// It is of a kind that is not wanted.
    Kind,
}

impl Chooser {
    /// Chooses for this target.
    pub fn new(target: Target) -> Self {
        Self {
            target: Arc::new(target),
            ranks: Vec::new(),
            pythons: Vec::new(),
            known_tails: KnownTexts::default(),
            known_pythons: KnownTexts::default(),
        }
    }

    /// The best file. None if no file will do: [`Chooser::explain`] says why.
    ///
    /// # Errors
    ///
    /// See [`IndexTable`].
    pub fn choose(
        &mut self,
        table: &IndexTable<'_>,
        wanted: &Wanted<'_>,
    ) -> io::Result<Option<Choice>> {
        self.begin(table);
        let prereleases = wanted.prereleases || wanted.specifiers.names_prerelease();
        let (choice, others) = self.newest(table, wanted, prereleases)?;
        if choice.is_none() && !others && !prereleases {
            return Ok(self.newest(table, wanted, true)?.0);
        }
        Ok(choice)
    }

    /// What it chooses for.
    pub fn target(&self) -> &Target {
        &self.target
    }

    fn begin(&mut self, table: &IndexTable<'_>) {
        self.ranks.clear();
        self.ranks.resize(table.tails(), UNKNOWN);
        self.pythons.clear();
        self.pythons.resize(table.requirements(), UNKNOWN);
    }

    /// The best file of the newest version that has one, and whether a version would do but for being yanked.
    fn newest(
        &mut self,
        table: &IndexTable<'_>,
        wanted: &Wanted<'_>,
        prereleases: bool,
    ) -> io::Result<(Option<Choice>, bool)> {
        let (least, greatest) = wanted.specifiers.bounds();
        // The best file of the newest version that has only yanked ones.
        let mut fallback = None;
        for version in (0..last(table, greatest)?).rev() {
            let row = table.version_row(version)?;
            let (key, flags) = (SortKey(row.key.get()), KeyFlags(row.flags));
            if key.0 < least {
                break;
            }
            if flags.has(KeyFlags::PRE) && !prereleases
                || !allows(table, wanted.specifiers, version, key, flags)?
            {
                continue;
            }
            let mut best: Option<(Choice, u32)> = None;
            let mut yanked: Option<(Choice, u32)> = None;
            let files = table.files_of(version)?;
            for (file, row) in files.clone().zip(table.file_rows(files)?) {
                let Verdict::Fit(rank) = self.verdict(table, wanted, row)? else {
                    continue;
                };
                let of_kind = if row.flags & FileFlags::YANKED == 0 {
                    &mut best
                } else {
                    &mut yanked
                };
                let better = match of_kind {
                    None => true,
                    Some((other, than)) => match rank.cmp(than) {
                        Ordering::Equal => no_lower_build(table, file, other.file)?,
                        order => order == Ordering::Less,
                    },
                };
                if better {
                    *of_kind = Some((Choice { version, file }, rank));
                }
            }
            if let Some((choice, _)) = best {
                return Ok((Some(choice), true));
            }
            fallback = fallback.or(yanked);
        }
        let others = fallback.is_some();
        let pinned = fallback.filter(|_| wanted.specifiers.pins());
        Ok((pinned.map(|(choice, _)| choice), others))
    }

    #[inline]
    fn verdict(
        &mut self,
        table: &IndexTable<'_>,
        wanted: &Wanted<'_>,
        row: &FileRow,
    ) -> io::Result<Verdict> {
        let tail = usize::try_from(row.tail.get()).unwrap_or(usize::MAX);
        let rank = match self.ranks.get(tail) {
            Some(&rank) if rank != UNKNOWN => rank,
            _ => self.rank(table, tail)?,
        };
        if rank == NEVER {
            return Ok(Verdict::Tags);
        }
        if !(if rank < FIRST_SDIST {
            wanted.wheels
        } else {
            wanted.sdists
        }) {
            return Ok(Verdict::Kind);
        }
        let requires = row.requires.get();
        let Some(at) = requires.checked_sub(1) else {
            return Ok(Verdict::Fit(rank));
        };
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let taken = match self.pythons.get(at) {
            Some(&taken) if taken != UNKNOWN => taken,
            _ => self.takes_python(table, at, requires)?,
        };
        Ok(if taken == TAKEN {
            Verdict::Fit(rank)
        } else {
            Verdict::Python
        })
    }

    #[cold]
    fn rank(&mut self, table: &IndexTable<'_>, tail: usize) -> io::Result<u32> {
        let tags = &self.target.tags;
        let find = || Ok::<_, io::Error>(rank_of(tags, table.tail(tail)?));
        let rank = self.known_tails.rank(table.tail_bytes(tail)?, find)?;
        if let Some(known) = self.ranks.get_mut(tail) {
            *known = rank;
        }
        Ok(rank)
    }

    #[cold]
    fn takes_python(
        &mut self,
        table: &IndexTable<'_>,
        at: usize,
        requires: u32,
    ) -> io::Result<u32> {
        let Target {
            python, key, flags, ..
        } = &*self.target;
        let find = || {
            let text = table.requires(requires)?.unwrap_or_default();
            Ok::<_, io::Error>(match meets(text, *key, *flags, python) {
                Ok(false) => NEVER,
                Ok(true) | Err(_) => TAKEN,
            })
        };
        let taken = self.known_pythons.rank(table.requires_bytes(at)?, find)?;
        if let Some(known) = self.pythons.get_mut(at) {
            *known = taken;
        }
        Ok(taken)
    }

    /// Why each version newer than the chosen one was not chosen, the newest first. Without a choice, why none was.
    ///
    /// # Errors
    ///
    /// See [`IndexTable`].
    pub fn explain<'a>(
        &mut self,
        table: &IndexTable<'a>,
        wanted: &Wanted<'_>,
        choice: Option<Choice>,
    ) -> io::Result<Vec<Refused<'a>>> {
        self.begin(table);
        let after = choice.map_or(0, |choice| choice.version.saturating_add(1));
        let mut all = Vec::new();
        for version in (after..table.versions()).rev() {
            if let Some(why) = self.why_not(table, wanted, version)? {
                let version = table.version(version)?;
                all.push(Refused { version, why });
            }
        }
        Ok(all)
    }

    /// Calls `found` with each version that is allowed and has a file for the target, the newest first.
    ///
    /// # Errors
    ///
    /// See [`IndexTable`].
    pub fn each_version<'a>(
        &mut self,
        table: &IndexTable<'a>,
        wanted: &Wanted<'_>,
        mut found: impl FnMut(&'a str),
    ) -> io::Result<()> {
        self.begin(table);
        for version in (0..table.versions()).rev() {
            if self.why_not(table, wanted, version)?.is_none() {
                found(table.version(version)?);
            }
        }
        Ok(())
    }

    /// None if the version would do.
    fn why_not<'a>(
        &mut self,
        table: &IndexTable<'a>,
        wanted: &Wanted<'_>,
        version: usize,
    ) -> io::Result<Option<Why<'a>>> {
        let row = table.version_row(version)?;
        let (key, flags) = (SortKey(row.key.get()), KeyFlags(row.flags));
        if !allows(table, wanted.specifiers, version, key, flags)? {
            return Ok(Some(Why::NotAllowed));
        }
        let prereleases = wanted.prereleases || wanted.specifiers.names_prerelease();
        let mut counts = Counts::default();
        let mut python = None;
        let files = table.files_of(version)?;
        for (file, row) in files.clone().zip(table.file_rows(files)?) {
            match self.verdict(table, wanted, row)? {
                Verdict::Fit(_) if row.flags & FileFlags::YANKED != 0 => {
                    counts.yanked += 1;
                    if counts.reason.is_none() {
                        counts.reason = table.file(version, file)?.yank_reason.map(Cow::Owned);
                    }
                }
                Verdict::Fit(_) => counts.fit += 1,
                Verdict::Tags => counts.tags += 1,
                Verdict::Kind => counts.kind += 1,
                Verdict::Python => {
                    counts.python += 1;
                    python = table.requires(row.requires.get())?;
                }
            }
        }
        // The reason that is closest to a choice is said: it is what the user can change.
        if counts.fit > 0 && (prereleases || !flags.has(KeyFlags::PRE)) {
            return Ok(None);
        }
        Ok(Some(if counts.fit > 0 {
            Why::Prerelease
        } else if counts.yanked > 0 {
            Why::Yanked(counts.reason)
        } else if let Some(requires) = python {
            Why::Python {
                requires,
                files: counts.python,
            }
        } else if counts.kind > 0 {
            Why::Kind { files: counts.kind }
        } else if counts.tags > 0 {
            Why::Tags { files: counts.tags }
        } else {
            Why::NoFile
        }))
    }
}

/// The rank of the end of a name.
fn rank_of(tags: &Tags, tail: &str) -> u32 {
    match Tail::parse(tail) {
        Some(Tail::Wheel {
            pythons,
            abis,
            platforms,
            ..
        }) => tags
            .place(pythons, abis, platforms)
            .and_then(|place| place.checked_add(TAKEN))
            .filter(|rank| *rank < FIRST_SDIST)
            .unwrap_or(NEVER),
        Some(Tail::Sdist(ending)) => u32::try_from(ending).map_or(NEVER, |at| FIRST_SDIST | at),
        None => NEVER,
    }
}

#[derive(Default)]
struct Counts<'a> {
    fit: usize,
    yanked: usize,
    reason: Option<Cow<'a, str>>,
    tags: usize,
    python: usize,
    kind: usize,
}

/// A version that was not chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused<'a> {
    /// The version.
    pub version: &'a str,
    /// The reason.
    pub why: Why<'a>,
}

/// Why a version was not chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why<'a> {
    /// The specifiers do not allow it.
    NotAllowed,
    /// It is a pre-release.
    Prerelease,
    /// All its files that would do are yanked. The index may say why.
    Yanked(Option<Cow<'a, str>>),
    /// Files that would do require another Python.
    Python {
        /// This one.
        requires: &'a str,
        /// So many files.
        files: usize,
    },
    /// It has only wheels, or only source distributions.
    Kind {
        /// So many files.
        files: usize,
    },
    /// It has only wheels of other interpreters and platforms.
    Tags {
        /// So many.
        files: usize,
    },
    /// It has no file.
    NoFile,
}

impl fmt::Display for Why<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAllowed => f.write_str("the specifiers do not allow it"),
            Self::Prerelease => f.write_str("it is a pre-release; --pre allows them"),
            Self::Yanked(None) => {
                f.write_str("it is yanked; only == takes it, if all else is yanked")
            }
            Self::Yanked(Some(reason)) => write!(
                f,
                "it is yanked ({reason}); only == takes it, if all else is yanked"
            ),
            Self::Python { requires, files } => {
                write!(
                    f,
                    "its files that would do need another Python ({requires}; {files} files)"
                )
            }
            Self::Kind { files } => {
                write!(
                    f,
                    "its {files} files are of the kind that --only-binary or --no-binary excludes"
                )
            }
            Self::Tags { files } => {
                write!(
                    f,
                    "it has no source distribution, and its {files} wheels are for other interpreters or platforms"
                )
            }
            Self::NoFile => f.write_str("it has no file"),
        }
    }
}

/// How many versions have keys up to this one.
fn last(table: &IndexTable<'_>, greatest: u128) -> io::Result<usize> {
    let (mut from, mut to) = (0, table.versions());
    let mut step = 1;
    while from < to {
        // Most specifiers allow one of the newest: first ever further from there, then in the middle of what is left.
        let at = if from == 0 {
            to.saturating_sub(step)
        } else {
            from + (to - from) / 2
        };
        if table.version_row(at)?.key.get() <= greatest {
            from = at + 1;
        } else {
            to = at;
            step *= 2;
        }
    }
    Ok(from)
}

fn allows(
    table: &IndexTable<'_>,
    specifiers: &Specifiers,
    version: usize,
    key: SortKey,
    flags: KeyFlags,
) -> io::Result<bool> {
    let mut failed = None;
    let allowed = specifiers.allow(key, flags, || {
        table.version(version).map_err(|e| failed = Some(e)).ok()
    });
    failed.map_or(Ok(allowed), Err)
}

/// Whether a wheel has no lower build number than an earlier one with the same rank.
#[cold]
fn no_lower_build(table: &IndexTable<'_>, file: usize, than: usize) -> io::Result<bool> {
    let build = |file| -> io::Result<_> {
        let tail = usize::try_from(table.file_row(file)?.tail.get()).unwrap_or(usize::MAX);
        Ok(match Tail::parse(table.tail(tail)?) {
            Some(Tail::Wheel { build, .. }) => build,
            _ => None,
        })
    };
    Ok(build(file)? >= build(than)?)
}
