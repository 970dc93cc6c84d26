//! The script that starts an image under a name of its own.

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use brisk_remote::RemoteUrl;
use brisk_terminal::shell_word::shell_word;

/// The start of every script that brisk writes.
const MARK: &[u8] =
    b"#!/bin/sh\n# Made by brisk wrap. brisk wrap --remove removes it, and what belongs to it.\n";

/// What a script starts.
pub struct Wrapper<'a> {
    /// The absolute path of the image, or its URL.
    pub image: &'a Path,
    /// The absolute path of brisk.
    pub brisk: &'a Path,
    /// Options of `brisk run`.
    pub options: &'a [OsString],
    /// The absolute path that the script is written to.
    pub launcher: &'a Path,
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
        // What lies on the network does not move with the launcher.
        let beside = match RemoteUrl::is_url(self.image.as_os_str()) {
            true => Vec::new(),
            false => [
                b"# The dot keeps a line end at the end of a name.\n\
                  self=$(readlink -f -- \"$0\" && echo .) && self=${self%??}\n\
                  if [ -n \"$self\" ] && [ -e \"${self%/*}/\"",
                name.as_bytes(),
                b" ]; then image=${self%/*}/",
                name.as_bytes(),
                b"; fi\n",
            ]
            .concat(),
        };
        [
            MARK,
            &made_as(self.launcher),
            b"image=",
            image.as_bytes(),
            b"\nbrisk=",
            brisk.as_bytes(),
            b"\n",
            &beside,
            b"[ -x \"$brisk\" ] || brisk=brisk\n\
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
}

/// The line of a script that says where it was written to: from there it may be moved.
fn made_as(launcher: &Path) -> Vec<u8> {
    let launcher = shell_word(launcher.as_os_str());
    [b"made_as=", launcher.as_bytes(), b"\n"].concat()
}

/// Whether the script at `path` was once written to `launcher`.
pub fn was_made_as(path: &Path, launcher: &Path) -> std::io::Result<bool> {
    let mut start = Vec::new();
    let expected = [MARK, &made_as(launcher)].concat();
    fs::File::open(path)?
        .take(expected.len() as u64)
        .read_to_end(&mut start)?;
    Ok(start == expected)
}

/// Whether the file at `path` is such a script.
pub fn is_wrapper(path: &Path) -> std::io::Result<bool> {
    if !path.symlink_metadata()?.is_file() {
        return Ok(false);
    }
    let mut start = Vec::new();
    fs::File::open(path)?
        .take(MARK.len() as u64)
        .read_to_end(&mut start)?;
    Ok(start == MARK)
}
