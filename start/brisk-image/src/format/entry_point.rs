//! How an image starts its program: the contents of a section.
//!
//! They are records, each with a zero byte behind it, in this order: `root` at most once, `directory=` at most once, any
//! number of `variable=`, and at least one `word=`. So each entry has exactly one form, and words need no escapes.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use super::PATH_MAX;
use crate::error::{Corrupt, Error, Location, Result};
use crate::names;

/// Bytes of all records: Linux takes 128 KiB for one word, and images with more than this are no images of programs.
pub(crate) const MOST_ENTRY: usize = 64 << 10;

/// Bytes of a wrong record that an error shows.
const SHOWN: usize = 64;

/// Names of variables that begin with this are brisk's own.
const OWN: &[u8] = b"BRISK_";

const ROOT: &[u8] = b"root";
const DIRECTORY: &[u8] = b"directory=";
const VARIABLE: &[u8] = b"variable=";
const WORD: &[u8] = b"word=";

/// How an image starts its program, as [`ImageWriter::entry_point`](crate::ImageWriter::entry_point) records it.
///
/// 1. `command` has at least one word, and the first one is not empty.
/// 2. Nothing has a zero byte in it.
/// 3. `directory` has 1 to 4095 bytes.
/// 4. Names of variables are not empty, have no `=`, do not begin with `BRISK_`, and each is there once.
/// 5. All of it takes at most 64 KiB in an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryPoint {
    command: Vec<OsString>,
    in_root: bool,
    directory: Option<PathBuf>,
    variables: Vec<(OsString, OsString)>,
}

/// Why a part of an entry cannot be.
#[derive(Debug, PartialEq, Eq)]
enum Fault {
    NoProgram,
    Zero { part: &'static str, found: Vec<u8> },
    Directory { len: usize },
    Name { found: Vec<u8> },
    Twice { name: Vec<u8> },
    Long { len: usize },
    Record { number: usize, found: Vec<u8> },
    Unfinished,
}

/// The start of bytes from outside, in quotes.
struct Quoted<'a>(&'a [u8]);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = self.0.get(..SHOWN).unwrap_or(self.0);
        let more = match start.len() < self.0.len() {
            true => "...",
            false => "",
        };
        write!(f, "\"{}{more}\"", start.escape_ascii())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoProgram => {
                f.write_str("the entry has no program, allowed is a program and its arguments")
            }
            Self::Zero { part, found } => write!(
                f,
                "{part} of the entry is {}, allowed is a text without a zero byte",
                Quoted(found)
            ),
            Self::Directory { len } => write!(
                f,
                "the directory of the entry has {len} bytes, allowed are 1 to {}",
                PATH_MAX.saturating_sub(1)
            ),
            Self::Name { found } => write!(
                f,
                "a variable of the entry is {}, allowed is NAME=VALUE with a name that does not begin with BRISK_",
                Quoted(found)
            ),
            Self::Twice { name } => write!(
                f,
                "the entry sets the variable {} a second time, allowed is once",
                Quoted(name)
            ),
            Self::Long { len } => {
                write!(f, "the entry takes {len} bytes, allowed are {MOST_ENTRY}")
            }
            Self::Record { number, found } => write!(
                f,
                "record {number} of the entry is {}, allowed are root, directory=, variable= and word=, in this order",
                Quoted(found)
            ),
            Self::Unfinished => {
                f.write_str("the entry ends within a record, allowed is a zero byte behind each")
            }
        }
    }
}

impl EntryPoint {
    /// An entry that starts the program `command`, with these arguments. They mean what they mean to `brisk run`: an
    /// absolute path is taken as it is, a name with a slash is a path in the image, and a bare name is looked up in
    /// `PATH`.
    ///
    /// # Errors
    ///
    /// `Input` if there is no program, if a word has a zero byte, or if all of it is too long.
    pub fn new(command: Vec<OsString>) -> Result<Self> {
        let entry = Self {
            command,
            in_root: false,
            directory: None,
            variables: Vec::new(),
        };
        entry.checked()
    }

    /// The same, with the image as the program's root directory or not.
    #[must_use]
    pub fn root(mut self, yes: bool) -> Self {
        self.in_root = yes;
        self
    }

    /// The same, with the program started in this directory of the image. An absolute path is taken as it is.
    ///
    /// # Errors
    ///
    /// `Input` if it is empty, has a zero byte or is too long.
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Result<Self> {
        self.directory = Some(directory.into());
        self.checked()
    }

    /// The same, with this variable in the program's environment, whatever the caller's environment has.
    ///
    /// # Errors
    ///
    /// `Input` if the entry has a variable of that name, or if no variable can have this name or value.
    pub fn variable(
        mut self,
        name: impl Into<OsString>,
        value: impl Into<OsString>,
    ) -> Result<Self> {
        self.variables.push((name.into(), value.into()));
        self.checked()
    }

