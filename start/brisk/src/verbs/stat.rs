//! `brisk stat`: the sessions of the calling user.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use brisk_bundle::entry::Entry;
use brisk_image::profile::PAGE;
use brisk_serve::{Confinement, FileState, ImageStatus, SessionStatus, sessions};
use brisk_terminal::answer::Answer;
use brisk_terminal::fields::Fields;
use brisk_terminal::messages::{count, moment, say, span};
use brisk_terminal::names::{printable, shown};
use indicatif::BinaryBytes;
use serde::Serialize;

use crate::image_args::open_image;
use crate::json;

/// Which sessions to look at.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A session is what the runs of an image by one user share (see brisk run). Exits with 1 if there is none.\n\n\
An image is marked as deleted if nothing has its name any more, and as replaced if another file has it, or if somebody has \
written to it since. Programs of the session still see the old image; later runs make a session of their own.\n\n\
With -v, limits names what a process of the session has given up: capabilities, system calls and files that it does not \
need. A guardian has given up no files, because it could not unmount then; it reads no image.")]
pub struct Args {
    /// The image, or the directory that it is mounted on. [default: all sessions of the user]
    path: Option<PathBuf>,

    /// Also prints the counters of each server, how long its answers took, and the limits of all processes.
    #[arg(short, long, conflicts_with = "json")]
    verbose: bool,

    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let mut found = sessions()?;
    if let Some(path) = &args.path {
        found.retain(|session| session.is_about(path));
    }
    if args.json {
        let found: Vec<_> = found.iter().map(SessionJson::of).collect();
        json::print(&found)?;
    } else {
        let mut out = BufWriter::new(io::stdout().lock());
        for session in &found {
            print(&mut out, session, args.verbose)?;
        }
        out.flush()?;
        match (&args.path, found.is_empty()) {
            (_, false) => {}
            (None, true) => say("there is no session; brisk run IMAGE -- CMD starts one"),
            (Some(path), true) => say(&format!(
                "there is no session of {}; brisk stat without a name lists all",
                shown(path)
            )),
        }
    }
    Ok(match found.is_empty() {
        true => Answer::No,
        false => Answer::Yes,
    })
}

fn print(out: &mut impl Write, session: &SessionStatus, verbose: bool) -> anyhow::Result<()> {
    let mut fields = Fields::new(out, 12);
    if session.guardian == 0 {
        fields.line(format_args!("{}: does not answer", session.key))?;
        return Ok(());
    }
    for image in &session.images {
        let mark = match image.state {
            Some(FileState::Replaced) => " (replaced)",
            Some(FileState::Deleted) => " (deleted)",
            Some(FileState::Same) | None => "",
        };
        let (path, place) = (shown(&image.path), shown(&image.place));
        fields.line(format_args!("{path}{mark} on {place}"))?;
        if let Some(entry) = entry_of(image) {
            fields.add("entry", entry)?;
        }
        let server = match image.server {
            Some(pid) => format!("process {pid}{}", restarted(image.restarts)),
            None => "none: programs get errors".to_owned(),
        };
        fields.add("server", server)?;
        fields.add("answered", answered(image))?;
        if let Some(filled) = filled(image) {
            fields.add("filled", filled)?;
        }
        if verbose {
            fields.add("limits", image.confinement)?;
            for (name, count) in &image.counts {
                let name = name.replace('_', " ");
                fields.line(format_args!("  {name:<18}{count}"))?;
            }
            for line in operation_lines(image) {
                fields.line(line)?;
            }
        }
    }
    if let Some(layer) = &session.layer {
        fields.add("written to", shown(layer))?;
    }
    fields.add("guardian", format_args!("process {}", session.guardian))?;
    if verbose {
        fields.add("limits", session.confinement)?;
    }
    if let Some(since) = session.since {
        fields.add("since", moment(since)?)?;
    }
    match (session.linger, session.left) {
        _ if session.ending => {
            fields.add(
                "ends",
                "with the last program that uses it; no run joins it",
            )?;
        }
        (Some(_), Some(left)) => fields.add(
            "ends",
            format_args!("in {}, unless a run joins it", span(left)),
        )?,
        (Some(Duration::ZERO), None) => fields.add("ends", "with its last program")?,
        (Some(linger), None) => {
            fields.add(
                "ends",
                format_args!("{} after its last program", span(linger)),
            )?;
        }
        (None, _) => fields.add("ends", "when it is unmounted")?,
    }
    if session.programs.is_empty() {
        fields.add("program", "none runs")?;
    }
    for (pid, name) in &session.programs {
        let command = command_of(*pid).unwrap_or_else(|| name.clone());
        fields.add("program", format_args!("{command} (process {pid})"))?;
    }
    Ok(())
}

