//! What SquashFS cannot store of a tree, counted so that there is one warning for each kind.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

#[cfg(feature = "tar")]
use super::rules::TreeRules;
use crate::error::{Error, shown};

/// What was changed or left out because SquashFS cannot store it.
#[derive(Debug, Default)]
pub(in crate::tree) struct Losses {
    clamped_times: u64,
    /// For each attribute, the number of files and the first of them.
    xattrs: Vec<(OsString, u64, PathBuf, Error)>,
}

/// The nearest time to `mtime`, in seconds since 1970, that SquashFS stores.
pub(in crate::tree) fn nearest_time(mtime: i64) -> u32 {
    u32::try_from(mtime).unwrap_or(if mtime < 0 { 0 } else { u32::MAX })
}

impl Losses {
    /// [`nearest_time`], counted if it is another.
    pub(in crate::tree) fn time(&mut self, mtime: i64) -> u32 {
        let nearest = nearest_time(mtime);
        self.clamped_times += u64::from(i64::from(nearest) != mtime);
        nearest
    }

    /// True if `rules` and SquashFS keep the attribute `name` of the file at `path`.
    #[cfg(feature = "tar")]
    pub(in crate::tree) fn keeps(&mut self, rules: &TreeRules, path: &Path, name: &OsStr) -> bool {
        match rules.keeps_xattr(name) {
            Ok(keeps) => keeps,
            Err(e) => {
                self.xattr(path, name, e);
                false
            }
        }
    }

    /// Counts the attribute `name` of the file at `path`, which is not kept for the reason `e`.
    pub(in crate::tree) fn xattr(&mut self, path: &Path, name: &OsStr, e: Error) {
        match self.xattrs.iter_mut().find(|(known, ..)| known == name) {
            Some((_, count, ..)) => *count += 1,
            None => self.xattrs.push((name.to_owned(), 1, path.to_owned(), e)),
        }
    }

    /// A sentence for each kind of loss.
    pub(in crate::tree) fn warnings(mut self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.clamped_times > 0 {
            warnings.push(format!(
                "times before 1970 or after 2106 were moved to the nearest that SquashFS stores ({})",
                files(self.clamped_times)
            ));
        }
        self.xattrs.sort_by(|a, b| a.0.cmp(&b.0));
        for (_, count, path, e) in &self.xattrs {
            warnings.push(format!(
                "{e} ({}, the first is {:?})",
                files(*count),
                shown(path)
            ));
        }
        warnings
    }
}

fn files(number: u64) -> String {
    format!("{number} {}", if number == 1 { "file" } else { "files" })
}
