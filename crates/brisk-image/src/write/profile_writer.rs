//! Writing profiles.

use std::path::Path;

use super::output::OutputFile;
use crate::error::Result;
use crate::profile::Profile;

impl Profile {
    /// Writes the text to a new file at `path`, which replaces a file of that name when it is
    /// complete.
    ///
    /// # Errors
    ///
    /// `Io` for what the system refuses.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        let mut out = OutputFile::create(path.as_ref())?;
        out.append(&self.to_text())?;
        out.finish()
    }
}
