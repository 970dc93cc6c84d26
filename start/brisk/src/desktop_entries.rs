//! Entries of a desktop's menus that start programs by the links of `brisk auto on`.
//!
//! An entry in the user's own directory hides that of the system with the same name (Desktop Entry Specification and XDG Base
//! Directory Specification of freedesktop.org). So brisk writes a copy there, in which the link stands for the program.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context, Result};
use brisk_terminal::names::shown;

/// The first line of an entry that brisk has made. The name of the program follows.
const MARK: &str = "# Made by brisk auto on ";

/// The longest entry. Those of large programs with all their translations have some 50 KB.
const LONGEST: u64 = 1 << 20;

/// How deep directories of entries are.
const DEEPEST: usize = 4;

/// The system's directories of data, if the environment names none.
const USUAL: &str = "/usr/local/share:/usr/share";

/// What was done about an entry.
#[derive(Debug, PartialEq, Eq)]
pub enum Entry {
    /// This file now starts the link.
    Made(PathBuf),
    /// The user has this entry of his own, which was left as it is.
    IsOfUser(PathBuf),
}

/// Makes entries in the user's directory of data, for all of the system that start this program by its name or by a path of
/// the same file with the same name: some programs look at the name that they are started by.
pub fn make(name: &OsStr, program: &Path, link: &Path, data: &Path) -> Result<Vec<Entry>> {
    let usual = env::var_os("XDG_DATA_DIRS").filter(|directories| !directories.is_empty());
    let directories = usual.unwrap_or_else(|| USUAL.into());
    let real = program.canonicalize().ok();
    let is_it = |word: &str| {
        let path = Path::new(word);
        let is_same = || real.is_some() && path.canonicalize().ok() == real;
        match path.is_absolute() {
            true => path.file_name() == Some(name) && (path == program || is_same()),
            false => path == Path::new(name),
        }
    };
    let mut known = Vec::new();
    let mut entries = Vec::new();
    for directory in env::split_paths(&directories) {
        let directory = directory.join("applications");
        for file in files_in(&directory) {
            let Ok(below) = file.strip_prefix(&directory) else {
                continue;
            };
            // Those of earlier directories hide those of later ones.
            if known.iter().any(|known| known == below) {
                continue;
            }
            known.push(below.to_owned());
            let Some(text) = text_of(&file).and_then(|text| changed(&text, is_it, link)) else {
                continue;
            };
            let own = data.join("applications").join(below);
            if own.symlink_metadata().is_ok() && made_for(&own).is_none() {
                entries.push(Entry::IsOfUser(own));
                continue;
            }
            let write = || {
                fs::create_dir_all(own.parent().unwrap_or(data))?;
                fs::write(&own, format!("{MARK}{}\n{text}", shown(name)))
            };
            write().with_context(|| format!("cannot write {}", shown(&own)))?;
            entries.push(Entry::Made(own));
        }
    }
    Ok(entries)
}

/// Removes the entries that [`make`] has made for this program.
pub fn remove(name: &OsStr, data: &Path) -> Result<()> {
    let name = shown(name).to_string();
    for file in files_in(&data.join("applications")) {
        if made_for(&file).as_ref() == Some(&name) {
            fs::remove_file(&file).with_context(|| format!("cannot remove {}", shown(&file)))?;
        }
    }
    Ok(())
}

/// The program that brisk has made this entry for. None if brisk has not made it.
fn made_for(file: &Path) -> Option<String> {
    let text = text_of(file)?;
    let name = text.lines().next()?.strip_prefix(MARK)?;
    Some(name.to_owned())
}

/// The text of an entry. None if it is no text, or too long for an entry.
fn text_of(file: &Path) -> Option<String> {
    let metadata = fs::metadata(file).ok()?;
    (metadata.is_file() && metadata.len() <= LONGEST)
        .then(|| fs::read_to_string(file).ok())
        .flatten()
}

/// All entries of a directory and of those below, sorted. Those that cannot be read are left out.
fn files_in(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut left = vec![(directory.to_owned(), 0)];
    while let Some((directory, depth)) = left.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let (path, kind) = (entry.path(), entry.file_type());
            match kind {
                Ok(kind) if kind.is_dir() && depth < DEEPEST => left.push((path, depth + 1)),
                _ if path.extension() == Some(OsStr::new("desktop")) => files.push(path),
                _ => {}
            }
        }
    }
    files.sort_unstable();
    files
}

/// The entry with the link in place of the program. None if it does not start the program.
fn changed(text: &str, is_it: impl Fn(&str) -> bool, link: &Path) -> Option<String> {
    let link = quoted(link.to_str()?)?;
    let mut is_changed = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        let changed = match line.split_once('=') {
            Some((key, value)) if key.trim_end() == "Exec" => {
                let (before, word, rest) = program_of(value.trim_start());
                is_it(word).then(|| format!("Exec={before}{link}{rest}"))
            }
            // Then the desktop would ask for the program by D-Bus, and not start the link.
            Some((key, value)) if key.trim_end() == "DBusActivatable" && value.trim() == "true" => {
                lines.push("DBusActivatable=false".to_owned());
                continue;
            }
            _ => None,
        };
        is_changed |= changed.is_some();
        lines.push(changed.unwrap_or_else(|| line.to_owned()));
    }
    is_changed.then(|| lines.join("\n") + "\n")
}

