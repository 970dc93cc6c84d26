//! What to name instead of a path that is not there.

use std::fmt;
use std::path::{Component, Path, PathBuf};

use brisk_bundle::entry::PROGRAMS;
use brisk_image::{Image, InodeKind};
use brisk_launch::ErrorKind;
use brisk_terminal::names::shown;

/// What says which paths there are.
pub const LISTS: &str = "brisk ls -R lists what is there";

/// A launch failed because there is no such program, and there is a similar one.
#[derive(Debug)]
pub struct HintedError {
    /// The error without the hint.
    pub error: brisk_launch::Error,
    hint: String,
}

impl fmt::Display for HintedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.error, self.hint)
    }
}

impl std::error::Error for HintedError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

/// `error`, with the path of a similar program of the image if the launch lacks its program. `in_root`: the image is the
/// root directory.
pub fn with_program(
    error: brisk_launch::Error,
    program: &Path,
    image: &Image,
    in_root: bool,
) -> anyhow::Error {
    let found = match error.kind() {
        ErrorKind::CommandNotFound => similar_in(image, program),
        _ => None,
    };
    let Some(mut path) = found else {
        return error.into();
    };
    if in_root {
        path = Path::new("/").join(path);
    }
    let hint = format!("the image has {}: name that", shown(path));
    HintedError { error, hint }.into()
}

/// As [`with_program`], of the directory that a program starts from.
pub fn with_program_of_directory(
    error: brisk_launch::Error,
    program: &Path,
    directory: &Path,
) -> anyhow::Error {
    let found = match error.kind() {
        ErrorKind::CommandNotFound => similar(program, |path| directory.join(path).is_file()),
        _ => None,
    };
    match found {
        Some(path) => {
            let (directory, path) = (shown(directory), shown(path));
            let hint = format!("{directory} has {path}: name that");
            HintedError { error, hint }.into()
        }
        None => error.into(),
    }
}

/// What to do about `path`, which the image lacks.
pub fn what_to_name(image: &Image, path: &Path) -> String {
    match similar_in(image, path) {
        Some(found) => format!(
            "it has {}: name that, or see what else there is with brisk ls -R",
            shown(found)
        ),
        None => LISTS.to_owned(),
    }
}

/// A file of the image that `path` may have meant.
pub fn similar_in(image: &Image, path: &Path) -> Option<PathBuf> {
    similar(path, |path| is_file(image, path))
}

fn is_file(image: &Image, path: &Path) -> bool {
    // A damaged image has no path to propose.
    let inode = image.resolve(path).ok().flatten();
    inode.is_some_and(|inode| matches!(inode.kind(), InodeKind::File(_)))
}

/// A path that `has` knows and that `path` may have meant: without its first names, in `usr`, or in a directory of programs.
fn similar(path: &Path, has: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let names = path
        .components()
        .filter(|name| matches!(name, Component::Normal(_)));
    let names: Vec<_> = names.collect();
    let name = names.last()?;
    let shorter = (0..names.len()).filter_map(|first| names.get(first..));
    let shorter = shorter.map(|names| names.iter().collect::<PathBuf>());
    let within = shorter.flat_map(|path| [Path::new("usr").join(&path), path].into_iter().rev());
    let programs = PROGRAMS
        .iter()
        .map(|directory| Path::new(directory).join(name));
    let mut all = within.chain(programs).filter(|found| found != path);
    all.find(|found| has(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_meant_is_found() {
        for (asked, there, found) in [
            ("/bin/foo", "usr/bin/foo", true),
            ("/usr/bin/foo", "bin/foo", true),
            ("/bin/foo", "bin/foo", true),
            ("app/bin/foo", "bin/foo", true),
            ("foo", "usr/local/bin/foo", true),
            ("./foo", "foo", true),
            ("bin/foo", "sbin/foo", true),
            ("bin/foo", "bin/foo", false),
            ("bin/foo", "share/foo", false),
            ("..", "bin", false),
            ("", "bin", false),
        ] {
            let path = similar(Path::new(asked), |path| path == Path::new(there));
            assert_eq!(path, found.then(|| there.into()), "{asked} {there}");
        }
    }
}
