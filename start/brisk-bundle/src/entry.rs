//! How an image starts its program, if nobody names one.
//!
//! An image records it (`brisk pack --entry`). Otherwise its top directory may say it, as that of an AppImage does: by a
//! program `AppRun`, or by a single desktop entry.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

use brisk_image::{EntryPoint, Image, Inode, InodeKind};
use brisk_launch::Variable;
use brisk_terminal::names::shown;
use brisk_terminal::shell_word::shell_word;

use crate::desktop_file;

/// The program at the top of an AppImage.
const APP_RUN: &str = "AppRun";

/// Directories in which programs are.
pub const PROGRAMS: [&str; 6] = [
    "bin",
    "usr/bin",
    "usr/local/bin",
    "sbin",
    "usr/sbin",
    "AppDir/usr/bin",
];

/// How many desktop entries a message names.
const NAMED: usize = 3;

/// How an image starts its program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// In front of which word the user's arguments stand.
    arguments_at: usize,
    /// Whether the image is the program's root directory.
    pub root: bool,
    /// The directory that it starts in.
    pub directory: Option<PathBuf>,
    /// Names and values that are set in the program's environment.
    pub variables: Vec<(OsString, OsString)>,
    /// Where this comes from.
    pub origin: Origin,
}

/// Where an entry comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The image records it.
    Recorded,
    /// The program at its top.
    AppRun,
    /// The desktop entry of this name.
    Desktop(OsString),
}

/// Why an image has no entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoEntry {
    /// Nothing at its top says it.
    Nothing,
    /// Several desktop entries: the first names, and how many there are.
    Several(Vec<OsString>, u64),
    /// The desktop entry of this name does not say which program it starts.
    Unusable(OsString, String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Recorded => f.write_str("recorded"),
            Self::AppRun => f.write_str("AppRun at the top of the image"),
            Self::Desktop(name) => write!(f, "Exec= of {}", shown(name)),
        }
    }
}

impl Origin {
    /// One word, for JSON.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Recorded => "recorded",
            Self::AppRun => "AppRun",
            Self::Desktop(_) => "desktop",
        }
    }
}

/// The command, and what it is started with, for people.
impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown_command())?;
        if self.root {
            f.write_str(", in the image as root directory")?;
        }
        if let Some(directory) = &self.directory {
            write!(f, ", in {}", shown(directory))?;
        }
        for (name, value) in &self.variables {
            write!(f, ", {}={}", shown(name), shown_word(value))?;
        }
        write!(f, " ({})", self.origin)
    }
}

impl fmt::Display for NoEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str(
                "it records none, and has neither AppRun nor a .desktop file at its top",
            ),
            Self::Several(names, count) => {
                let named: Vec<_> = names.iter().map(shown).collect();
                let more = match u64::try_from(names.len()) == Ok(*count) {
                    true => "",
                    false => ", …",
                };
                write!(
                    f,
                    "it records none, and has {count} .desktop files at its top ({}{more}), allowed is one",
                    named.join(", ")
                )
            }
            Self::Unusable(name, why) => write!(f, "it records none, and {}: {why}", shown(name)),
        }
    }
}

impl NoEntry {
    /// Why the verb cannot start the image at `path`, and what to do. `given` is the first argument for its program.
    pub fn to_error(&self, path: &Path, given: Option<&Path>, verb: &str) -> anyhow::Error {
        let word = shown_word(path.as_os_str());
        let cure = match given {
            Some(given) => format!("brisk {verb} {word} -- {}", shown_word(given.as_os_str())),
            None => format!("brisk {verb} {word} -- bin/app"),
        };
        anyhow::anyhow!(
            "{path}: no program is named, and the image has no entry: {self}; name a program behind -- ({cure}), or record \
             one: brisk repack {word} -o new.img --entry bin/app, or brisk pack --entry",
            path = shown(path)
        )
    }

