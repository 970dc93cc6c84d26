//! The same files in other tools: `fio` reads them, and `fincore` says what is in memory.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use brisk_io::{Residency, Strategy, residency};
use brisk_terminal::names::printable;
use serde::{Deserialize, Serialize};

use super::super::cells::{columns, megabytes};
use super::super::statistics::Spread;
use super::case::{LeftOut, State, Way};

/// Bytes of one read, as in brisk.
const BLOCK: &str = "1M";

/// The results of other tools.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Peers {
    pub compared: Vec<Compared>,
    pub counted: Vec<Counted>,
    pub missing: Vec<LeftOut>,
}

/// How long `fio` takes to read a file once, from its first byte to its last.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Compared {
    pub bytes: u64,
    pub state: State,
    /// The arguments of `fio` besides the file.
    pub engine: Vec<String>,
    pub seconds: Vec<f64>,
    /// The way of brisk that is most like it, and the median of the time until it has touched the last page.
    pub ours: Way,
    pub ours_seconds: Option<f64>,
}

/// Pages of a file in memory, as `fincore` and as brisk count them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Counted {
    pub bytes: u64,
    pub state: State,
    pub by_fincore: u64,
    pub by_brisk: u64,
}

/// The arguments of `fio`, and the strategy that is like them.
const ENGINES: [(&[&str], Strategy); 5] = [
    (&["--ioengine=pvsync2"], Strategy::Read),
    (&["--ioengine=pvsync2", "--nowait=1"], Strategy::Read),
    (&["--ioengine=mmap"], Strategy::SharedMap),
    (&["--ioengine=io_uring", "--iodepth=32"], Strategy::Uring),
    (
        &["--ioengine=io_uring", "--iodepth=32", "--direct=1"],
        Strategy::UringDirect,
    ),
];

/// The engines for a file in this state. An engine that does not wait reads nothing from the disk, so it is
/// left out for cold files.
pub fn engines(state: State) -> impl Iterator<Item = (&'static [&'static str], Way)> {
    let all = ENGINES.iter();
    let fit =
        all.filter(move |(engine, _)| state == State::Warm || !engine.contains(&"--nowait=1"));
    fit.map(|(engine, strategy)| (*engine, Way::As(*strategy)))
}

/// Why a tool cannot be used, if it is not installed.
pub fn missing(tool: &str) -> Option<LeftOut> {
    let found = Command::new(tool)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let reason = match found.err()? {
        e if e.kind() == io::ErrorKind::NotFound => format!("{tool} is not installed"),
        // One reason for another error: a directory of PATH cannot be searched.
        e => format!("{tool} cannot be started: {e}"),
    };
    Some(LeftOut {
        what: format!("comparison with {tool}"),
        reason,
    })
}

/// The arguments with which `fio` reads a file of this many bytes from the first to the last.
pub fn words(bytes: u64, engine: &[&str]) -> Vec<String> {
    let mut words = vec![
        "--rw=read".to_owned(),
        format!("--bs={BLOCK}"),
        format!("--size={bytes}"),
    ];
    words.extend(engine.iter().map(|word| (*word).to_owned()));
    words
}

/// Seconds that `fio`, with these arguments, takes to read `bytes` of `file`. It gives the kernel no advice,
/// as brisk gives none here.
pub fn fio(file: &Path, words: &[String], bytes: u64) -> Result<f64> {
    let mut name = std::ffi::OsString::from("--filename=");
    name.push(file);
    let output = Command::new("fio")
        .args([
            "--name=load",
            "--readonly",
            "--invalidate=0",
            "--fadvise_hint=0",
            "--output-format=json",
        ])
        .arg(name)
        .args(words)
        .stdin(Stdio::null())
        .output()
        .context("cannot start fio")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "fio {}: {}",
        words.join(" "),
        said.trim()
    );
    seconds_of(&output.stdout, bytes).with_context(|| format!("fio {}", words.join(" ")))
}

/// The time that `fio` printed. For reads one after another it is exact to the nanosecond, for several at
/// once to the millisecond.
fn seconds_of(printed: &[u8], bytes: u64) -> Result<f64> {
    // Warnings may come before it.
    let start = printed.iter().position(|byte| *byte == b'{').unwrap_or(0);
    let all: serde_json::Value = serde_json::from_slice(&printed[start..])?;
    let job = &all["jobs"][0];
    let number = |field: &serde_json::Value| field.as_f64().context("a number is missing");
    ensure!(job["error"] == 0, "it ended with error {}", job["error"]);
    let read = &job["read"];
    ensure!(
        read["io_bytes"] == bytes,
        "it read {} bytes, and not {bytes}",
        read["io_bytes"]
    );
    if job["job options"]["iodepth"].is_null() {
        return Ok(number(&read["lat_ns"]["mean"])? * number(&read["total_ios"])? / 1e9);
    }
    Ok(number(&read["runtime"])? / 1e3)
}

