//! Writing profiles.

use std::path::Path;

use super::output::{Output, OutputFile};
use crate::error::Result;
use crate::profile::Profile;
use crate::profile::text::check_len;
use crate::read::limits::Limits;

impl Profile {
    /// Writes the text to a new file at `path`, which replaces a file of that name when it is
    /// complete.
    ///
    /// # Errors
    ///
    /// `Io` for what the system refuses, and `Limit` for more than [`Limits::of_profiles`] lets anybody
    /// read.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let text = self.to_text();
        check_len(&text, &Limits::of_profiles()).map_err(|e| e.with_path(path))?;
        let mut out = OutputFile::create(path)?;
        out.append(&text)?;
        out.finish()
    }
}