    /// Why the verb cannot make something of the image at `path` that starts it, and what to do.
    pub fn to_be_recorded(&self, path: &Path, verb: &str) -> anyhow::Error {
        anyhow::anyhow!(
            "{}: the image has no entry: {self}; record one in a new image, and {verb} that: brisk repack {} -o new.img --entry \
             bin/app",
            shown(path),
            shown_word(path.as_os_str())
        )
    }
}

impl Entry {
    /// The entry of `image`, or why it has none.
    ///
    /// # Errors
    ///
    /// Those of reading the image, and of a record that is damaged.
    pub fn of(image: &Image) -> anyhow::Result<Result<Self, NoEntry>> {
        if let Some(recorded) = image.entry_point()? {
            return Ok(Ok(Self::recorded(&recorded)));
        }
        if is_program(image, Path::new(APP_RUN))? {
            let command = vec![Path::new(".").join(APP_RUN).into()];
            return Ok(Ok(Self::found(command, 1, Origin::AppRun)));
        }
        let (mut names, count) = desktop_files(image, Path::new(""))?;
        let name = match (count, names.pop()) {
            (1, Some(name)) => name,
            (_, None) => return Ok(Err(NoEntry::Nothing)),
            (_, Some(last)) => {
                names.push(last);
                return Ok(Err(NoEntry::Several(names, count)));
            }
        };
        Ok(match of_desktop_file(image, &name)? {
            Ok((command, at)) => Ok(Self::found(command, at, Origin::Desktop(name))),
            Err(why) => Err(NoEntry::Unusable(name, why)),
        })
    }

    fn recorded(entry: &EntryPoint) -> Self {
        Self {
            command: entry.command().to_vec(),
            arguments_at: entry.command().len(),
            root: entry.is_in_root(),
            directory: entry.start_directory().map(Path::to_owned),
            variables: entry.variables().to_vec(),
            origin: Origin::Recorded,
        }
    }

    fn found(command: Vec<OsString>, arguments_at: usize, origin: Origin) -> Self {
        Self {
            command,
            arguments_at,
            root: false,
            directory: None,
            variables: Vec::new(),
            origin,
        }
    }

    /// The command with the user's arguments.
    fn command_with(&self, arguments: &[OsString]) -> Vec<OsString> {
        let (before, behind) = self
            .command
            .split_at_checked(self.arguments_at)
            .unwrap_or((&self.command, &[]));
        [before, arguments, behind].concat()
    }

    /// What is set in the program's environment. What AppImage's convention finds also gets the variables that AppImage's
    /// own runtime sets. `image` is the path that the user gave, and `called_as` the name that the user called.
    fn environment(&self, image: &Path, called_as: &OsStr) -> Vec<Variable> {
        let own = self.variables.iter();
        let mut variables: Vec<_> = own
            .map(|(name, value)| Variable::new(name, value))
            .collect();
        if self.origin != Origin::Recorded {
            variables.extend(appimage_variables(image, called_as));
        }
        variables
    }

    /// The command for people, each word as a shell would take it.
    pub fn shown_command(&self) -> String {
        let words: Vec<_> = self.command.iter().map(|word| shown_word(word)).collect();
        words.join(" ")
    }
}

/// The variables that AppImage's own runtime sets.
pub fn appimage_variables(image: &Path, called_as: &OsStr) -> Vec<Variable> {
    let mut variables = vec![
        Variable::of_mount_point("APPDIR"),
        Variable::new("ARGV0", called_as),
    ];
    // Without them, the program has to do with less, as outside of an AppImage.
    variables.extend(
        image
            .canonicalize()
            .map(|path| Variable::new("APPIMAGE", path)),
    );
    variables.extend(env::current_dir().map(|path| Variable::new("OWD", path)));
    variables
}

/// A word of a command for people, as a shell would take it.
fn shown_word(word: &OsStr) -> String {
    shown(shell_word(word))
}