/// The program that a command starts, without its quotes, with what stands before and behind it. With `env` it is the word
/// behind the variables. If `env` has options, or a variable that is not in plain words, it is `env`.
fn program_of(command: &str) -> (&str, &str, &str) {
    let (word, behind_word) = first_word(command);
    if Path::new(word).file_name() != Some(OsStr::new("env")) {
        return ("", word, behind_word);
    }
    let mut rest = behind_word;
    loop {
        let behind = rest.trim_start();
        let (next, left) = first_word(behind);
        let is_whole = left.is_empty() || left.starts_with(' ');
        if next.is_empty() || next.starts_with('-') || next.contains(['"', '\\']) || !is_whole {
            return ("", word, behind_word);
        }
        if !next.contains('=') {
            let before = command.len() - behind.len();
            return (command.get(..before).unwrap_or_default(), next, left);
        }
        rest = left;
    }
}

/// The first word of a command without its quotes, and what follows it. One with escapes is not read: it names no program
/// that anybody has.
fn first_word(command: &str) -> (&str, &str) {
    let quoted = command
        .strip_prefix('"')
        .and_then(|inside| inside.split_once('"'));
    quoted.unwrap_or_else(|| command.split_at(command.find(' ').unwrap_or(command.len())))
}

/// A path as a word of a command. None if it has characters that no entry can have.
pub fn quoted(path: &str) -> Option<String> {
    if path.chars().any(char::is_control) {
        return None;
    }
    let mut word = String::from('"');
    for letter in path.chars() {
        match letter {
            '"' | '`' | '$' => word.extend(['\\', '\\', letter]),
            '\\' => word.push_str(r"\\\\"),
            '%' => word.push_str("%%"),
            _ => word.push(letter),
        }
    }
    word.push('"');
    Some(word)
}

/// The user's directory of data: `$XDG_DATA_HOME`, else `~/.local/share`.
pub fn data_of_user() -> Result<PathBuf> {
    let absolute = |path: &PathBuf| path.is_absolute();
    let of = |variable| env::var_os(variable).map(PathBuf::from).filter(absolute);
    let data = of("XDG_DATA_HOME").or_else(|| Some(of("HOME")?.join(".local/share")));
    data.context(
        "neither XDG_DATA_HOME nor HOME is the absolute path of a directory; set one of them",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFICE: &str = "[Desktop Entry]\nName=Office\nExec=soffice --writer %U\nTryExec=soffice\n\
                          DBusActivatable=true\n\n[Desktop Action New]\nExec=\"/usr/bin/soffice\" --new\n";

    fn with_link(text: &str, link: &str) -> Option<String> {
        let is_it = |word: &str| ["soffice", "/usr/bin/soffice"].contains(&word);
        changed(text, is_it, Path::new(link))
    }

    #[test]
    fn the_link_stands_for_the_program_in_each_command() {
        let text = with_link(OFFICE, "/home/a/bin/soffice").unwrap();
        assert_eq!(
            text,
            "[Desktop Entry]\nName=Office\nExec=\"/home/a/bin/soffice\" --writer %U\nTryExec=soffice\n\
             DBusActivatable=false\n\n[Desktop Action New]\nExec=\"/home/a/bin/soffice\" --new\n"
        );
    }

    #[test]
    fn the_link_stands_for_the_program_behind_variables() {
        for (exec, expected) in [
            (
                "env A=b \"C=d e\" soffice %U",
                "env A=b \"C=d e\" \"/l\" %U",
            ),
            (
                "/usr/bin/env A=b \"/usr/bin/soffice\"",
                "/usr/bin/env A=b \"/l\"",
            ),
        ] {
            let text = with_link(&format!("[Desktop Entry]\nExec={exec}\n"), "/l");
            assert_eq!(text.unwrap(), format!("[Desktop Entry]\nExec={expected}\n"));
        }
    }

    #[test]
    fn other_programs_are_left_alone() {
        for line in [
            "Exec=soffice2 %U",
            "Exec=env -u A soffice",
            "Exec=env A=b soffice2",
            "Exec=env A=soffice",
            r#"Exec=env "A=x\\" soffice \\"y" other"#,
            r#"Exec=env A="x soffice y" real"#,
            r#"Exec=env "A=b""soffice""#,
            "Name=soffice",
            "Exec=",
        ] {
            assert_eq!(
                with_link(&format!("[Desktop Entry]\n{line}\n"), "/a"),
                None,
                "{line}"
            );
        }
    }

    #[test]
    fn names_with_signs_of_commands_are_quoted() {
        assert_eq!(quoted("/a b/100%").unwrap(), "\"/a b/100%%\"");
        assert_eq!(quoted("/a$b").unwrap(), r#""/a\\$b""#);
        assert_eq!(quoted("/a\nb"), None);
        assert_eq!(first_word("\"/a b\" c"), ("/a b", " c"));
        assert_eq!(first_word("\"open"), ("\"open", ""));
    }
}
