//! Paths from the root of a tree that share the names of their directories.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

/// A path from the root of a tree; that of the root has no name.
///
/// What is in a directory shares its path. So the paths of a deep tree take memory in proportion to its names, and not to
/// the square of its depth.
#[derive(Debug, Clone, Default)]
pub(in crate::tree) struct TreePath(Option<Arc<Last>>);

#[derive(Debug)]
struct Last {
    above: TreePath,
    name: OsString,
}

impl TreePath {
    /// The path of `name` in the directory that has this path.
    pub(in crate::tree) fn join(&self, name: OsString) -> Self {
        let above = self.clone();
        Self(Some(Arc::new(Last { above, name })))
    }

    pub(in crate::tree) fn to_path(&self) -> PathBuf {
        let mut names = Vec::new();
        let mut at = self;
        while let Some(last) = &at.0 {
            names.push(&last.name);
            at = &last.above;
        }
        names.into_iter().rev().collect()
    }
}

/// A long path is not dropped name by name on the stack.
impl Drop for TreePath {
    fn drop(&mut self) {
        let mut last = self.0.take();
        while let Some(mut dropped) = last.and_then(Arc::into_inner) {
            last = dropped.above.0.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_its_names_in_order() {
        let root = TreePath::default();
        let usr = root.join("usr".into());
        let paths = [
            &root,
            &usr,
            &usr.join("bin".into()),
            &usr.join("lib".into()),
        ];
        let paths = paths.map(TreePath::to_path);
        assert_eq!(paths, ["", "usr", "usr/bin", "usr/lib"].map(PathBuf::from));
    }

    #[test]
    fn a_long_path_needs_no_stack() {
        let root = TreePath::default();
        let deep = (0..200_000).fold(root, |path, _| path.join("d".into()));
        assert_eq!(deep.to_path().as_os_str().len(), 399_999);
    }
}