/// Counts the pages of a file that are in memory.
pub fn count(path: &Path, bytes: u64, state: State) -> Result<Counted> {
    let output = Command::new("fincore")
        .args(["--raw", "--noheadings", "--output", "PAGES"])
        .arg(path)
        .output()
        .context("cannot start fincore")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let by_fincore = text.trim().parse().ok().with_context(|| {
        format!(
            "fincore: found {:?}, allowed is a number of pages",
            printable(text.trim())
        )
    })?;
    let Residency::Pages { resident, .. } = residency(&File::open(path)?)? else {
        anyhow::bail!(
            "the kernel does not say which pages of {} are in memory",
            path.display()
        );
    };
    Ok(Counted {
        bytes,
        state,
        by_fincore,
        by_brisk: resident,
    })
}

impl Peers {
    /// Both tables; empty if there are no results.
    pub fn text(&self) -> String {
        let mut text = String::new();
        if !self.compared.is_empty() {
            text += "\nBeside fio\n";
            text += NOTE;
            text.push('\n');
            let mut lines = vec![HEAD.map(str::to_owned)];
            lines.extend(self.compared.iter().map(Compared::cells));
            text += &columns(&lines);
        }
        for counted in &self.counted {
            text += &(counted.words() + "\n");
        }
        for missing in &self.missing {
            text += &format!("\n{}: {}\n", missing.what, missing.reason);
        }
        text
    }
}

/// What readers must know about [`Compared`].
pub const NOTE: &str = "Time to the last byte, without the end of the process. fio reads 1 MiB at once into \
    one buffer, with one thread, also from a mapping. brisk touches a mapping in place, and read uses a thread \
    for each processor.";

/// The heads of the columns of [`Compared::cells`].
pub const HEAD: [&str; 5] = ["", "fio ms (from-to)", "ours", "ms", "ours/fio"];

impl Compared {
    /// The cells of its row.
    pub fn cells(&self) -> [String; 5] {
        let state = match self.state {
            State::Cold => "cold",
            State::Warm => "warm",
        };
        let name = self.engine.join(" ").replace("--", "");
        let spread = Spread::of(&self.seconds);
        let ours = self.ours_seconds;
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        [
            format!("{} MB {state}, {name}", megabytes(self.bytes)),
            or_none(spread.map(|Spread { median, min, max }| {
                format!("{:.2} ({:.2}-{:.2})", median * 1e3, min * 1e3, max * 1e3)
            })),
            self.ours.to_string(),
            or_none(ours.map(|seconds| format!("{:.2}", seconds * 1e3))),
            or_none(
                ours.zip(spread)
                    .map(|(ours, theirs)| format!("{:.2}", ours / theirs.median)),
            ),
        ]
    }
}

impl Counted {
    /// The result in words.
    pub fn words(&self) -> String {
        let state = match self.state {
            State::Cold => "made cold",
            State::Warm => "made warm",
        };
        let (ours, theirs) = (self.by_brisk, self.by_fincore);
        let same = match ours == theirs {
            true => format!("fincore and brisk count {ours} pages in memory"),
            false => format!("fincore counts {theirs} pages in memory, and brisk {ours}"),
        };
        format!("Of {} MB {state}, {same}.", megabytes(self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_fio_are_as_exact_as_they_can_be() {
        let one = br#"warning: {"jobs": [{"error": 0, "job options": {"bs": "1M"}, "read":
            {"lat_ns": {"mean": 1500000.0}, "total_ios": 25, "io_bytes": 7, "runtime": 38}}]}"#;
        assert_eq!(seconds_of(one, 7).unwrap(), 0.0375);
        let deep = br#"{"jobs": [{"error": 0, "job options": {"iodepth": "32"}, "read":
            {"lat_ns": {"mean": 1500000.0}, "total_ios": 25, "io_bytes": 7, "runtime": 38}}]}"#;
        assert_eq!(seconds_of(deep, 7).unwrap(), 0.038);
        for (text, expected) in [
            (r#"{"jobs": [{"error": 5}]}"#, "it ended with error 5"),
            (
                r#"{"jobs": [{"error": 0, "job options": {}, "read": {"io_bytes": 7}}]}"#,
                "a number is missing",
            ),
            (
                r#"{"jobs": [{"error": 0, "job options": {}, "read": {"io_bytes": 6}}]}"#,
                "it read 6 bytes, and not 7",
            ),
        ] {
            assert_eq!(
                seconds_of(text.as_bytes(), 7).unwrap_err().to_string(),
                expected
            );
        }
    }

    #[test]
    fn a_tool_that_is_missing_is_said() {
        assert_eq!(missing("sh"), None);
        let reason = missing("no-such-tool").unwrap().reason;
        assert_eq!(reason, "no-such-tool is not installed");
    }
}
