//! Which files of a tree are packed, and with which attributes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ignore::gitignore::Gitignore;

use super::Attributes;
use super::mode_change::ModeChange;
use crate::error::{Error, Result};
use crate::format::xattr::split_name;
use crate::patterns::patterns;

/// Which files of a tree are packed, and which owners, permissions, times and extended attributes
/// they get.
///
/// Patterns have the syntax of `.gitignore`. Paths start at the root of the tree.
#[derive(Debug, Clone)]
pub struct TreeRules {
    exclude: Gitignore,
    owners: Vec<(Gitignore, Option<u32>, Option<u32>)>,
    modes: Vec<(Gitignore, ModeChange)>,
    xattr_include: Option<Gitignore>,
    xattr_exclude: Gitignore,
    xattrs: bool,
    time: Times,
    threads: usize,
}

/// The most threads that list directories by default. Listing a small tree takes less time than
/// starting more.
const LISTING_THREADS: usize = 16;

/// Which modification times files get.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Times {
    /// Their own.
    #[default]
    Keep,
    /// Their own, or this one if that is earlier, in seconds since 1970. Reproducible builds give
    /// `SOURCE_DATE_EPOCH` this meaning.
    AtMost(u32),
    /// This one, in seconds since 1970.
    All(u32),
}

impl Default for TreeRules {
    fn default() -> Self {
        Self {
            exclude: Gitignore::empty(),
            owners: Vec::new(),
            modes: Vec::new(),
            xattr_include: None,
            xattr_exclude: Gitignore::empty(),
            xattrs: true,
            time: Times::Keep,
            threads: std::thread::available_parallelism()
                .map_or(1, Into::into)
                .min(LISTING_THREADS),
        }
    }
}

impl TreeRules {
    /// Leaves out files that match one of `lines`. A line that starts with `!` takes files back in.
    pub fn exclude(mut self, lines: &[String]) -> Result<Self> {
        self.exclude = patterns(lines.iter().map(String::as_str))?;
        Ok(self)
    }

    /// Gives files that match `pattern` to this user and group. Later rules win.
    pub fn owner(mut self, pattern: &str, uid: Option<u32>, gid: Option<u32>) -> Result<Self> {
        self.owners.push((patterns([pattern])?, uid, gid));
        Ok(self)
    }

    /// Changes the permissions of files that match `pattern`, after earlier rules have.
    pub fn mode(mut self, pattern: &str, change: ModeChange) -> Result<Self> {
        self.modes.push((patterns([pattern])?, change));
        Ok(self)
    }

    /// Keeps only extended attributes whose names match a pattern of `include`, such as `user.*`,
    /// and none of `exclude`. An empty `include` matches all.
    pub fn xattr_names(mut self, include: &[String], exclude: &[String]) -> Result<Self> {
        self.xattr_include = match include {
            [] => None,
            _ => Some(patterns(include.iter().map(String::as_str))?),
        };
        self.xattr_exclude = patterns(exclude.iter().map(String::as_str))?;
        Ok(self)
    }

    /// Whether extended attributes are packed at all.
    #[must_use]
    pub fn xattrs(mut self, yes: bool) -> Self {
        self.xattrs = yes;
        self
    }

    /// What modification times become.
    #[must_use]
    pub fn times(mut self, times: Times) -> Self {
        self.time = times;
        self
    }