/// How brisk run starts the image without a command. None if it cannot be read, has no entry, or is not there any more.
fn entry_of(image: &ImageStatus) -> Option<Entry> {
    if let Some(FileState::Replaced | FileState::Deleted) = image.state {
        return None;
    }
    let image = open_image(&image.path, None).ok()?;
    Entry::of(&image).ok()?.ok()
}

fn restarted(times: u32) -> String {
    match times {
        0 => String::new(),
        _ => format!(
            ", the {} that took the place of one that had ended",
            ordinal(times)
        ),
    }
}

fn ordinal(n: u32) -> String {
    let end = match (n % 100, n % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    format!("{n}{end}")
}

/// The counter of this name.
fn counter(image: &ImageStatus, name: &str) -> Option<u64> {
    let found = image.counts.iter().find(|(known, _)| known == name);
    found.map(|(_, count)| *count)
}

/// What the server has answered, in words.
fn answered(image: &ImageStatus) -> String {
    let number = |name| counter(image, name).unwrap_or(0);
    format!(
        "{}, with {} of files",
        count(number("requests"), "request", "requests"),
        BinaryBytes(number("bytes_read"))
    )
}

/// What a fill has done, in words. None if nothing is filled.
fn filled(image: &ImageStatus) -> Option<String> {
    let pack = counter(image, "fill_pack")?;
    let number = |name| counter(image, name).unwrap_or(0);
    let stored = number("fill_stored");
    let mut text = format!(
        "{stored} of {} of the hot pack ({})",
        count(pack, "page", "pages"),
        BinaryBytes(stored.saturating_mul(PAGE))
    );
    match (number("fill_over_us"), number("fill_last_us")) {
        (0, _) => text += ", and goes on",
        (_, 0) => {}
        (_, last) => text += &format!(", within {} ms of its start", last.div_ceil(1000)),
    }
    for (name, what) in [
        ("fill_late", "asked for before they were there"),
        ("fill_evicted", "asked for when they had left memory again"),
        ("fill_strayed", "asked for that are not in the pack"),
    ] {
        if number(name) > 0 {
            text += &format!("; {} {what}", number(name));
        }
    }
    if number("fill_damaged") > 0 {
        let frames = count(number("fill_damaged"), "frame", "frames");
        text += &format!("; {frames} of the pack damaged");
    }
    if number("fill_gave_up") > 0 {
        text += "; ended early";
    }
    if number("fill_refills") > 0 {
        text += &format!(
            "; {} stored again {}, after they had left memory",
            count(number("fill_refilled"), "page", "pages"),
            match number("fill_refills") {
                1 => "once".to_owned(),
                times => format!("in {times} times"),
            }
        );
    }
    Some(text)
}

/// The longest command that is shown, in characters.
const COMMAND: usize = 160;

/// The program and the arguments of a process. None if it has ended, or is another user's.
fn command_of(pid: i32) -> Option<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words = bytes
        .strip_suffix(b"\0")
        .unwrap_or(&bytes)
        .split(|byte| *byte == 0);
    let words: Vec<_> = words.map(|word| shown(OsStr::from_bytes(word))).collect();
    let command = words.join(" ");
    match command.char_indices().nth(COMMAND) {
        _ if command.is_empty() => None,
        Some((end, _)) => command.get(..end).map(|start| format!("{start} …")),
        None => Some(command),
    }
}

