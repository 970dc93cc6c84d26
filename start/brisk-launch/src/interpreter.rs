//! The program that runs another one: of a script, or the dynamic loader of an ELF program.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::error::Shown;
use crate::open::open_file;

/// How many bytes of a script's first line the kernel reads.
const LINE: usize = 256;

/// How many program headers are looked at. Linkers write a dozen.
const MOST_HEADERS: u16 = 64;

/// The longest path that the kernel accepts, with the zero behind it.
const MOST_PATH: u64 = 4096;

/// How many interpreters the kernel follows from a script to the next.
const MOST_SCRIPTS: usize = 5;

/// The interpreter that a file names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interpreter {
    /// In the words of the file.
    path: PathBuf,
    is_of_script: bool,
}

impl fmt::Display for Interpreter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = Shown(&self.path);
        match self.is_of_script {
            true => write!(
                f,
                "its first line names the interpreter {path}, which does not exist here; add it, or correct the line"
            ),
            false => write!(
                f,
                "it names the dynamic loader {path}, which does not exist here; add it, or use a program for this system"
            ),
        }
    }
}

/// The interpreter that keeps the program at `path` from starting because it does not exist. None if all exist, or if
/// the files cannot be read.
pub fn missing_interpreter(path: &Path) -> Option<Interpreter> {
    let mut program = path.to_owned();
    for _ in 0..MOST_SCRIPTS {
        let named = interpreter(&program)?;
        // The kernel looks for a relative path from the working directory.
        match named.path.try_exists() {
            Ok(true) => program = named.path,
            _ => return Some(named),
        }
    }
    None
}

fn interpreter(path: &Path) -> Option<Interpreter> {
    let file = open_file(path).ok()?;
    let mut start = [0; LINE];
    let read = file.read_at(&mut start, 0).ok()?;
    let start = start.get(..read)?;
    let (path, is_of_script) = match start.strip_prefix(b"#!") {
        Some(line) => (of_script(line)?, true),
        None => (of_elf(&file, start)?, false),
    };
    Some(Interpreter {
        path: OsString::from_vec(path).into(),
        is_of_script,
    })
}

/// The interpreter of a script, in the words of its first line. None if it is no script.
pub fn script_interpreter(file: &File) -> Option<PathBuf> {
    let mut start = [0; LINE];
    let read = file.read_at(&mut start, 0).ok()?;
    let line = start.get(..read)?.strip_prefix(b"#!")?;
    Some(OsString::from_vec(of_script(line)?).into())
}

/// The first word of a line.
fn of_script(line: &[u8]) -> Option<Vec<u8>> {
    let line = line.split(|byte| *byte == b'\n').next()?;
    let mut words = line.split(|byte| matches!(byte, b' ' | b'\t' | 0));
    words.find(|word| !word.is_empty()).map(<[u8]>::to_vec)
}

/// What the program header `PT_INTERP` names, of programs of 32 and 64 bits in this machine's order of bytes.
fn of_elf(file: &File, start: &[u8]) -> Option<Vec<u8>> {
    let start = start.strip_prefix(b"\x7fELF").and(Some(start))?;
    let is_wide = match start.get(4)? {
        1 => false,
        2 => true,
        _ => return None,
    };
    let (table, size, number) = match is_wide {
        true => (number(start, 32, 8)?, short(start, 54)?, short(start, 56)?),
        false => (number(start, 28, 4)?, short(start, 42)?, short(start, 44)?),
    };
    for index in 0..number.min(MOST_HEADERS) {
        let at = table.checked_add(u64::from(index).checked_mul(size.into())?)?;
        let mut header = [0; 56];
        let header = header.get_mut(..if is_wide { 56 } else { 32 })?;
        file.read_exact_at(header, at).ok()?;
        // PT_INTERP.
        if self::number(header, 0, 4)? != 3 {
            continue;
        }
        let (offset, len) = match is_wide {
            true => (self::number(header, 8, 8)?, self::number(header, 32, 8)?),
            false => (self::number(header, 4, 4)?, self::number(header, 16, 4)?),
        };
        let mut path = vec![0; usize::try_from(len.min(MOST_PATH)).ok()?];
        file.read_exact_at(&mut path, offset).ok()?;
        return path.split(|byte| *byte == 0).next().map(<[u8]>::to_vec);
    }
    None
}

/// The number in `width` bytes from byte `at` on.
fn number(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let field = bytes.get(at..at.checked_add(width)?)?;
    let mut whole = [0; 8];
    whole.get_mut(..width)?.copy_from_slice(field);
    Some(u64::from_le_bytes(whole))
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    u16::try_from(number(bytes, at, 2)?).ok()
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    /// Nobody writes into it.
    #[test]
    fn a_pipe_has_no_interpreter() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR, 0).expect("a pipe");
        assert_eq!(missing_interpreter(&path), None);
    }

    #[test]
    fn the_interpreter_that_is_missing_is_named() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let said = |name: &str, contents: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, contents).expect("a file");
            missing_interpreter(&path).map(|missing| missing.to_string())
        };
        let line = |path: &str| {
            let text = format!(
                "its first line names the interpreter {path}, which does not exist here; add it, or correct the line"
            );
            Some(text)
        };
        assert_eq!(said("a", b"#!/none/python -u\nx"), line("/none/python"));
        assert_eq!(said("b", b"#! \t/none/perl"), line("/none/perl"));
        assert_eq!(said("c", b"#!/bin/sh\r\necho"), line("\"/bin/sh\\r\""));
        assert_eq!(said("d", b"#!/bin/sh\n"), None);
        let script = dir.path().join("a");
        let nested = format!("#!{}\n", script.display());
        assert_eq!(said("e", nested.as_bytes()), line("/none/python"));
        for other in [
            &b""[..],
            b"#!",
            b"#!\n",
            b"text",
            b"\x7fELF",
            b"\x7fELF\x02",
        ] {
            assert_eq!(said("f", other), None, "{other:?}");
        }
        // The headers of a program of 64 bits with one program header, and one of 32 bits.
        let mut wide = vec![0; 64 + 56];
        wide[..5].copy_from_slice(b"\x7fELF\x02");
        (wide[32], wide[54], wide[56]) = (64, 56, 1);
        (wide[64], wide[72], wide[96]) = (3, 120, 9);
        wide.extend(b"/none/ld\0");
        let mut narrow = vec![0; 52 + 32];
        narrow[..5].copy_from_slice(b"\x7fELF\x01");
        (narrow[28], narrow[42], narrow[44]) = (52, 32, 1);
        (narrow[52], narrow[56], narrow[68]) = (3, 84, 9);
        narrow.extend(b"/none/ld\0");
        for program in [wide, narrow] {
            let expected = "it names the dynamic loader /none/ld, which does not exist here; add it, or use a program for \
                            this system";
            assert_eq!(said("g", &program), Some(expected.to_owned()));
            // Cut anywhere, it is read without a fault.
            for len in 0..program.len() {
                assert_eq!(said("g", &program[..len]), None, "{len}");
            }
        }
    }
}
