//! An entry in a desktop's menus for a launcher of `brisk wrap`, with what the image says of its program.
//!
//! An image is from a stranger, so only keys that describe the program are taken from its own entry. The command is the
//! launcher's, and other commands (actions, D-Bus) are left out.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use brisk_bundle::desktop_file::{self, parse_exec, unescaped, value};
use brisk_bundle::entry::{bytes_of, desktop_files, text_of};
use brisk_image::Image;
use brisk_terminal::names::{printable, shown};

use crate::desktop_entries::quoted;
use crate::whole_file::WholeFile;
use crate::wrapper::was_made_as;

/// The first line of an entry that brisk has made. The path of the launcher follows.
const MARK: &str = "# Made by brisk wrap for ";

/// Where the system keeps what an administrator has added.
pub const SYSTEM: &str = "/usr/local/share";

/// Keys that describe a program, and whether they may be there for each language.
const KEYS: [(&str, bool); 9] = [
    ("Name", true),
    ("GenericName", true),
    ("Comment", true),
    ("Keywords", true),
    ("Categories", false),
    ("MimeType", false),
    ("StartupNotify", false),
    ("StartupWMClass", false),
    ("Terminal", false),
];

/// The longest value that is taken over, in bytes.
const LONGEST_VALUE: usize = 4096;

/// The largest icon that is taken over, in bytes.
const LARGEST_ICON: u64 = 4 << 20;

/// Sizes of icons, the best first.
const SIZES: [&str; 9] = [
    "256x256", "512x512", "scalable", "192x192", "128x128", "96x96", "64x64", "48x48", "32x32",
];

/// An entry that is not written yet.
pub struct MenuEntry {
    pub file: PathBuf,
    text: String,
    icon: Option<(PathBuf, Vec<u8>)>,
    /// The kinds of files and URLs that the image says it opens, if the entry leaves them out.
    pub left_out: Option<String>,
}

impl MenuEntry {
    /// The entry of `launcher`, an absolute path, in the directory of data `data`. With `opens_files`, it opens the kinds of
    /// files and URLs that the image names.
    ///
    /// # Errors
    ///
    /// If no entry can have the launcher's path, and if another launcher has the entry of this name.
    pub fn new(image: &Image, launcher: &Path, data: &Path, opens_files: bool) -> Result<Self> {
        let path = match launcher
            .to_str()
            .zip(quoted(launcher.to_str().unwrap_or_default()))
        {
            Some((path, _)) if !path.contains('=') => path,
            _ => bail!(
                "{}: no menu can start a launcher of this name, allowed is UTF-8 without control characters and equals \
                 signs; name another with -o",
                shown(launcher)
            ),
        };
        let file = file_of(launcher, data);
        // One that is gone needs its entry no more.
        let is_of_other =
            |other: &String| other != path && Path::new(other).symlink_metadata().is_ok();
        if let Some(other) = made_for(&file).filter(is_of_other) {
            bail!(
                "{} is the menu entry of {}; remove that with brisk wrap --remove, or name another launcher with -o",
                shown(&file),
                shown(other)
            );
        }
        if file.symlink_metadata().is_ok() && made_for(&file).is_none() {
            bail!(
                "{} is no entry of brisk wrap; remove it yourself, or name another launcher with -o",
                shown(&file)
            );
        }
        let own = own_text(image)?.unwrap_or_default();
        let opened = value(&own, "MimeType").filter(|kinds| !kinds.is_empty());
        let left_out = opened.filter(|_| !opens_files).map(str::to_owned);
        let icon = icon_of(image, &own)?;
        let icon = icon.map(|(bytes, kind)| {
            let name = format!("{}.{kind}", shown(id(launcher)));
            (data.join("brisk/icons").join(name), bytes)
        });
        let icon_path = icon.as_ref().and_then(|(path, _)| path.to_str());
        let text = text(path, &own, icon_path, opens_files);
        Ok(Self {
            file,
            text,
            icon,
            left_out,
        })
    }

    /// What there is to write, in directories that this makes.
    pub fn files(&self) -> Result<Vec<WholeFile<'_>>> {
        let icon = self.icon.as_ref();
        let icon = icon.map(|(path, bytes)| WholeFile::data(path, bytes));
        let entry = WholeFile::data(&self.file, self.text.as_bytes());
        let files: Vec<_> = icon.into_iter().chain([entry]).collect();
        for file in &files {
            let directory = file.path.parent().unwrap_or(Path::new("/"));
            let made = fs::create_dir_all(directory);
            made.with_context(|| format!("cannot make {}", shown(directory)))?;
        }
        Ok(files)
    }
}

