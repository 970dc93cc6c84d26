//! When a launch counts as ready, in words.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use brisk_launch::Readiness;

/// Reads when a launch counts as ready, as the command line and the specs of the lab give it.
pub fn parse_readiness(text: OsString) -> anyhow::Result<Readiness> {
    let bytes = text.as_bytes();
    let split = bytes.iter().position(|&b| b == b':');
    let (kind, value) = match split {
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None => (bytes, &b""[..]),
    };
    let path = || PathBuf::from(OsStr::from_bytes(value));
    Ok(match (kind, value.is_empty()) {
        (b"exit", true) if split.is_none() => Readiness::Exit,
        (b"after", false) => {
            let seconds = std::str::from_utf8(value).ok().and_then(|s| s.parse().ok());
            let time = seconds.and_then(|s| Duration::try_from_secs_f64(s).ok());
            Readiness::After(time.context("allowed is a number of seconds, such as after:1.5")?)
        }
        (b"file", false) => Readiness::File(path()),
        (b"socket", false) => Readiness::Socket(path()),
        (b"line", false) if value.contains(&b'\n') => {
            bail!("allowed is a text without a line end")
        }
        (b"line", false) => Readiness::Line(OsString::from_vec(value.to_vec())),
        (b"window", true) if split.is_none() => Readiness::Window(None),
        (b"window", false) => Readiness::Window(Some(OsString::from_vec(value.to_vec()))),
        _ => bail!(
            "allowed are exit, after:SECONDS, file:PATH, socket:PATH, line:TEXT, window and window:TITLE"
        ),
    })
}
