//! What a tracer reports to the process that started it, through a pipe: one line, and then the text of the
//! profile or of the failure.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use brisk_image::Limits;
use brisk_image::profile::Profile;

use super::traced::Traced;
use crate::error::{Cause, Error, ErrorKind};

/// The start of the line.
const TRACED: &str = "traced";
const FAILED: &str = "failed";

/// Stands for a missing status.
const NONE: &str = "-";

/// The pipe.
pub(super) struct TracerMessage;

/// The report of a failed tracer.
pub(super) struct Failure {
    pub(super) kind: ErrorKind,
    pub(super) text: String,
}

impl Failure {
    /// The failure, with its causes.
    pub(super) fn new(error: &Error) -> Self {
        let mut text = error.to_string();
        let mut cause = std::error::Error::source(error);
        while let Some(error) = cause {
            text += &format!(": {error}");
            cause = error.source();
        }
        Self {
            kind: error.kind(),
            text,
        }
    }

    /// The failure as bytes, for a pipe.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![self.kind.to_wire()];
        bytes.extend_from_slice(self.text.as_bytes());
        bytes
    }

    /// None if there was no failure.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (kind, text) = bytes.split_first()?;
        Some(Self {
            kind: ErrorKind::from_wire(*kind).unwrap_or(ErrorKind::Io),
            text: String::from_utf8_lossy(text).into_owned(),
        })
    }
}

impl TracerMessage {
    pub(super) fn write(to: OwnedFd, result: &Result<Traced, Failure>) -> io::Result<()> {
        let mut to = BufWriter::new(File::from(to));
        match result {
            Err(Failure { kind, text }) => write!(to, "{FAILED} {}\n{text}", kind.to_wire())?,
            Ok(traced) => {
                let status = traced
                    .status
                    .map_or(NONE.to_owned(), |status| status.into_raw().to_string());
                let Traced {
                    was_ready,
                    left,
                    unnamed,
                    dropped,
                    written,
                    outside,
                    ..
                } = traced;
                writeln!(
                    to,
                    "{TRACED} {was_ready} {status} {left} {unnamed} {dropped} {written} {outside}"
                )?;
                to.write_all(&traced.profile.to_text())?;
            }
        }
        to.flush()
    }

    pub(super) fn parse(bytes: &[u8]) -> Result<Traced, Cause> {
        let end = bytes.iter().position(|&b| b == b'\n');
        let (line, text) = bytes.split_at(end.ok_or(Cause::TracerLost)?);
        let line = std::str::from_utf8(line).map_err(|_| Cause::TracerLost)?;
        let text = text.get(1..).ok_or(Cause::TracerLost)?;
        let fields: Vec<_> = line.split(' ').collect();
        match *fields {
            [FAILED, kind] => Err(Cause::Told {
                kind: ErrorKind::from_wire(number(kind)?).ok_or(Cause::TracerLost)?,
                text: String::from_utf8_lossy(text).into_owned(),
            }),
            [
                TRACED,
                was_ready,
                status,
                left,
                unnamed,
                dropped,
                written,
                outside,
            ] => Ok(Traced {
                profile: Profile::from_text(text, &Limits::of_profiles())
                    .map_err(|e| Cause::io("read what was recorded", io::Error::other(e)))?,
                sources: Vec::new(),
                was_ready: number(was_ready)?,
                status: match status {
                    NONE => None,
                    raw => Some(ExitStatus::from_raw(number(raw)?)),
                },
                left: number(left)?,
                unnamed: number(unnamed)?,
                dropped: number(dropped)?,
                written: number(written)?,
                outside: number(outside)?,
            }),
            _ => Err(Cause::TracerLost),
        }
    }
}

fn number<T: std::str::FromStr>(field: &str) -> Result<T, Cause> {
    field.parse().map_err(|_| Cause::TracerLost)
}