    /// The program and its arguments. There is at least one word.
    pub fn command(&self) -> &[OsString] {
        &self.command
    }

    /// Whether the image is the program's root directory.
    pub fn is_in_root(&self) -> bool {
        self.in_root
    }

    /// The directory that the program is started in, from the root of the image. None for that of the caller.
    pub fn start_directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    /// What is set in the program's environment: names and values.
    pub fn variables(&self) -> &[(OsString, OsString)] {
        &self.variables
    }

    fn checked(self) -> Result<Self> {
        match self.fault() {
            None => Ok(self),
            Some(fault) => Err(Error::input(fault.to_string())),
        }
    }

    /// What is wrong with it, if anything is.
    fn fault(&self) -> Option<Fault> {
        if self
            .command
            .first()
            .is_none_or(|program| program.is_empty())
        {
            return Some(Fault::NoProgram);
        }
        let words = self.command.iter().map(|word| ("a word", word.as_os_str()));
        let directory = self.directory.as_deref().map(Path::as_os_str);
        let names = self.variables.iter().flat_map(|(name, value)| {
            [
                ("a variable", name.as_os_str()),
                ("a variable", value.as_os_str()),
            ]
        });
        let mut parts = words
            .chain(directory.map(|directory| ("the directory", directory)))
            .chain(names)
            .map(|(part, text)| (part, names::to_bytes(text)));
        if let Some((part, found)) = parts.find(|(_, bytes)| bytes.contains(&0)) {
            let found = found.into_owned();
            return Some(Fault::Zero { part, found });
        }
        if let Some(len) = directory.map(|directory| names::to_bytes(directory).len())
            && !(1..PATH_MAX).contains(&len)
        {
            return Some(Fault::Directory { len });
        }
        // As long as all of it may be, there are few of them.
        let len = self.encode().len();
        if len > MOST_ENTRY {
            return Some(Fault::Long { len });
        }
        let mut known = std::collections::HashSet::new();
        for (name, value) in &self.variables {
            let name = names::to_bytes(name);
            if name.is_empty() || name.contains(&b'=') || name.starts_with(OWN) {
                let found = [name, names::to_bytes(value)].join(&b'=');
                return Some(Fault::Name { found });
            }
            if let Some(name) = known.replace(name) {
                let name = name.into_owned();
                return Some(Fault::Twice { name });
            }
        }
        None
    }

