//! What is wrong with an entry that an image records.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use brisk_bundle::entry::is_program;
use brisk_image::{EntryPoint, Image, Inode, InodeKind};
use brisk_terminal::names::shown;

use crate::path_hint::{LISTS, similar_in, what_to_name};
use crate::program_links::next_in_path;

/// What to say of an entry that was recorded, if starts by it fail. `place` is the directory that the image records.
pub fn faults_of(
    image: &Image,
    entry: &EntryPoint,
    place: Option<&Path>,
) -> anyhow::Result<Vec<String>> {
    let seen = Seen {
        image,
        place: match entry.is_in_root() {
            true => Some(Path::new("/")),
            false => place,
        },
    };
    let program = entry.command().first().map(Path::new);
    let program = program
        .map(|program| seen.fault_of_program(program))
        .transpose()?;
    let directory = entry
        .start_directory()
        .map(|path| seen.fault_of_directory(path));
    Ok(program
        .into_iter()
        .chain(directory.transpose()?)
        .flatten()
        .collect())
}

/// What a program of an image sees.
struct Seen<'a> {
    image: &'a Image,
    /// Where it sees the image. None if each start says that.
    place: Option<&'a Path>,
}

impl Seen<'_> {
    /// The path from the image's root. None if it leads to the system.
    fn inside(&self, path: &Path) -> anyhow::Result<Option<PathBuf>> {
        let mut path = path.to_owned();
        // As many links as the kernel follows.
        for _ in 0..40 {
            if path.is_absolute() {
                let Some(Ok(inside)) = self.place.map(|place| path.strip_prefix(place)) else {
                    return Ok(None);
                };
                path = inside.to_owned();
            }
            match self.image.lookup(&path)?.as_ref().map(Inode::kind) {
                Some(InodeKind::Symlink(to)) => {
                    path = path.parent().unwrap_or(Path::new("")).join(to);
                }
                _ => break,
            }
        }
        Ok(Some(path))
    }

    fn fault_of_program(&self, program: &Path) -> anyhow::Result<Option<String>> {
        let name = shown(program);
        if !program.as_os_str().as_bytes().contains(&b'/') {
            // The root directory has a PATH of its own.
            let is_here = || next_in_path(program.as_os_str()).is_some();
            let advice = match self.place == Some(Path::new("/")) {
                true => None,
                false => similar_in(self.image, program)
                    .map(|found| format!("the image has {}: name that", shown(found))),
            };
            return Ok(match advice {
                Some(advice) => Some(format!(
                    "the entry starts {name}, which brisk run looks up in PATH, and not in the image; {advice}"
                )),
                None if self.place != Some(Path::new("/")) && !is_here() => Some(format!(
                    "the entry starts {name}, which brisk run looks up in PATH, and which is in no directory of PATH here; {LISTS}"
                )),
                None => None,
            });
        }
        let Some(inside) = self.inside(program)? else {
            return Ok(None);
        };
        if is_program(self.image, &inside)? {
            return Ok(None);
        }
        Ok(Some(match self.image.resolve(&inside)? {
            Some(_) => format!(
                "the entry starts {name}, which no one may execute; pack it with --chmod '/{}=a+x'",
                shown(inside)
            ),
            None => format!(
                "the entry starts {name}, which the image lacks; {}",
                what_to_name(self.image, &inside)
            ),
        }))
    }

    fn fault_of_directory(&self, directory: &Path) -> anyhow::Result<Option<String>> {
        let Some(inside) = self.inside(directory)? else {
            return Ok(None);
        };
        let found = self.image.resolve(&inside)?;
        Ok((!found.is_some_and(|inode| inode.is_dir())).then(|| {
            format!(
                "the entry starts in {}, which is no directory of the image; {LISTS}",
                shown(directory)
            )
        }))
    }
}