/// How often each operation was answered, and how long that took, under a heading.
pub fn operation_lines(image: &ImageStatus) -> Vec<String> {
    let mut lines = Vec::new();
    if !image.operations.is_empty() {
        let [p50, p90, p99] = ["p50 us", "p90 us", "p99 us"];
        let operation = "operation";
        lines.push(format!(
            "  {operation:<15}   answers{p50:>10}{p90:>10}{p99:>10}"
        ));
    }
    for operation in &image.operations {
        let [p50, p90, p99] = operation.times.map(micros);
        let (name, answers) = (printable(&operation.name), operation.answers);
        lines.push(format!(
            "  {name:<15}{answers:>10}{p50:>10}{p90:>10}{p99:>10}"
        ));
    }
    lines
}

/// Microseconds, with one decimal if they are few.
fn micros(nanos: u64) -> String {
    match nanos {
        0..10_000 => format!("{}.{}", nanos / 1000, nanos % 1000 / 100),
        _ => (nanos / 1000).to_string(),
    }
}

/// What a process has given up.
fn limits(in_force: Confinement) -> Vec<&'static str> {
    let limits = [
        ("capabilities", in_force.capabilities),
        ("calls", in_force.calls),
        ("files", in_force.files),
    ];
    let limits = limits.into_iter().filter(|(_, is_in_force)| *is_in_force);
    limits.map(|(name, _)| name).collect()
}

/// What is at the name of an image, for JSON.
fn word(state: FileState) -> &'static str {
    match state {
        FileState::Same => "same",
        FileState::Replaced => "replaced",
        FileState::Deleted => "deleted",
    }
}

/// A session, as `brisk stat --json` prints it in an array.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SessionJson<'a> {
    /// Name of the session among those of the user.
    key: &'a str,
    /// Whether its guardian answers; if not, only `key` has a meaning.
    answers: bool,
    /// Process number of the guardian.
    ///
    /// Null if it does not answer.
    guardian_pid: Option<i32>,
    /// What the guardian has given up: `capabilities`, those that it does not need, and it can get no others; `calls`, all
    /// system calls but those that it needs. It may open all files, because a process whose files are limited may not
    /// unmount.
    limits: Vec<&'static str>,
    /// When the session was made.
    ///
    /// Null if it does not answer.
    since: Option<u64>,
    /// Whether somebody has asked for its end (`umount`): no run joins it, and it ends with the last program that uses it;
    /// *added*.
    ending: bool,
    /// How many whole seconds it stays after its last program.
    ///
    /// Null if it stays until it is unmounted, or does not answer.
    linger_seconds: Option<u64>,
    /// How many whole seconds it still stays if nobody joins it.
    ///
    /// Null while programs run, and if `linger_seconds` is null.
    left_seconds: Option<u64>,
    /// The directory that keeps what programs write (`--writable=DIR`), by its name when the session was made.
    ///
    /// Null if there is none.
    layer: Option<Cow<'a, str>>,
    layer_hex: Option<String>,
    /// Its images.
    images: Vec<ImageJson<'a>>,
    /// The programs in the session. At most 256 are listed if brisk runs in other namespaces than the guardian.
    programs: Vec<ProgramJson<'a>>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ImageJson<'a> {
    /// The image, by its name when the session was made.
    path: Cow<'a, str>,
    path_hex: Option<String>,
    /// What is at `path` now: `same`, the image as it was when the session was made; `replaced`, another file, or the same
    /// one after somebody has written to it; `deleted`, nothing; *added*.
    ///
    /// Null if that cannot be known.
    state: Option<&'static str>,
    /// Where it is mounted in the session.
    place: Cow<'a, str>,
    place_hex: Option<String>,
    /// How `brisk run` starts the image if no program is named, for people.
    ///
    /// Null if it has no entry, or the image cannot be read, was replaced or was deleted.
    entry_text: Option<String>,
    /// Process number of its server.
    ///
    /// Null while there is none.
    server_pid: Option<i32>,
    /// What its server has given up: as above, and `files`, all but those that it needs; empty if the server does not
    /// answer.
    limits: Vec<&'static str>,
    /// How often a server replaced a dead one.
    restarts: u32,
    /// Counts of its server since it started: see below; empty if the server does not answer.
    counts: BTreeMap<&'a str, u64>,
    /// What it answered, by the name of the FUSE operation: `lookup`, `getattr`, `readlink`, `open`, `read`, `readdir`,
    /// `readdirplus`, `xattr`, `statfs`, `ioctl`, `other`. An operation without answers is not there; empty if the server
    /// does not answer.
    operations: BTreeMap<&'a str, OperationJson>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct OperationJson {
    /// Number of answers.
    count: u64,
    /// Half of the answers took no longer; exact to an eighth of the value.
    p50_ns: u64,
    /// 90 % of the answers took no longer; exact to an eighth of the value.
    p90_ns: u64,
    /// 99 % of the answers took no longer; exact to an eighth of the value.
    p99_ns: u64,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ProgramJson<'a> {
    /// Process number.
    pid: i32,
    /// Its name; `?` if it is not known.
    name: &'a str,
}