    /// The contents of its section.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut record = |parts: &[&[u8]]| {
            parts.iter().for_each(|part| bytes.extend_from_slice(part));
            bytes.push(0);
        };
        if self.in_root {
            record(&[ROOT]);
        }
        if let Some(directory) = &self.directory {
            record(&[DIRECTORY, &names::to_bytes(directory.as_os_str())]);
        }
        for (name, value) in &self.variables {
            record(&[
                VARIABLE,
                &names::to_bytes(name),
                b"=",
                &names::to_bytes(value),
            ]);
        }
        for word in &self.command {
            record(&[WORD, &names::to_bytes(word)]);
        }
        bytes
    }

    /// The entry in the contents of a section, which start at byte `start` of the image.
    pub(crate) fn parse(bytes: &[u8], start: u64) -> Result<Self> {
        let parsed = Self::parse_records(bytes);
        let checked = parsed.and_then(|entry| match entry.fault() {
            None => Ok(entry),
            Some(fault) => Err(fault),
        });
        checked.map_err(|fault| {
            let reason = fault.to_string();
            Error::corrupt(Location::Byte(start), Corrupt::Text { reason })
        })
    }

    fn parse_records(bytes: &[u8]) -> Result<Self, Fault> {
        // Memory is bounded before anything is kept.
        if bytes.len() > MOST_ENTRY {
            return Err(Fault::Long { len: bytes.len() });
        }
        let mut entry = Self {
            command: Vec::new(),
            in_root: false,
            directory: None,
            variables: Vec::new(),
        };
        let records = match bytes.split_last() {
            None => return Ok(entry),
            Some((0, records)) => records,
            Some(_) => return Err(Fault::Unfinished),
        };
        let owned = |bytes: &[u8]| names::from_bytes(bytes);
        for (number, record) in (1..).zip(records.split(|byte| *byte == 0)) {
            let wrong = || Fault::Record {
                number,
                found: record.to_vec(),
            };
            if let Some(word) = record.strip_prefix(WORD) {
                entry.command.push(owned(word));
            } else if !entry.command.is_empty() {
                return Err(wrong());
            } else if let Some(variable) = record.strip_prefix(VARIABLE) {
                let Some(at) = variable.iter().position(|byte| *byte == b'=') else {
                    let found = variable.to_vec();
                    return Err(Fault::Name { found });
                };
                let (name, value) = variable.split_at(at);
                let value = value.strip_prefix(b"=").unwrap_or(value);
                entry.variables.push((owned(name), owned(value)));
            } else if !entry.variables.is_empty() || entry.directory.is_some() {
                return Err(wrong());
            } else if let Some(directory) = record.strip_prefix(DIRECTORY) {
                entry.directory = Some(owned(directory).into());
            } else if record == ROOT && !entry.in_root {
                entry.in_root = true;
            } else {
                return Err(wrong());
            }
        }
        Ok(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn an_entry_has_one_form() {
        let small = EntryPoint::new(words(&["bin/app"])).unwrap();
        assert_eq!(small.encode(), b"word=bin/app\0");
        let odd = names::from_bytes([0xff, b'\n', b'=']);
        let large = EntryPoint::new(vec!["app".into(), "".into(), odd])
            .and_then(|entry| entry.root(true).directory("share"))
            .and_then(|entry| entry.variable("A", "b=c"))
            .and_then(|entry| entry.variable("EMPTY", ""))
            .unwrap();
        assert_eq!(
            large.encode(),
            b"root\0directory=share\0variable=A=b=c\0variable=EMPTY=\0word=app\0word=\0word=\xff\n=\0"
        );
        for entry in [small, large] {
            assert_eq!(EntryPoint::parse(&entry.encode(), 0).unwrap(), entry);
        }
    }

    #[test]
    fn each_fault_of_a_section_says_what_is_allowed() {
        let long = [b"word=a\0word=".to_vec(), vec![b'a'; MOST_ENTRY], vec![0]].concat();
        let directory = [
            b"directory=".to_vec(),
            vec![b'a'; 4096],
            b"\0word=a\0".to_vec(),
        ]
        .concat();
        let order = "allowed are root, directory=, variable= and word=, in this order";
        let no_program = "the entry has no program, allowed is a program and its arguments";
        let name = "allowed is NAME=VALUE with a name that does not begin with BRISK_";
        for (bytes, message) in [
            (&b""[..], no_program.to_owned()),
            (b"root\0", no_program.to_owned()),
            (b"word=\0word=a\0", no_program.to_owned()),
            (b"\0", format!("record 1 of the entry is \"\", {order}")),
            (
                b"word=a",
                "the entry ends within a record, allowed is a zero byte behind each".to_owned(),
            ),
            (
                b"word=a\0bind=/:/x\0",
                format!("record 2 of the entry is \"bind=/:/x\", {order}"),
            ),
            (
                b"root\0root\0word=a\0",
                format!("record 2 of the entry is \"root\", {order}"),
            ),
            (
                b"directory=a\0root\0word=a\0",
                format!("record 2 of the entry is \"root\", {order}"),
            ),
            (
                b"directory=a\0directory=b\0word=a\0",
                format!("record 2 of the entry is \"directory=b\", {order}"),
            ),
            (
                b"word=a\0variable=A=b\0",
                format!("record 2 of the entry is \"variable=A=b\", {order}"),
            ),
            (
                b"directory=\0word=a\0",
                "the directory of the entry has 0 bytes, allowed are 1 to 4095".to_owned(),
            ),
            (
                &directory,
                "the directory of the entry has 4096 bytes, allowed are 1 to 4095".to_owned(),
            ),
            (
                b"variable=A\0word=a\0",
                format!("a variable of the entry is \"A\", {name}"),
            ),
            (
                b"variable==b\0word=a\0",
                format!("a variable of the entry is \"=b\", {name}"),
            ),
            (
                b"variable=BRISK_TREE=/\0word=a\0",
                format!("a variable of the entry is \"BRISK_TREE=/\", {name}"),
            ),
            (
                b"variable=A=b\0variable=A=c\0word=a\0",
                "the entry sets the variable \"A\" a second time, allowed is once".to_owned(),
            ),
            (
                &long,
                format!("the entry takes {} bytes, allowed are 65536", long.len()),
            ),
            (
                b"\x1b[2J\0word=a\0",
                format!("record 1 of the entry is \"\\x1b[2J\", {order}"),
            ),
        ] {
            let error = EntryPoint::parse(bytes, 4160).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("corrupt image at byte 4160: {message}")
            );
        }
    }

    #[test]
    fn what_no_section_can_hold_is_refused_before() {
        let message = |entry: Result<EntryPoint>| entry.unwrap_err().to_string();
        assert_eq!(
            message(EntryPoint::new(words(&["a\0b"]))),
            "a word of the entry is \"a\\x00b\", allowed is a text without a zero byte"
        );
        let app = || EntryPoint::new(words(&["app"])).unwrap();
        assert_eq!(
            message(app().variable("A=B", "c")),
            "a variable of the entry is \"A=B=c\", allowed is NAME=VALUE with a name that does not begin with BRISK_"
        );
        assert_eq!(
            message(app().directory("")),
            "the directory of the entry has 0 bytes, allowed are 1 to 4095"
        );
        assert_eq!(
            message(EntryPoint::new(vec!["a".repeat(MOST_ENTRY).into()])),
            "the entry takes 65542 bytes, allowed are 65536"
        );
    }
}
