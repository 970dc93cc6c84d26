//! `brisk ls`: lists what is in an image.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use brisk_image::{FileType, Image, Inode, InodeKind};
use brisk_terminal::answer::Answer;
use brisk_terminal::names::{path_from_root, shown};
use jiff::civil::{Date, date};
use serde::Serialize;

use crate::image_args::{ImageArgs, LimitArgs};
use crate::json;
use crate::verify_args::VerifyArgs;

/// What to list, and how.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Paths are from the root of the image, so that you can give them to brisk cat, and sorted name by name. On a \
terminal, brisk escapes characters that the terminal would obey.")]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,

    #[command(flatten)]
    verified: VerifyArgs,

    #[command(flatten)]
    limits: LimitArgs,

    /// Paths of directories or files from the root of the image. [default: the root directory]
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// Lists everything below the directories, at any depth.
    #[arg(short = 'R', long)]
    recursive: bool,

    /// Lists directories themselves, and not their contents.
    #[arg(short, long, conflicts_with_all = ["recursive", "tree"])]
    directory: bool,

    /// Shows type and permissions, links, user, group, size or device, time of modification in UTC, path, and targets
    /// of symbolic links.
    #[arg(short, long)]
    long: bool,

    /// Draws everything below as a tree.
    #[arg(long, conflicts_with_all = ["long", "json"])]
    tree: bool,

    /// Prints one JSON object for each entry, with everything that -l shows. If a path or a target is not UTF-8,
    /// path_hex or target_hex has its bytes in hexadecimal.
    #[arg(long, conflicts_with = "long")]
    json: bool,
}

/// How many bytes to collect before writing them.
const BUFFER: usize = 64 << 10;

pub fn run(args: &Args) -> anyhow::Result<Answer> {
    args.limits.advise(list(args))
}

fn list(args: &Args) -> anyhow::Result<Answer> {
    let ImageArgs { image, offset } = &args.image;
    let limits = args.limits.limits();
    let image = args.verified.open_within(image, *offset, limits)?;
    let stdout = io::stdout();
    let mut lister = Lister {
        escape: stdout.is_terminal(),
        out: stdout.lock(),
        buffer: Vec::with_capacity(BUFFER + 4096),
        style: match args {
            Args { json: true, .. } => Style::Json,
            Args { long: true, .. } => Style::Long,
            _ => Style::Plain,
        },
        day: Day::default(),
    };
    // Looks up all paths before it lists the first, so that a wrong name lists nothing.
    for (path, inode) in &args.starts(&image)? {
        if !inode.is_dir() || args.directory {
            lister.entry(path, inode)?;
        } else if args.tree {
            lister.tree(&image, path, inode)?;
        } else if args.recursive {
            for entry in image.walk_from(path.clone(), inode.clone()).skip(1) {
                let entry = entry?;
                lister.entry(entry.path(), entry.inode())?;
            }
        } else {
            lister.directory(&image, path, inode)?;
        }
    }
    lister.flush()?;
    Ok(Answer::Yes)
}

impl Args {
    /// What to list. Each has its path from the root; the path of the root is empty.
    fn starts(&self, image: &Image) -> anyhow::Result<Vec<(PathBuf, Inode)>> {
        if self.paths.is_empty() {
            return Ok(vec![(PathBuf::new(), image.root()?)]);
        }
        let start = |path: &PathBuf| {
            let inode = image.lookup(path)?.with_context(|| {
                format!(
                    "{}: there is no {}; brisk ls -R lists what is there",
                    self.image.image.display(),
                    path.display()
                )
            })?;
            // The path as the image has it: without "/" at the start, "./" and double slashes.
            let names = path.components();
            let names = names.filter(|c| matches!(c, std::path::Component::Normal(_)));
            Ok((names.collect(), inode))
        };
        self.paths.iter().map(start).collect()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    Plain,
    Long,
    Json,
}

/// Prints entries, one buffer at a time.
struct Lister<W> {
    out: W,
    buffer: Vec<u8>,
    style: Style,
    /// Whether to escape names for a terminal.
    escape: bool,
    day: Day,
}

impl<W: Write> Lister<W> {
    fn directory(&mut self, image: &Image, path: &Path, inode: &Inode) -> anyhow::Result<()> {
        for entry in image.read_dir(inode)? {
            let entry = entry?;
            let path = path.join(entry.name());
            match self.style {
                // Only names are printed, so inodes are not read.
                Style::Plain => self.line(&path)?,
                _ => self.entry(&path, &image.entry_inode(&entry)?)?,
            }
        }
        Ok(())
    }