/// What is started, and how.
pub struct Start {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Whether the image is the program's root directory.
    pub root: bool,
    /// The directory that it starts in.
    pub directory: Option<PathBuf>,
    /// What is set in its environment.
    pub variables: Vec<Variable>,
}

impl Start {
    /// What was named.
    pub fn named(command: &[OsString], root: bool) -> Self {
        Self {
            command: command.to_vec(),
            root,
            directory: None,
            variables: Vec::new(),
        }
    }

    /// What the image at `path` starts by itself, with the user's arguments. `called_as` is the name that the user called: the
    /// image, or a launcher. A place that the user names (`at`) keeps the image from being the root directory.
    pub fn by_entry(
        entry: &Entry,
        path: &Path,
        called_as: &OsStr,
        arguments: &[OsString],
        root: bool,
        at: Option<&Path>,
    ) -> Self {
        Self {
            command: entry.command_with(arguments),
            root: root || at.is_none() && entry.root,
            directory: entry.directory.clone(),
            variables: entry.environment(path, called_as),
        }
    }
}

/// The command of a desktop entry at the top of the image, and where arguments stand in it. The inner error says why
/// there is none.
fn of_desktop_file(
    image: &Image,
    name: &OsStr,
) -> anyhow::Result<Result<(Vec<OsString>, usize), String>> {
    let Some(text) = text_of(image, Path::new(name))? else {
        return Ok(Err(format!(
            "it is no text file of at most {} bytes",
            desktop_file::LONGEST
        )));
    };
    let Some(exec) = desktop_file::value(&text, "Exec") else {
        return Ok(Err("it has no Exec=".to_owned()));
    };
    let mut exec = match desktop_file::parse_exec(exec) {
        Ok(exec) => exec,
        Err(why) => return Ok(Err(why.to_string())),
    };
    let program = exec.words.remove(0);
    Ok(match program_of_image(image, &program)? {
        Some(found) => {
            let rest = exec.words.into_iter().map(OsString::from);
            let command = std::iter::once(found.into()).chain(rest).collect();
            Ok((command, exec.arguments_at))
        }
        None => Err(format!(
            "its Exec= starts {}, which the image lacks",
            shown(&program)
        )),
    })
}

/// The text of a desktop entry of the image. None if it is none, or too long.
pub fn text_of(image: &Image, path: &Path) -> anyhow::Result<Option<String>> {
    let bytes = bytes_of(image, path, desktop_file::LONGEST)?;
    Ok(bytes.and_then(|bytes| String::from_utf8(bytes).ok()))
}

/// The contents of a file of the image. None if there is no file, or one of more than `most` bytes.
pub fn bytes_of(image: &Image, path: &Path, most: u64) -> anyhow::Result<Option<Vec<u8>>> {
    let Some(inode) = image.resolve(path)? else {
        return Ok(None);
    };
    match inode.kind() {
        InodeKind::File(file) if file.len() <= most => Ok(Some(image.file(&inode)?.read_to_vec()?)),
        _ => Ok(None),
    }
}

/// The desktop entries in a directory of the image: the first names, and how many there are. None are in what is no
/// directory.
pub fn desktop_files(image: &Image, directory: &Path) -> anyhow::Result<(Vec<OsString>, u64)> {
    let (mut names, mut count) = (Vec::new(), 0);
    let inode = image.resolve(directory)?;
    if let Some(inode) = inode.filter(Inode::is_dir) {
        for entry in image.read_dir(&inode)? {
            let name = entry?.name().to_owned();
            if Path::new(&name).extension() == Some(OsStr::new("desktop")) {
                count += 1;
                // A hostile directory may have any number of them.
                if names.len() < NAMED {
                    names.push(name);
                }
            }
        }
    }
    Ok((names, count))
}

