//! What a tracer reports to the process that started it, through a pipe: one line, and then the text of the
//! profile or of the failure.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use brisk_image::Limits;
use brisk_image::profile::Profile;
use brisk_launch::error::{Advice, Cause, Error, ErrorKind, with_reasons};
use brisk_launch::system_trace::system::tracer_lost;

use super::traced::Traced;

/// The start of the line.
const TRACED: &str = "traced";
const FAILED: &str = "failed";

/// Stands for a missing status.
const NONE: &str = "-";

/// Stands for no advice.
const NO_ADVICE: u8 = u8::MAX;

/// The pipe.
pub(super) struct TracerMessage;

/// The report of a failed tracer.
pub(super) struct Failure {
    pub(super) kind: ErrorKind,
    text: String,
    advice: Option<Advice>,
}

impl Failure {
    /// The failure, with its causes.
    pub(super) fn new(error: &Error) -> Self {
        Self {
            kind: error.kind(),
            text: with_reasons(error),
            advice: error.advice(),
        }
    }

    /// The failure as bytes, for a pipe.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![self.kind.to_wire(), self.advice()];
        bytes.extend_from_slice(self.text.as_bytes());
        bytes
    }

    /// As a number.
    fn advice(&self) -> u8 {
        self.advice.map_or(NO_ADVICE, Advice::to_wire)
    }

    /// None if there was no failure.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let ([kind, advice], text) = bytes.split_first_chunk()?;
        Some(Self {
            kind: ErrorKind::from_wire(*kind).unwrap_or(ErrorKind::Io),
            advice: Advice::from_wire(*advice),
            text: String::from_utf8_lossy(text).into_owned(),
        })
    }
}

impl TracerMessage {
    pub(super) fn write(to: OwnedFd, result: &Result<Traced, Failure>) -> io::Result<()> {
        let mut to = BufWriter::new(File::from(to));
        match result {
            Err(failure) => {
                let (kind, advice) = (failure.kind.to_wire(), failure.advice());
                write!(to, "{FAILED} {kind} {advice}\n{}", failure.text)?;
            }
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
        let (line, text) = bytes.split_at(end.ok_or_else(tracer_lost)?);
        let line = std::str::from_utf8(line).map_err(|_| tracer_lost())?;
        let text = text.get(1..).ok_or_else(tracer_lost)?;
        let fields: Vec<_> = line.split(' ').collect();
        match *fields {
            [FAILED, kind, advice] => Err(Cause::told(
                ErrorKind::from_wire(number(kind)?).ok_or_else(tracer_lost)?,
                String::from_utf8_lossy(text).into_owned(),
                Advice::from_wire(number(advice)?),
            )),
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
            _ => Err(tracer_lost()),
        }
    }
}

fn number<T: std::str::FromStr>(field: &str) -> Result<T, Cause> {
    field.parse().map_err(|_| tracer_lost())
}