    fn entry(&mut self, path: &Path, inode: &Inode) -> io::Result<()> {
        match self.style {
            Style::Plain => self.line(path),
            Style::Long => {
                self.attributes(inode);
                self.name(path_from_root(path));
                if let InodeKind::Symlink(target) = inode.kind() {
                    self.buffer.extend_from_slice(b" -> ");
                    self.name(target);
                }
                self.end_line()
            }
            Style::Json => {
                serde_json::to_writer(&mut self.buffer, &EntryJson::new(path, inode))?;
                self.end_line()
            }
        }
    }

    fn line(&mut self, path: &Path) -> io::Result<()> {
        self.name(path_from_root(path));
        self.end_line()
    }

    fn end_line(&mut self) -> io::Result<()> {
        self.buffer.push(b'\n');
        if self.buffer.len() >= BUFFER {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        self.out.flush()
    }

    fn name(&mut self, name: &OsStr) {
        if self.escape {
            self.buffer.extend_from_slice(shown(name).as_bytes());
        } else {
            self.buffer.extend_from_slice(name.as_bytes());
        }
    }

    fn attributes(&mut self, inode: &Inode) {
        let buffer = &mut self.buffer;
        buffer.extend_from_slice(&mode_text(inode));
        push_number(buffer, inode.nlink().into(), 4);
        push_number(buffer, inode.uid().into(), 6);
        push_number(buffer, inode.gid().into(), 6);
        match inode.kind() {
            InodeKind::BlockDevice(device) | InodeKind::CharDevice(device) => {
                push_number(buffer, device.major.into(), 6);
                buffer.push(b',');
                push_number(buffer, device.minor.into(), 6);
            }
            _ => push_number(buffer, inode.len(), 13),
        }
        buffer.push(b' ');
        self.day.push_time(buffer, inode.mtime());
        buffer.push(b' ');
    }

    /// Draws everything below `inode`, with `path` as the first line.
    fn tree(&mut self, image: &Image, path: &Path, inode: &Inode) -> anyhow::Result<()> {
        self.line(path)?;
        // For each directory on the path: whether more entries follow in it.
        let mut open: Vec<bool> = Vec::new();
        for entry in image.walk_from(path.to_owned(), inode.clone()).skip(1) {
            let entry = entry?;
            open.truncate(entry.depth() - 1);
            for more in &open {
                let bar = if *more { "│   " } else { "    " };
                self.buffer.extend_from_slice(bar.as_bytes());
            }
            open.push(!entry.is_last());
            let branch = if entry.is_last() {
                "└── "
            } else {
                "├── "
            };
            self.buffer.extend_from_slice(branch.as_bytes());
            self.name(entry.path().file_name().unwrap_or_default());
            if let InodeKind::Symlink(target) = entry.inode().kind() {
                self.buffer.extend_from_slice(b" -> ");
                self.name(target);
            }
            self.end_line()?;
        }
        Ok(())
    }
}

/// Type and permissions, in the form of `ls -l`.
fn mode_text(inode: &Inode) -> [u8; 10] {
    let mode = inode.permissions();
    let mut text = *b"-rwxrwxrwx";
    text[0] = match inode.file_type() {
        FileType::Directory => b'd',
        FileType::File => b'-',
        FileType::Symlink => b'l',
        FileType::BlockDevice => b'b',
        FileType::CharDevice => b'c',
        FileType::Fifo => b'p',
        FileType::Socket => b's',
    };
    for bit in 0..9 {
        if mode & (0o400 >> bit) == 0 {
            text[bit + 1] = b'-';
        }
    }
    for (bit, at, with, without) in [
        (0o4000, 3, b's', b'S'),
        (0o2000, 6, b's', b'S'),
        (0o1000, 9, b't', b'T'),
    ] {
        if mode & bit != 0 {
            text[at] = if text[at] == b'x' { with } else { without };
        }
    }
    text
}

/// Appends `number`, right-aligned in `width` bytes, with at least one space before it.
fn push_number(buffer: &mut Vec<u8>, number: u64, width: usize) {
    // 2^64 has 20 digits.
    let mut digits = [b' '; 24];
    let mut at = digits.len();
    let mut left = number;
    loop {
        at -= 1;
        // This is one digit.
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    let start = (at - 1).min(digits.len() - width);
    buffer.extend_from_slice(&digits[start..]);
}

const DAY: u32 = 24 * 60 * 60;

/// The day of the time that was printed last. Most files of a tree are of few days, so this saves work.
#[derive(Default)]
struct Day {
    number: u32,
    text: String,
}

impl Day {
    /// Appends `YYYY-MM-DD HH:MM`, in UTC.
    fn push_time(&mut self, buffer: &mut Vec<u8>, seconds: u32) {
        let number = seconds / DAY;
        if self.text.is_empty() || self.number != number {
            self.number = number;
            self.text = day_of(number).to_string();
        }
        buffer.extend_from_slice(self.text.as_bytes());
        let minutes = seconds % DAY / 60;
        let mut clock = *b" 00:00";
        // Each is one digit.
        clock[1] += (minutes / 600) as u8;
        clock[2] += (minutes / 60 % 10) as u8;
        clock[4] += (minutes % 60 / 10) as u8;
        clock[5] += (minutes % 10) as u8;
        buffer.extend_from_slice(&clock);
    }
}

/// The day that is `number` days after the first of 1970.
fn day_of(number: u32) -> Date {
    const EPOCH: Date = date(1970, 1, 1);
    // The largest value is in 2106, far from the end of the calendar.
    EPOCH.saturating_add(jiff::Span::new().days(number))
}

/// An entry, as `brisk ls --json` prints it on one line.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EntryJson<'a> {
    /// Path from the root of the image; `.` is the root itself.
    path: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    /// Type of the file: `directory`, `file`, `symlink`, `block`, `char`, `fifo`, `socket`.
    r#type: &'static str,
    /// Permissions with set-user-id, set-group-id and sticky: four octal digits, such as `"0755"`.
    mode: String,
    /// Number of the inode, from 1.
    inode: u32,
    /// Names of the inode; for a directory two, and one for each directory in it.
    links: u32,
    /// User.
    uid: u32,
    /// Group.
    gid: u32,
    /// Last modification.
    mtime: u32,
    /// Size of the file.
    ///
    /// Absent except for files.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    /// Target of a symbolic link.
    ///
    /// Absent except for symbolic links.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_hex: Option<String>,
    /// First number of a device.
    ///
    /// Absent except for devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    major: Option<u32>,
    /// Second number of a device.
    ///
    /// Absent except for devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    minor: Option<u32>,
    /// Whether the inode has extended attributes.
    has_xattrs: bool,
}

impl<'a> EntryJson<'a> {
    fn new(path: &'a Path, inode: &'a Inode) -> Self {
        let (path, path_hex) = json::name(path_from_root(path));
        let (target, target_hex) = match inode.kind() {
            InodeKind::Symlink(target) => {
                let (target, hex) = json::name(target);
                (Some(target), hex)
            }
            _ => (None, None),
        };
        let (bytes, device) = match inode.kind() {
            InodeKind::File(file) => (Some(file.len()), None),
            InodeKind::BlockDevice(device) | InodeKind::CharDevice(device) => (None, Some(device)),
            _ => (None, None),
        };
        Self {
            path,
            path_hex,
            r#type: json::file_type(inode.file_type()),
            mode: format!("{:04o}", inode.permissions()),
            inode: inode.number(),
            links: inode.nlink(),
            uid: inode.uid(),
            gid: inode.gid(),
            mtime: inode.mtime(),
            bytes,
            target,
            target_hex,
            major: device.map(|device| device.major),
            minor: device.map(|device| device.minor),
            has_xattrs: inode.has_xattrs(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_padded_but_never_cut() {
        let text = |number, width| {
            let mut buffer = Vec::new();
            push_number(&mut buffer, number, width);
            String::from_utf8(buffer).unwrap()
        };
        assert_eq!(text(0, 4), "   0");
        assert_eq!(text(1234, 4), " 1234");
        assert_eq!(text(12_345, 13), "        12345");
        assert_eq!(text(u64::MAX, 4), " 18446744073709551615");
    }

    #[test]
    fn times_are_in_utc() {
        let mut day = Day::default();
        for (seconds, expected) in [
            (0, "1970-01-01 00:00"),
            (1_700_000_000, "2023-11-14 22:13"),
            (1_700_006_399, "2023-11-14 23:59"),
            (1_700_006_400, "2023-11-15 00:00"),
            (951_782_400, "2000-02-29 00:00"),
            (u32::MAX, "2106-02-07 06:28"),
        ] {
            let mut buffer = Vec::new();
            day.push_time(&mut buffer, seconds);
            assert_eq!(String::from_utf8(buffer).unwrap(), expected);
        }
    }

    #[test]
    fn only_a_terminal_gets_names_escaped() {
        let printed = |escape| {
            let mut lister = Lister {
                out: Vec::new(),
                buffer: Vec::new(),
                style: Style::Plain,
                escape,
                day: Day::default(),
            };
            lister
                .line(Path::new(OsStr::from_bytes(b"a\x1b[2J\xff")))
                .unwrap();
            lister.flush().unwrap();
            lister.out
        };
        assert_eq!(printed(true), b"a\\u{1b}[2J\\xff\n");
        assert_eq!(printed(false), b"a\x1b[2J\xff\n");
    }
}