/// The program that a desktop entry names, as a path in the image with a slash.
fn program_of_image(image: &Image, program: &str) -> anyhow::Result<Option<PathBuf>> {
    let named = Path::new(program);
    let inside = named.strip_prefix("/").unwrap_or(named);
    if program.contains('/') {
        let path = Path::new(".").join(inside);
        return Ok(is_program(image, &path)?.then_some(path));
    }
    let directories = ["."].into_iter().chain(PROGRAMS);
    for directory in directories {
        let path = Path::new(directory).join(inside);
        if is_program(image, &path)? {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// Whether the image has a file at `path` that somebody may execute.
pub fn is_program(image: &Image, path: &Path) -> anyhow::Result<bool> {
    let inode = image.resolve(path)?;
    Ok(inode.is_some_and(|inode| inode.is_file() && inode.permissions() & 0o111 != 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use brisk_image::{ImageWriter, OpenOptions, TreeBuilder, TreeEntry};
    use std::io::Cursor;

    fn image(files: &[(&str, &str, u16)]) -> Image {
        let mut tree = TreeBuilder::new();
        for directory in ["usr", "usr/bin"] {
            tree.add(directory, TreeEntry::directory()).unwrap();
        }
        for (path, text, mode) in files {
            tree.add(path, TreeEntry::file(*text).permissions(*mode))
                .unwrap();
        }
        let mut bytes = Vec::new();
        ImageWriter::new()
            .write_to(&tree.finish(), Cursor::new(&mut bytes))
            .unwrap();
        Image::from_source(bytes, &OpenOptions::new()).unwrap()
    }

    fn of(files: &[(&str, &str, u16)]) -> Result<String, String> {
        let entry = Entry::of(&image(files)).unwrap();
        entry
            .map(|entry| format!("{} ({})", entry.shown_command(), entry.origin))
            .map_err(|e| e.to_string())
    }

    #[test]
    fn an_image_says_by_its_top_what_it_starts() {
        let exec = |exec: &str| format!("[Desktop Entry]\nExec={exec}\n");
        let (app, other, quoted) = (
            exec("app --open %U"),
            exec("other"),
            exec("\"/usr/bin/app\" \"a b\""),
        );
        let program = ("usr/bin/app", "", 0o755);
        for (files, found) in [
            (
                &[("AppRun", "", 0o755), ("a.desktop", &*app, 0o644)][..],
                "./AppRun (AppRun at the top of the image)",
            ),
            (
                &[("AppRun", "", 0o644), ("a.desktop", &*app, 0o644), program],
                "usr/bin/app --open (Exec= of a.desktop)",
            ),
            (
                &[("a.desktop", &*quoted, 0o644), program],
                "./usr/bin/app 'a b' (Exec= of a.desktop)",
            ),
        ] {
            assert_eq!(of(files).as_deref(), Ok(found));
        }
        for (files, why) in [
            (
                &[program][..],
                "it records none, and has neither AppRun nor a .desktop file at its top",
            ),
            (
                &[
                    ("a.desktop", &*app, 0o644),
                    ("b.desktop", &*app, 0o644),
                    program,
                ],
                "it records none, and has 2 .desktop files at its top (a.desktop, b.desktop), allowed is one",
            ),
            (
                &[("a.desktop", &*other, 0o644), program],
                "it records none, and a.desktop: its Exec= starts other, which the image lacks",
            ),
            (
                &[("a.desktop", "[Desktop Entry]\n", 0o644)],
                "it records none, and a.desktop: it has no Exec=",
            ),
            (
                &[("a\u{1b}.desktop", "[Desktop Entry]\n", 0o644)],
                "it records none, and a\\u{1b}.desktop: it has no Exec=",
            ),
        ] {
            assert_eq!(of(files), Err(why.to_owned()));
        }
    }

    #[test]
    fn arguments_stand_where_the_entry_says() {
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let entry = Entry::found(words(&["app", "--open", "--quiet"]), 2, Origin::AppRun);
        assert_eq!(
            entry.command_with(&words(&["a", "b"])),
            words(&["app", "--open", "a", "b", "--quiet"])
        );
        assert_eq!(entry.command_with(&[]), entry.command);
    }
}
