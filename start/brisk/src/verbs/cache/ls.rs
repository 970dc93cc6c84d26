use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use brisk_cache::Entry;
use brisk_terminal::answer::Answer;
use brisk_terminal::messages::{count, warn};
use brisk_terminal::names::shown;
use jiff::Timestamp;
use serde::Serialize;

use super::directory_arg::DirectoryArg;
use super::key::{json_key, shown_key};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
brisk prints a line for each key, sorted by bytes. To sort them, it keeps all keys in memory; --unsorted prints each key \
when it is read. Entries whose slots or records are damaged have no key to print: brisk says how many there are, and \
brisk cache verify names them.")]
pub(super) struct Args {
    #[command(flatten)]
    cache: DirectoryArg,

    /// Lists only the entries of this bucket.
    #[arg(long, value_name = "N")]
    bucket: Option<u16>,

    /// Shows bytes of the value, bucket, time of the last noted use in UTC, fingerprint, and key.
    #[arg(short, long)]
    long: bool,

    /// Prints the entries in no order, each as soon as it is read.
    #[arg(long)]
    unsorted: bool,

    /// Prints one JSON object for each entry. If a key is not UTF-8, key_hex has its bytes in hexadecimal.
    #[arg(long, conflicts_with = "long")]
    json: bool,
}

/// How many bytes to collect before writing them.
const BUFFER: usize = 64 << 10;

pub(super) fn run(args: &Args) -> anyhow::Result<Answer> {
    let inspection = super::directory_arg::open(&args.cache.directory)?;
    if let Some(damage) = inspection.index_damage() {
        warn(&format!(
            "{}: no entry can be found, because of {damage}",
            shown(&args.cache.directory)
        ));
    }
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
    };
    let wanted = |entry: &Entry| args.bucket.is_none_or(|bucket| bucket == entry.bucket);
    let left_out = if args.unsorted {
        inspection.each_entry(|entry| match wanted(&entry) {
            true => lister.entry(&entry),
            false => Ok(()),
        })?
    } else {
        let mut entries = Vec::new();
        let left_out = inspection.each_entry(|entry| {
            if wanted(&entry) {
                entries.push(entry);
            }
            Ok(())
        })?;
        entries.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        for entry in &entries {
            lister.entry(entry)?;
        }
        left_out
    };
    lister.flush()?;
    if left_out > 0 {
        warn(&format!(
            "{}: left out {}, damaged or just replaced; brisk cache verify names the damage",
            shown(&args.cache.directory),
            count(left_out, "entry", "entries")
        ));
    }
    Ok(Answer::Yes)
}

#[derive(Debug, Clone, Copy)]
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
    /// Whether to escape keys for a terminal.
    escape: bool,
}

impl<W: Write> Lister<W> {
    fn entry(&mut self, entry: &Entry) -> io::Result<()> {
        match self.style {
            Style::Plain => self.key(&entry.key),
            Style::Long => {
                let Entry {
                    len,
                    bucket,
                    fingerprint,
                    ..
                } = entry;
                let used = minute(entry.used);
                write!(
                    self.buffer,
                    "{len:>13} {bucket:>3} {used} {fingerprint:016x} "
                )?;
                self.key(&entry.key);
            }
            Style::Json => serde_json::to_writer(&mut self.buffer, &EntryJson::of(entry))?,
        }
        self.buffer.push(b'\n');
        if self.buffer.len() >= BUFFER {
            self.flush()?;
        }
        Ok(())
    }

    fn key(&mut self, key: &[u8]) {
        match self.escape {
            true => self.buffer.extend_from_slice(shown_key(key).as_bytes()),
            false => self.buffer.extend_from_slice(key),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        self.out.flush()
    }
}

/// `YYYY-MM-DD HH:MM` in UTC. A damaged slot can name any minute, also after the end of the calendar.
pub(super) fn minute(time: SystemTime) -> String {
    match Timestamp::try_from(time) {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M").to_string(),
        Err(_) => "after 9999-12-31".to_owned(),
    }
}

pub(super) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// An entry, as `brisk cache ls --json` prints it on one line.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EntryJson<'a> {
    /// The key.
    key: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_hex: Option<String>,
    /// Size of the value.
    bytes: u64,
    /// Bucket, 0 to 255.
    bucket: u16,
    /// What the program called the layout of the value.
    fingerprint: String,
    /// When it was inserted, to the minute.
    written: u64,
    /// When a use was last noted, or when it was inserted.
    last_used: u64,
    /// Whether the value has a file of its own.
    own_file: bool,
}

impl<'a> EntryJson<'a> {
    fn of(entry: &'a Entry) -> Self {
        let (key, key_hex) = json_key(&entry.key);
        Self {
            key,
            key_hex,
            bytes: entry.len,
            bucket: entry.bucket,
            fingerprint: format!("{:016x}", entry.fingerprint),
            written: seconds(entry.written),
            last_used: seconds(entry.used),
            own_file: entry.alone,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn only_a_terminal_gets_keys_escaped() {
        let printed = |escape| {
            let mut lister = Lister {
                out: Vec::new(),
                buffer: Vec::new(),
                style: Style::Plain,
                escape,
            };
            lister.key(b"a\x1b[2J\xff");
            lister.flush().unwrap();
            lister.out
        };
        assert_eq!(printed(true), b"a\\u{1b}[2J\\xff");
        assert_eq!(printed(false), b"a\x1b[2J\xff");
    }

    #[test]
    fn every_minute_of_a_slot_is_shown() {
        let at = |minutes: u32| minute(UNIX_EPOCH + Duration::from_secs(60 * u64::from(minutes)));
        assert_eq!(at(0), "1970-01-01 00:00");
        assert_eq!(at(28_333_333), "2023-11-14 22:13");
        assert_eq!(at(u32::MAX), "after 9999-12-31");
    }
}
