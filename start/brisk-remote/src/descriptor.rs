//! What a publisher says of an image: the file `IMAGE.remote` beside it.
//!
//! It is a short text, as a manifest is, so that a signature covers each of its bytes:
//!
//! ```text
//! brisk-remote 1
//! name app.img
//! serial 1795982400
//! file-bytes 46362624
//! sha256 6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b
//! root-hash sha256 d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35
//! tables 40194048
//! hot-frames 40509440 43192320
//! hot-neighbours 45904384
//! hash-tree 46018560
//! ```
//!
//! The lines `root-hash`, `hot-frames`, `hot-neighbours` and `hash-tree` may be missing. The numbers are bytes of the file. They only
//! say what to ask for first: what is wrong in them costs time, and no byte is believed because of them.

use std::fmt;
use std::ops::Range;

use crate::error::{Error, ErrorKind, Result};
use crate::hex::is_digest;
use crate::presence::UNIT;

/// The first line.
const TITLE: &str = "brisk-remote 1";

/// The most bytes of a descriptor that brisk reads.
pub const MOST_DESCRIPTOR: u64 = 16 << 10;

/// The longest name, in bytes.
const MOST_NAME: usize = 255;

/// What a publisher says of an image, or of a hot pack in a file of its own.
///
/// 1. `name` has no slash, no control character, and 1 to 255 bytes.
/// 2. `sha256` and `root_hash` are digests in lower case.
/// 3. All places are within the file. `frames` starts before it ends, and ends before `neighbours`, which is there only with them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// The name under which the image was published.
    pub name: String,
    /// A number that is larger for each later image of this name.
    pub serial: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// SHA-256 of the whole file.
    pub sha256: String,
    /// The root hash of the hash tree behind the image.
    pub root_hash: Option<String>,
    /// The byte at which the tables of the image start. 0: the file is a hot pack.
    pub tables: u64,
    /// The frames of the hot pack behind the image, with the pages of the launch.
    pub frames: Option<Range<u64>>,
    /// Where the frames end that follow those, with the neighbours of these pages.
    pub neighbours: Option<u64>,
    /// The byte at which the hash tree starts. It goes to the end of the file.
    pub hash_tree: Option<u64>,
}

impl fmt::Display for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{TITLE}")?;
        writeln!(f, "name {}", self.name)?;
        writeln!(f, "serial {}", self.serial)?;
        writeln!(f, "file-bytes {}", self.file_bytes)?;
        writeln!(f, "sha256 {}", self.sha256)?;
        if let Some(root) = &self.root_hash {
            writeln!(f, "root-hash sha256 {root}")?;
        }
        writeln!(f, "tables {}", self.tables)?;
        if let Some(frames) = &self.frames {
            writeln!(f, "hot-frames {} {}", frames.start, frames.end)?;
        }
        if let Some(end) = self.neighbours {
            writeln!(f, "hot-neighbours {end}")?;
        }
        if let Some(tree) = self.hash_tree {
            writeln!(f, "hash-tree {tree}")?;
        }
        Ok(())
    }
}

impl Descriptor {
    /// What nothing can be read without: the superblock, the tables, and the hash tree.
    pub fn first_needed(&self) -> [Range<u64>; 3] {
        let tree = self.hash_tree.unwrap_or(self.file_bytes);
        let frames = self.frames.clone().unwrap_or(tree..tree);
        [
            self.tables..frames.start,
            self.neighbours.unwrap_or(frames.end)..self.file_bytes,
            0..UNIT.min(self.file_bytes),
        ]
    }

    /// Reads a descriptor, byte by byte as brisk writes it.
    ///
    /// # Errors
    ///
    /// `Format`: the line, what it has, and what is allowed.
    pub fn parse(text: &str) -> Result<Self> {
        let mut lines = Lines {
            lines: text.lines(),
            number: 0,
            kept: None,
        };
        match lines.next() {
            Some(TITLE) => {}
            found => {
                return Err(lines.wrong(
                    found,
                    &format!("{TITLE:?}; a later version of brisk may have written it"),
                ));
            }
        }
        let descriptor = Self {
            name: lines.value("name", |text| {
                let is_name = (1..=MOST_NAME).contains(&text.len())
                    && !text.chars().any(|c| c == '/' || c.is_control());
                is_name.then(|| text.to_owned())
            })?,
            serial: lines.value("serial", number)?,
            file_bytes: lines.value("file-bytes", number)?,
            sha256: lines.value("sha256", digest)?,
            root_hash: lines.optional("root-hash", |text| digest(text.strip_prefix("sha256 ")?))?,
            tables: lines.value("tables", number)?,
            frames: lines.optional("hot-frames", |text| {
                let (start, end) = text.split_once(' ')?;
                Some(number(start)?..number(end)?)
            })?,
            neighbours: lines.optional("hot-neighbours", number)?,
            hash_tree: lines.optional("hash-tree", number)?,
        };
        let end = descriptor.file_bytes;
        let frames = descriptor.frames.clone().unwrap_or(0..0);
        let places = [
            descriptor.tables,
            frames.start,
            frames.end,
            descriptor.neighbours.unwrap_or(0),
            descriptor.hash_tree.unwrap_or(0),
        ];
        if let Some(place) = places.iter().find(|place| **place > end) {
            return Err(wrong(format!(
                "it names byte {place} of a file of {end} bytes"
            )));
        }
        if frames.start > frames.end {
            return Err(wrong(format!(
                "the frames start at byte {} and end at {}",
                frames.start, frames.end
            )));
        }
        if let Some(neighbours) = descriptor.neighbours
            && (descriptor.frames.is_none() || neighbours < frames.end)
        {
            return Err(wrong(format!(
                "the neighbours of the frames end at byte {neighbours}, and the frames at {}",
                frames.end
            )));
        }
        // Two texts must not mean the same.
        if descriptor.to_string() != text {
            return Err(wrong(
                "it has more lines or other spaces than brisk writes".into(),
            ));
        }
        Ok(descriptor)
    }
}