/// Removes the entries of `launcher` and their icons from a directory of data: its own, and that of the place where it was
/// before it was moved. Says whether there was one.
pub fn remove(launcher: &Path, data: &Path) -> Result<bool> {
    let mut is_removed = remove_of(launcher, data)?;
    let entries = fs::read_dir(data.join("applications"));
    for entry in entries.into_iter().flatten().flatten() {
        let Some(other) = made_for(&entry.path()).map(PathBuf::from) else {
            continue;
        };
        let is_gone = other.symlink_metadata().is_err();
        if is_gone && was_made_as(launcher, &other).unwrap_or(false) {
            is_removed |= remove_of(&other, data)?;
        }
    }
    Ok(is_removed)
}

/// Removes the entry of the launcher at this path, and its icon.
fn remove_of(launcher: &Path, data: &Path) -> Result<bool> {
    let file = file_of(launcher, data);
    // No entry has a launcher whose path is not UTF-8.
    let Some(path) = launcher.to_str() else {
        return Ok(false);
    };
    if made_for(&file).as_deref() != Some(path) {
        return Ok(false);
    }
    for kind in ["png", "svg", "xpm"] {
        let icon = data
            .join("brisk/icons")
            .join(format!("{}.{kind}", shown(id(launcher))));
        match fs::remove_file(&icon) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(e).with_context(|| format!("cannot remove {}", shown(&icon)));
            }
            _ => {}
        }
    }
    fs::remove_file(&file).with_context(|| format!("cannot remove {}", shown(&file)))?;
    Ok(true)
}

/// The name of the entry without its ending: letters that the specification allows.
fn id(launcher: &Path) -> String {
    let name = launcher.file_name().unwrap_or_default().to_string_lossy();
    let letter = |letter: char| match letter {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '_' => letter,
        _ => '_',
    };
    format!("brisk-{}", name.chars().map(letter).collect::<String>())
}

fn file_of(launcher: &Path, data: &Path) -> PathBuf {
    data.join("applications")
        .join(format!("{}.desktop", id(launcher)))
}

/// The launcher that brisk has made this entry for. None if brisk has not made it.
fn made_for(file: &Path) -> Option<String> {
    let metadata = file.symlink_metadata().ok()?;
    if !metadata.is_file() || metadata.len() > desktop_file::LONGEST {
        return None;
    }
    let text = fs::read_to_string(file).ok()?;
    Some(text.lines().next()?.strip_prefix(MARK)?.to_owned())
}

/// The image's own entry: the only one at its top, or else the only one among its applications.
fn own_text(image: &Image) -> Result<Option<String>> {
    for directory in ["", "usr/share/applications"] {
        let (names, count) = desktop_files(image, Path::new(directory))?;
        if let ([name], 1) = (&*names, count) {
            return text_of(image, &Path::new(directory).join(name));
        }
    }
    Ok(None)
}

/// The entry that starts the launcher at `path`. `own` is the image's.
fn text(path: &str, own: &str, icon: Option<&str>, opens_files: bool) -> String {
    let name = Path::new(path).file_name().unwrap_or_default();
    let mut lines = vec![
        format!("{MARK}{path}"),
        "[Desktop Entry]".to_owned(),
        "Type=Application".to_owned(),
    ];
    let mut described = described(own);
    described.retain(|(key, _)| opens_files || key != "MimeType");
    if !described.iter().any(|(key, _)| key == "Name") {
        lines.push(format!("Name={}", escaped(&shown(name))));
    }
    lines.extend(
        described
            .iter()
            .map(|(key, value)| format!("{key}={value}")),
    );
    if own.is_empty() {
        // Without an entry of its own, it has no window.
        lines.push("Terminal=true".to_owned());
    }
    let exec = value(own, "Exec").and_then(|exec| parse_exec(exec).ok());
    let code = exec
        .and_then(|exec| exec.code)
        .map(|code| format!(" {code}"))
        .unwrap_or_default();
    // `new` has checked that it can be quoted.
    lines.push(format!("Exec={}{code}", quoted(path).unwrap_or_default()));
    lines.push(format!("TryExec={}", escaped(path)));
    lines.extend(icon.map(|icon| format!("Icon={}", escaped(icon))));
    lines.join("\n") + "\n"
}