    /// Threads that list directories. The tree is the same with any number. The default is one for
    /// each processor, at most 16.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads.max(1);
        self
    }

    pub(crate) fn listing_threads(&self) -> usize {
        self.threads
    }

    /// True if the rules leave out `path`, or a directory above it.
    pub fn leaves_out(&self, path: &Path, is_directory: bool) -> bool {
        let above = path
            .ancestors()
            .skip(1)
            .filter(|above| !above.as_os_str().is_empty());
        self.excludes(path, is_directory)
            || above.into_iter().any(|above| self.excludes(above, true))
    }

    pub(crate) fn wants_xattrs(&self) -> bool {
        self.xattrs
    }

    /// True if `path` itself is left out; those above it were asked for before.
    pub(crate) fn excludes(&self, path: &Path, is_directory: bool) -> bool {
        self.exclude.matched(path, is_directory).is_ignore()
    }

    /// What `attributes` of what is at `path` become.
    pub(crate) fn apply(
        &self,
        path: &Path,
        is_directory: bool,
        mut attributes: Attributes,
    ) -> Attributes {
        // The root has no name: what matches it is what matches any name.
        let path = if path.as_os_str().is_empty() {
            Path::new("\n")
        } else {
            path
        };
        let matches = |set: &Gitignore| {
            set.matched_path_or_any_parents(path, is_directory)
                .is_ignore()
        };
        for (set, uid, gid) in &self.owners {
            if matches(set) {
                attributes.uid = uid.unwrap_or(attributes.uid);
                attributes.gid = gid.unwrap_or(attributes.gid);
            }
        }
        for (set, change) in &self.modes {
            if matches(set) {
                attributes.permissions = change.apply(attributes.permissions, is_directory);
            }
        }
        attributes.mtime = match self.time {
            Times::Keep => attributes.mtime,
            Times::AtMost(latest) => attributes.mtime.min(latest),
            Times::All(time) => time,
        };
        attributes
    }

    /// Whether the extended attribute `name` is packed: `Ok(false)` if a rule leaves it out.
    ///
    /// # Errors
    ///
    /// `Unsupported` if no rule leaves it out but SquashFS cannot store it.
    pub(crate) fn keeps_xattr(&self, name: &OsStr) -> Result<bool> {
        let path = Path::new(name);
        let included = self
            .xattr_include
            .as_ref()
            .is_none_or(|set| set.matched(path, false).is_ignore());
        if !self.xattrs || !included || self.xattr_exclude.matched(path, false).is_ignore() {
            return Ok(false);
        }
        match split_name(name.as_bytes()) {
            Some(_) => Ok(true),
            None => Err(Error::unsupported(crate::error::Unsupported::Other(
                format!(
                    "xattr {} cannot be stored: SquashFS has user.*, trusted.* and security.* only",
                    name.display()
                ),
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Attributes = Attributes {
        permissions: 0o640,
        uid: 7,
        gid: 8,
        mtime: 100,
    };

    #[test]
    fn later_owners_win_and_modes_add_up() {
        let rules = TreeRules::default()
            .owner("*", Some(0), Some(0))
            .and_then(|r| r.owner("/home/", Some(1000), None))
            .and_then(|r| r.mode("*", "go=rX".parse()?))
            .and_then(|r| r.mode("*.sh", "a+x".parse()?))
            .unwrap()
            .times(Times::AtMost(50));
        let got = rules.apply(Path::new("home/a.sh"), false, FILE);
        assert_eq!(
            got,
            Attributes {
                permissions: 0o755,
                uid: 1000,
                gid: 0,
                mtime: 50
            }
        );
        let got = rules.apply(Path::new(""), true, FILE);
        assert_eq!((got.permissions, got.uid), (0o655, 0));
        let got = rules.apply(Path::new("etc/b"), false, FILE);
        assert_eq!(
            got,
            Attributes {
                permissions: 0o644,
                uid: 0,
                gid: 0,
                mtime: 50
            }
        );
    }

    #[test]
    fn attributes_are_chosen_by_name() {
        let own = |list: &[&str]| list.iter().map(|&s| s.to_owned()).collect::<Vec<_>>();
        let rules = TreeRules::default()
            .xattr_names(&own(&["user.*"]), &own(&["user.tmp*"]))
            .unwrap();
        let keeps = |name: &str| rules.keeps_xattr(OsStr::new(name));
        assert!(keeps("user.a").unwrap());
        assert!(!keeps("user.tmp1").unwrap());
        assert!(!keeps("security.capability").unwrap());
        assert!(!keeps("system.posix_acl_access").unwrap());
        let e = TreeRules::default()
            .keeps_xattr(OsStr::new("system.posix_acl_access"))
            .unwrap_err();
        assert_eq!(
            e.to_string(),
            "xattr system.posix_acl_access cannot be stored: SquashFS has user.*, trusted.* and security.* only"
        );
    }
}
