//! Patterns with the syntax of `.gitignore`.

use std::path::PathBuf;

use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::error::{Error, Result};

/// A matcher of paths from the root of a tree.
pub(crate) fn patterns<'a>(lines: impl IntoIterator<Item = &'a str>) -> Result<Gitignore> {
    let mut builder = GitignoreBuilder::new(PathBuf::new());
    for line in lines {
        builder
            .add_line(None, line)
            .map_err(|e| Error::input(format!("pattern {line:?} cannot be used: {e}")))?;
    }
    builder
        .build()
        .map_err(|e| Error::input(format!("patterns cannot be used: {e}")))
}