/// What an entry says of its program: keys, also for languages, and values as they are written. Each key once.
fn described(own: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    for (name, value) in desktop_file::lines(own) {
        let (key, language) = match name.split_once('[') {
            Some((key, language)) => (key, language.strip_suffix(']')),
            None => (name, Some("")),
        };
        let is_language = |language: &str| {
            language
                .chars()
                .all(|letter| letter.is_ascii_alphanumeric() || "_@.-".contains(letter))
        };
        let is_known = KEYS
            .iter()
            .any(|(known, of_languages)| *known == key && (*of_languages || !name.contains('[')));
        if is_known
            && language.is_some_and(is_language)
            && value.len() <= LONGEST_VALUE
            && printable(value) == value
            && !found.iter().any(|(known, _)| known == name)
        {
            found.push((name.to_owned(), value.to_owned()));
        }
    }
    found
}

/// A text as a value.
fn escaped(text: &str) -> String {
    let mut value = String::new();
    for (at, letter) in text.char_indices() {
        match letter {
            '\\' => value.push_str(r"\\"),
            ' ' if at == 0 => value.push_str(r"\s"),
            _ => value.push(letter),
        }
    }
    value
}

/// The image's icon, and the ending of its name. AppImages have it as `.DirIcon`.
fn icon_of(image: &Image, own: &str) -> Result<Option<(Vec<u8>, &'static str)>> {
    let mut paths = vec![PathBuf::from(".DirIcon")];
    if let Some(name) = value(own, "Icon").and_then(|name| unescaped(name).ok()) {
        if name.contains('/') {
            paths.push(name.into());
        } else {
            for size in SIZES {
                for kind in ["png", "svg"] {
                    paths.push(format!("usr/share/icons/hicolor/{size}/apps/{name}.{kind}").into());
                }
            }
            for kind in ["png", "svg", "xpm"] {
                paths.push(format!("usr/share/pixmaps/{name}.{kind}").into());
                paths.push(format!("{name}.{kind}").into());
            }
        }
    }
    for path in paths {
        if let Some(bytes) = bytes_of(image, &path, LARGEST_ICON)?
            && let Some(kind) = kind_of(&bytes)
        {
            return Ok(Some((bytes, kind)));
        }
    }
    Ok(None)
}

/// The kind of an icon by its contents. None if it is none that desktops show.
fn kind_of(bytes: &[u8]) -> Option<&'static str> {
    let start = bytes.get(..4096).unwrap_or(bytes);
    if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
        Some("png")
    } else if bytes.starts_with(b"/* XPM */") {
        Some("xpm")
    } else if start.windows(4).any(|four| four == b"<svg") && std::str::from_utf8(bytes).is_ok() {
        Some("svg")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_describes_the_program_is_taken_over() {
        let own = "[Desktop Entry]\nName=App\nName[de]=Anwendung\nName=Second\nName[a/b]=no\nExec=evil %U\nTryExec=evil\n\
                   Comment=a\u{202e}b\nIcon=evil\nDBusActivatable=true\nActions=New;\nCategories=Game;\nCategories[de]=no\n\
                   X-Evil=1\nMimeType=x-scheme-handler/http;\nTerminal=false\n[Desktop Action New]\nName=New\nExec=evil\n";
        assert_eq!(
            text("/a b/100%/$x", own, Some("/data/i.png"), false),
            "# Made by brisk wrap for /a b/100%/$x\n[Desktop Entry]\nType=Application\nName=App\nName[de]=Anwendung\n\
             Categories=Game;\nTerminal=false\nExec=\"/a b/100%%/\\\\$x\" %U\nTryExec=/a b/100%/$x\nIcon=/data/i.png\n"
        );
        assert_eq!(
            text(r"/a\b", "", None, true),
            "# Made by brisk wrap for /a\\b\n[Desktop Entry]\nType=Application\nName=a\\\\b\nTerminal=true\n\
             Exec=\"/a\\\\\\\\b\"\nTryExec=/a\\\\b\n"
        );
    }

    #[test]
    fn an_entry_has_a_name_of_its_launcher() {
        for (launcher, expected) in [
            ("/bin/app", "brisk-app"),
            ("/b/My App.1", "brisk-My_App_1"),
            ("/ü", "brisk-_"),
        ] {
            assert_eq!(id(Path::new(launcher)), expected);
        }
    }

    #[test]
    fn icons_are_known_by_their_contents() {
        for (bytes, kind) in [
            (&b"\x89PNG\r\n\x1a\n..."[..], Some("png")),
            (b"<?xml version='1.0'?>\n<svg/>", Some("svg")),
            (b"/* XPM */", Some("xpm")),
            (b"#!/bin/sh", None),
            (b"<svg\xff", None),
            (b"", None),
        ] {
            assert_eq!(kind_of(bytes), kind);
        }
    }
}