struct Lines<'a> {
    lines: std::str::Lines<'a>,
    number: usize,
    kept: Option<&'a str>,
}

impl<'a> Lines<'a> {
    fn next(&mut self) -> Option<&'a str> {
        self.number += 1;
        self.kept.take().or_else(|| self.lines.next())
    }

    fn value<T>(&mut self, what: &str, read: impl Fn(&'a str) -> Option<T>) -> Result<T> {
        let line = self.next();
        let value = line.and_then(|line| line.strip_prefix(what)?.strip_prefix(' '));
        let value = value.and_then(read);
        value.ok_or_else(|| self.wrong(line, &format!("\"{what}\" and its value")))
    }

    fn optional<T>(
        &mut self,
        what: &str,
        read: impl Fn(&'a str) -> Option<T>,
    ) -> Result<Option<T>> {
        let line = self.next();
        self.number -= 1;
        self.kept = line;
        match line.is_some_and(|line| line.starts_with(what)) {
            true => self.value(what, read).map(Some),
            false => Ok(None),
        }
    }

    fn wrong(&self, found: Option<&str>, allowed: &str) -> Error {
        let number = self.number;
        match found {
            Some(found) => {
                let found: String = found.chars().take(80).collect();
                wrong(format!("line {number} is {found:?}, allowed is {allowed}"))
            }
            None => wrong(format!(
                "it ends before line {number}, where {allowed} should stand"
            )),
        }
    }
}

fn wrong(what: String) -> Error {
    Error::new(
        ErrorKind::Format,
        format!("the .remote file of the image: {what}; publish the image again"),
    )
}

fn number(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

fn digest(text: &str) -> Option<String> {
    is_digest(text).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> Descriptor {
        Descriptor {
            name: "app.img".into(),
            serial: 7,
            file_bytes: 100_000,
            sha256: "ab".repeat(32),
            root_hash: Some("cd".repeat(32)),
            tables: 50_000,
            frames: Some(60_000..90_000),
            neighbours: Some(95_000),
            hash_tree: Some(94_208),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let bare = Descriptor {
            root_hash: None,
            frames: None,
            neighbours: None,
            hash_tree: None,
            ..sound()
        };
        for descriptor in [sound(), bare] {
            assert_eq!(
                Descriptor::parse(&descriptor.to_string()).expect("sound"),
                descriptor
            );
        }
    }

    #[test]
    fn each_line_is_checked() {
        let text = sound().to_string();
        for (from, to, message) in [
            (
                "brisk-remote 1",
                "brisk-remote 2",
                "line 1 is \"brisk-remote 2\", allowed is \"brisk-remote 1\"; a later version of brisk may have written it",
            ),
            (
                "app.img",
                "a/b",
                "line 2 is \"name a/b\", allowed is \"name\" and its value",
            ),
            (
                "serial 7",
                "serial +7",
                "line 3 is \"serial +7\", allowed is \"serial\" and its value",
            ),
            (
                &*"cd".repeat(32),
                "cd",
                "line 6 is \"root-hash sha256 cd\", allowed is \"root-hash\" and its value",
            ),
            (
                "tables 50000",
                "tables 100001",
                "it names byte 100001 of a file of 100000 bytes",
            ),
            (
                "60000 90000",
                "60000 50000",
                "the frames start at byte 60000 and end at 50000",
            ),
            (
                "hash-tree 94208\n",
                "hash-tree 94208\n\n",
                "it has more lines or other spaces than brisk writes",
            ),
            (
                "file-bytes 100000",
                "file-bytes 0100000",
                "it has more lines or other spaces than brisk writes",
            ),
        ] {
            let e = Descriptor::parse(&text.replace(from, to))
                .unwrap_err()
                .to_string();
            assert_eq!(
                e,
                format!("the .remote file of the image: {message}; publish the image again")
            );
        }
        let e = Descriptor::parse("brisk-remote 1\nname a\n")
            .unwrap_err()
            .to_string();
        assert!(
            e.contains("it ends before line 3, where \"serial\" and its value should stand"),
            "{e}"
        );
    }
}
