//! The script that starts an image under a name of its own.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};

use crate::shell_word::shell_word;

/// The start of every script that brisk writes.
const MARK: &[u8] =
    b"#!/bin/sh\n# Made by brisk wrap. brisk wrap --remove removes it, and what belongs to it.\n";

/// What a script starts.
pub struct Wrapper<'a> {
    /// The absolute path of the image.
    pub image: &'a Path,
    /// The absolute path of brisk.
    pub brisk: &'a Path,
    /// Options of `brisk run`.
    pub options: &'a [OsString],
}

impl Wrapper<'_> {
    /// The script. It first looks for an image of this name beside itself, so that both can be moved together.
    pub fn script(&self) -> Vec<u8> {
        let name = shell_word(self.image.file_name().unwrap_or_default());
        let (image, brisk) = (
            shell_word(self.image.as_os_str()),
            shell_word(self.brisk.as_os_str()),
        );
        let options: Vec<_> = self
            .options
            .iter()
            .map(|word| [b" ", shell_word(word).as_bytes()].concat())
            .collect();
        [
            MARK,
            b"image=",
            image.as_bytes(),
            b"\nbrisk=",
            brisk.as_bytes(),
            b"\n# The dot keeps a line end at the end of a name.\n\
              self=$(readlink -f -- \"$0\" && echo .) && self=${self%??}\n\
              if [ -n \"$self\" ] && [ -e \"${self%/*}/\"",
            name.as_bytes(),
            b" ]; then image=${self%/*}/",
            name.as_bytes(),
            b"; fi\n\
              [ -x \"$brisk\" ] || brisk=brisk\n\
              if ! command -v \"$brisk\" > /dev/null; then\n    \
              printf '%s: brisk is not installed, which starts %s\\n' \"$0\" \"$image\" >&2\n    \
              exit 127\n\
              fi\n\
              exec \"$brisk\" run \"$image\" --called-as=\"$0\"",
            &options.concat(),
            b" --args \"$@\"\n",
        ]
        .concat()
    }

    /// Writes the script to `path`, whole or not at all.
    pub fn write(&self, path: &Path) -> Result<()> {
        let directory = match path.parent() {
            Some(directory) if directory != Path::new("") => directory,
            _ => Path::new("."),
        };
        let write = || {
            let mut file = tempfile::NamedTempFile::new_in(directory)?;
            file.write_all(&self.script())?;
            file.as_file()
                .set_permissions(fs::Permissions::from_mode(0o755))?;
            file.persist(path)?;
            std::io::Result::Ok(())
        };
        write().with_context(|| format!("cannot write {}", crate::names::shown(path)))
    }
}

/// Whether the file at `path` is such a script.
pub fn is_wrapper(path: &Path) -> std::io::Result<bool> {
    use std::io::Read;
    if !path.symlink_metadata()?.is_file() {
        return Ok(false);
    }
    let mut start = Vec::new();
    fs::File::open(path)?
        .take(MARK.len() as u64)
        .read_to_end(&mut start)?;
    Ok(start == MARK)
}
