//! A line for each request.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::Context;
use brisk_terminal::names::printable;
use http::{Method, StatusCode, Uri};

/// Where lines go. It has no credentials: fields of requests are not written, and of queries the names alone.
#[derive(Debug)]
pub struct AccessLog {
    out: Out,
}

#[derive(Debug)]
enum Out {
    Stdout,
    File(Mutex<File>),
    Nowhere,
}

/// What is written of a request.
#[derive(Debug)]
pub struct Entry<'a> {
    /// Who asked.
    pub peer: IpAddr,
    /// How.
    pub method: &'a Method,
    /// For what.
    pub target: &'a Uri,
    /// What the client got.
    pub status: StatusCode,
    /// How many bytes of a body it got.
    pub bytes: u64,
    /// Whether that was the whole body.
    pub whole: bool,
    /// From the end of the request's head to the end of the answer.
    pub time: Duration,
    /// `Cache-Status` of the answer, or why there is none.
    pub cache_status: &'a str,
}

impl AccessLog {
    /// A log in a file, on stdout for `-`, or nowhere.
    pub fn open(path: Option<&Path>) -> anyhow::Result<Self> {
        let out = match path {
            None => Out::Nowhere,
            Some(path) if path == Path::new("-") => Out::Stdout,
            Some(path) => {
                let mut options = OpenOptions::new();
                // Several workers write. Lines stay whole, since each is appended by one call.
                let file = options.append(true).create(true).mode(0o600).open(path);
                let file =
                    file.with_context(|| format!("{}: cannot open the log", path.display()))?;
                Out::File(Mutex::new(file))
            }
        };
        Ok(Self { out })
    }

    /// Whether lines go nowhere.
    pub fn is_off(&self) -> bool {
        matches!(self.out, Out::Nowhere)
    }

    /// Writes a line. If that fails, requests are answered all the same.
    pub fn write(&self, entry: &Entry<'_>) {
        if self.is_off() {
            return;
        }
        let line = line(entry, SystemTime::now());
        match &self.out {
            Out::Stdout => io::stdout().lock().write_all(line.as_bytes()).ok(),
            Out::File(file) => {
                let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
                file.write_all(line.as_bytes()).ok()
            }
            Out::Nowhere => None,
        };
    }
}

fn line(entry: &Entry<'_>, now: SystemTime) -> String {
    let time = jiff::Timestamp::try_from(now).unwrap_or_default();
    let text = format!(
        "{time:.3} {} \"{} {}\" {} {}{} {:.3}s {}",
        entry.peer.to_canonical(),
        entry.method,
        shown(entry.target),
        entry.status.as_u16(),
        entry.bytes,
        match entry.whole {
            true => "",
            false => "+",
        },
        entry.time.as_secs_f64(),
        match entry.cache_status {
            "" => "-",
            status => status,
        },
    );
    let mut line = printable(&text).into_owned();
    line.push('\n');
    line
}

/// The path and the names of the query. Its values may be tokens.
pub fn shown(target: &Uri) -> String {
    let mut text = target.path().to_owned();
    for (at, pair) in target
        .query()
        .into_iter()
        .flat_map(|q| q.split('&'))
        .enumerate()
    {
        text.push(match at {
            0 => '?',
            _ => '&',
        });
        match pair.split_once('=') {
            Some((name, _)) => text.push_str(&format!("{name}=*")),
            // A token may stand alone.
            None => text.push('*'),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_no_value_of_a_query() {
        let target: Uri = "/a%20b/c?token=secret&x&y=".parse().unwrap();
        let entry = Entry {
            peer: "::ffff:127.0.0.1".parse().unwrap(),
            method: &Method::GET,
            target: &target,
            status: StatusCode::OK,
            bytes: 12,
            whole: true,
            time: Duration::from_micros(1500),
            cache_status: "brisk; hit; ttl=60",
        };
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_250);
        assert_eq!(
            line(&entry, now),
            "2023-11-14T22:13:20.250Z 127.0.0.1 \"GET /a%20b/c?token=*&*&y=*\" 200 12 0.002s brisk; hit; ttl=60\n"
        );
        let entry = Entry {
            whole: false,
            cache_status: "",
            ..entry
        };
        assert!(line(&entry, now).ends_with("200 12+ 0.002s -\n"));
    }
}