impl<'a> SessionJson<'a> {
    fn of(session: &'a SessionStatus) -> Self {
        let since = session
            .since
            .and_then(|s| s.duration_since(UNIX_EPOCH).ok());
        let (layer, layer_hex) = json::optional_name(session.layer.as_deref());
        let programs = session.programs.iter();
        Self {
            key: &session.key,
            answers: session.guardian != 0,
            guardian_pid: (session.guardian != 0).then_some(session.guardian),
            limits: limits(session.confinement),
            since: since.map(|since| since.as_secs()),
            ending: session.ending,
            linger_seconds: session.linger.map(|linger| linger.as_secs()),
            left_seconds: session.left.map(|left| left.as_secs()),
            layer,
            layer_hex,
            images: session.images.iter().map(ImageJson::of).collect(),
            programs: programs
                .map(|(pid, name)| ProgramJson { pid: *pid, name })
                .collect(),
        }
    }
}

impl<'a> ImageJson<'a> {
    fn of(image: &'a ImageStatus) -> Self {
        let (path, path_hex) = json::name(&image.path);
        let (place, place_hex) = json::name(&image.place);
        let counts = image.counts.iter();
        let operations = image.operations.iter().map(|operation| {
            let [p50_ns, p90_ns, p99_ns] = operation.times;
            let times = OperationJson {
                count: operation.answers,
                p50_ns,
                p90_ns,
                p99_ns,
            };
            (operation.name.as_str(), times)
        });
        Self {
            path,
            path_hex,
            state: image.state.map(word),
            place,
            place_hex,
            entry_text: entry_of(image).map(|entry| entry.to_string()),
            server_pid: image.server,
            limits: limits(image.confinement),
            restarts: image.restarts,
            counts: counts
                .map(|(name, count)| (name.as_str(), *count))
                .collect(),
            operations: operations.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fill_is_told_in_words() {
        let mut image = ImageStatus::default();
        assert_eq!(filled(&image), None);
        let mut of = |counts: &[(&str, u64)]| {
            let counts = counts
                .iter()
                .map(|(name, count)| ((*name).to_owned(), *count));
            image.counts = counts.collect();
            filled(&image)
        };
        assert_eq!(
            of(&[("fill_pack", 33), ("fill_stored", 12)]).as_deref(),
            Some("12 of 33 pages of the hot pack (48.00 KiB), and goes on")
        );
        let counts = [
            ("fill_pack", 1),
            ("fill_stored", 1),
            ("fill_last_us", 2913),
            ("fill_over_us", 3168),
            ("fill_late", 2),
        ];
        assert_eq!(
            of(&counts).as_deref(),
            Some(
                "1 of 1 page of the hot pack (4.00 KiB), within 3 ms of its start; 2 asked for before they were there"
            )
        );
        let mut counts = counts.to_vec();
        counts.truncate(4);
        for (refills, refilled, told) in [
            (1, 1, "1 page stored again once"),
            (3, 12, "12 pages stored again in 3 times"),
        ] {
            let again = [("fill_refills", refills), ("fill_refilled", refilled)];
            assert_eq!(
                of(&[&counts[..], &again].concat()),
                Some(format!(
                    "1 of 1 page of the hot pack (4.00 KiB), within 3 ms of its start; {told}, after they had left memory"
                ))
            );
        }
        let ordinals = [1, 2, 3, 4, 11, 112, 121].map(ordinal);
        assert_eq!(
            ordinals,
            ["1st", "2nd", "3rd", "4th", "11th", "112th", "121st"]
        );
    }
}
