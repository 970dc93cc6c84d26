//! `brisk stat`: the sessions of the calling user.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

use anyhow::Context;
use brisk_mount::{Confinement, ImageStatus, SessionStatus, sessions};
use serde_json::{Map, Value, json};

use crate::answer::Answer;
use crate::json;
use crate::messages::{count, say};
use crate::names::{printable, shown};

/// Which sessions to look at.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A session is what the runs of an image by one user share (see brisk run). Exits with 1 if there is none.\n\n\
limits names what a process of the session has given up: capabilities, system calls and files that it does not \
need. A guardian has given up no files, because it could not unmount then; it reads no image.")]
pub struct Args {
    /// The image, or the directory that it is mounted on. [default: all sessions of the user]
    path: Option<PathBuf>,

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
        let found: Vec<_> = found.iter().map(to_json).collect();
        json::print(&found)?;
    } else {
        let mut out = BufWriter::new(io::stdout().lock());
        for session in &found {
            print(&mut out, session)?;
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

fn print(out: &mut impl Write, session: &SessionStatus) -> anyhow::Result<()> {
    if session.guardian == 0 {
        writeln!(out, "{}: does not answer", printable(&session.key))?;
        return Ok(());
    }
    for image in &session.images {
        writeln!(out, "{} on {}", shown(&image.path), shown(&image.place))?;
        let server = match image.server {
            Some(pid) => format!(
                "process {pid}, restarted {}",
                count(image.restarts.into(), "time", "times")
            ),
            None => "none: programs get errors".to_owned(),
        };
        writeln!(out, "  server      {server}")?;
        writeln!(out, "  limits      {}", image.confinement)?;
        for (name, count) in &image.counts {
            let name = printable(name).replace('_', " ");
            writeln!(out, "  {name:<15}{count}")?;
        }
        for line in operation_lines(image) {
            writeln!(out, "{line}")?;
        }
    }
    writeln!(out, "  guardian    process {}", session.guardian)?;
    writeln!(out, "  limits      {}", session.confinement)?;
    if let Some(since) = session.since {
        let since =
            jiff::Timestamp::try_from(since).context("the time is outside of the calendar")?;
        writeln!(out, "  since       {since}")?;
    }
    match (session.linger.map(|l| l.as_secs()), session.left) {
        (Some(linger), Some(left)) => {
            writeln!(out, "  lingers     {} s of {linger} s", left.as_secs())?;
        }
        (Some(linger), None) => writeln!(out, "  lingers     {linger} s after its last program")?,
        (None, _) => writeln!(out, "  stays       until it is unmounted")?,
    }
    for (pid, name) in &session.programs {
        writeln!(out, "  program     {pid} {}", printable(name))?;
    }
    Ok(())
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

fn limits(in_force: Confinement) -> Value {
    json!({
        "capabilities": in_force.capabilities,
        "calls": in_force.calls,
        "files": in_force.files,
    })
}

fn to_json(session: &SessionStatus) -> Value {
    let since = session
        .since
        .and_then(|s| s.duration_since(UNIX_EPOCH).ok());
    let images: Vec<_> = session
        .images
        .iter()
        .map(|image| {
            let (path, path_bytes) = json::name(&image.path);
            let (place, place_bytes) = json::name(&image.place);
            let counts: Map<_, _> = image
                .counts
                .iter()
                .map(|(name, count)| (name.clone(), json!(count)))
                .collect();
            let operations: Map<_, _> = image
                .operations
                .iter()
                .map(|operation| {
                    let [p50, p90, p99] = operation.times;
                    let answers = operation.answers;
                    let times =
                        json!({"answers": answers, "p50_ns": p50, "p90_ns": p90, "p99_ns": p99});
                    (operation.name.clone(), times)
                })
                .collect();
            json!({
                "path": path,
                "path_bytes": path_bytes,
                "place": place,
                "place_bytes": place_bytes,
                "server": image.server,
                "limits": limits(image.confinement),
                "restarts": image.restarts,
                "counts": counts,
                "operations": operations,
            })
        })
        .collect();
    let programs: Vec<_> = session
        .programs
        .iter()
        .map(|(pid, name)| json!({ "pid": pid, "name": name }))
        .collect();
    json!({
        "key": session.key,
        "answers": session.guardian != 0,
        "guardian": session.guardian,
        "limits": limits(session.confinement),
        "since": since.map(|since| since.as_secs()),
        "linger": session.linger.map(|linger| linger.as_secs()),
        "left": session.left.map(|left| left.as_secs()),
        "images": images,
        "programs": programs,
    })
}
