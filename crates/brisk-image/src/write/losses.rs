//! What of a tree SquashFS cannot store, counted so that a person is told once.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::rules::TreeRules;
use super::tree::shown;
use crate::error::Error;
use crate::read::xattr_reader::Xattr;

/// What was changed or left out because SquashFS cannot store it.
#[derive(Debug, Default)]
pub(super) struct Losses {
    clamped_times: u64,
    /// For each attribute, the number of files and the first of them.
    xattrs: Vec<(OsString, u64, PathBuf, Error)>,
}

/// The nearest time to `mtime`, in seconds since 1970, that SquashFS stores.
pub(super) fn nearest_time(mtime: i64) -> u32 {
    u32::try_from(mtime).unwrap_or(if mtime < 0 { 0 } else { u32::MAX })
}

impl Losses {
    /// [`nearest_time`], counted if it is another.
    pub(super) fn time(&mut self, mtime: i64) -> u32 {
        let nearest = nearest_time(mtime);
        self.clamped_times += u64::from(i64::from(nearest) != mtime);
        nearest
    }

    /// True if `rules` and SquashFS keep `xattr` of the file at `path`.
    pub(super) fn keeps(&mut self, rules: &TreeRules, path: &Path, xattr: &Xattr) -> bool {
        match rules.keeps_xattr(xattr.name()) {
            Ok(keeps) => keeps,
            Err(e) => {
                match self
                    .xattrs
                    .iter_mut()
                    .find(|(name, ..)| *name == xattr.name)
                {
                    Some((_, count, ..)) => *count += 1,
                    None => {
                        let first = (xattr.name.clone(), 1, path.to_owned(), e);
                        self.xattrs.push(first);
                    }
                }
                false
            }
        }
    }

    /// A sentence for each kind of loss.
    pub(super) fn warnings(mut self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.clamped_times > 0 {
            warnings.push(format!(
                "{} modification times are before 1970 or after 2106 and were moved to the nearest that SquashFS stores",
                self.clamped_times
            ));
        }
        self.xattrs.sort_by(|a, b| a.0.cmp(&b.0));
        for (_, count, path, e) in &self.xattrs {
            warnings.push(format!(
                "{e} ({count} files, the first is {:?})",
                shown(path)
            ));
        }
        warnings
    }
}
