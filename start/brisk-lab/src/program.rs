//! Starts a program, times it, and checks it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use brisk_launch::{Readiness, XDisplay};
use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, waitpgid};

use super::app::{self, App};
use super::undo::Undo;

/// How often to check whether a program without a window has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How many bytes of a message an error shows.
const SHOWN: usize = 2000;

/// Starts `command`, which is one of `app`, waits until it is ready, and returns the time since `clock`. The
/// program has ended then.
///
/// # Errors
///
/// If the program fails, or prints something else than it should. Its time does not count then.
pub fn time(mut command: Command, app: &App, clock: Instant, undo: &mut Undo) -> Result<Duration> {
    let ready = app::ready(&app.ready)?;
    let preparing = Instant::now();
    let output = || tempfile::tempfile().context("cannot create a file for a program's output");
    let mut files = None;
    if !matches!(ready, Readiness::Line(_)) {
        // Reading pipes would use a processor.
        let [stdout, stderr] = files.insert([output()?, output()?]);
        command
            .stdout(stdout.try_clone()?)
            .stderr(stderr.try_clone()?);
    } else {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
    }
    // The display records the windows that exist already.
    let display = match &ready {
        Readiness::Window(_) => Some(XDisplay::connect(
            app.env.get("DISPLAY").map_or("", String::as_str),
        )?),
        _ => None,
    };
    // Preparing the measurement does not count as time of the program.
    let clock = clock + preparing.elapsed();
    let mut child = command
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    undo.program(Some(child.id()))?;
    let waited = match (&ready, files) {
        (Readiness::Line(text), _) => wait_for_line(&mut child, text, clock),
        (Readiness::Window(text), Some(files)) => {
            let display = display.context("a display was connected to")?;
            wait_for_window(&mut child, display, text.clone(), files, clock)
        }
        (_, Some(files)) => wait_for_exit(&mut child, files, clock),
        (_, None) => bail!("the launch can be ready by its exit or by a line"),
    };
    // What the program has left behind would run beside the next launch.
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // There may be nothing left.
        kill_process_group(group, Signal::KILL).ok();
        // What they have read counts when the lab has waited for them. It is the parent only of those that it adopts.
        while let Ok(Some(_)) = waitpgid(group, WaitOptions::empty()) {}
    }
    undo.program(None)?;
    let ended = waited?;
    check(&ended, app, &ready)?;
    Ok(ended.elapsed)
}

/// The end of a program.
struct Ended {
    elapsed: Duration,
    /// None if it was ready before its end.
    status: Option<ExitStatus>,
    output: [Vec<u8>; 2],
}

fn wait_for_exit(child: &mut Child, files: [File; 2], clock: Instant) -> Result<Ended> {
    let status = child.wait()?;
    let elapsed = clock.elapsed();
    Ok(Ended {
        elapsed,
        status: Some(status),
        output: contents(files)?,
    })
}

fn contents(files: [File; 2]) -> Result<[Vec<u8>; 2]> {
    let mut output = [Vec::new(), Vec::new()];
    for (mut file, output) in files.into_iter().zip(&mut output) {
        file.rewind()?;
        file.read_to_end(output)?;
    }
    Ok(output)
}

fn wait_for_window(
    child: &mut Child,
    mut display: XDisplay,
    text: Option<OsString>,
    files: [File; 2],
    clock: Instant,
) -> Result<Ended> {
    let (sender, shown) = channel();
    // A thread, because this waits forever if the program ends without a window, and the experiment would
    // wait with it.
    thread::spawn(move || {
        display.wait_for_window(text.as_deref());
        // Nobody listens if the program has ended.
        sender.send(Instant::now()).ok();
    });
    let (at, status) = loop {
        if let Ok(at) = shown.recv_timeout(LOOK_EVERY) {
            child.kill()?;
            child.wait()?;
            break (at, None);
        }
        if let Some(status) = child.try_wait()? {
            break (Instant::now(), Some(status));
        }
    };
    Ok(Ended {
        elapsed: at.saturating_duration_since(clock),
        status,
        output: contents(files)?,
    })
}

fn wait_for_line(child: &mut Child, text: &OsStr, clock: Instant) -> Result<Ended> {
    let (sender, pieces) = channel();
    let streams: [Option<Box<dyn Read + Send>>; 2] = [
        child.stdout.take().map(|stream| Box::new(stream) as _),
        child.stderr.take().map(|stream| Box::new(stream) as _),
    ];
    for (number, stream) in streams.into_iter().enumerate() {
        let mut stream = stream.context("a pipe was asked for")?;
        let sender = sender.clone();
        thread::spawn(move || {
            let mut buffer = vec![0; 64 << 10];
            while let Ok(len @ 1..) = stream.read(&mut buffer) {
                // Nobody listens once the program was ready.
                if sender.send((number, buffer[..len].to_vec())).is_err() {
                    return;
                }
            }
        });
    }
    drop(sender);
    let mut output = [Vec::new(), Vec::new()];
    while let Ok((number, piece)) = pieces.recv() {
        let stream: &mut Vec<u8> = &mut output[number];
        // The text may begin in the previous piece.
        let from = stream.len().saturating_sub(text.len());
        stream.extend(piece);
        if holds(&stream[from..], text) {
            let elapsed = clock.elapsed();
            child.kill()?;
            child.wait()?;
            return Ok(Ended {
                elapsed,
                status: None,
                output,
            });
        }
    }
    let status = child.wait()?;
    Ok(Ended {
        elapsed: clock.elapsed(),
        status: Some(status),
        output,
    })
}

fn holds(bytes: &[u8], text: &OsStr) -> bool {
    let text = text.as_bytes();
    text.is_empty() || bytes.windows(text.len()).any(|window| window == text)
}

fn check(ended: &Ended, app: &App, ready: &Readiness) -> Result<()> {
    let [stdout, stderr] = &ended.output;
    let end_of = |bytes: &[u8]| {
        let start = bytes.len().saturating_sub(SHOWN);
        let text = String::from_utf8_lossy(bytes.get(start..).unwrap_or_default());
        text.trim().replace('\n', " / ")
    };
    let complained = || match end_of(stderr) {
        text if text.is_empty() => text,
        text => format!("; it said: {text}"),
    };
    // Some programs report on standard output what they cannot do.
    let said = || match (complained(), end_of(stdout)) {
        (text, printed) if text.is_empty() && !printed.is_empty() => {
            format!("; it printed: {printed}")
        }
        (text, _) => text,
    };
    let printed = || {
        let end = stdout.len().min(SHOWN);
        format!("{:?}", String::from_utf8_lossy(&stdout[..end]))
    };
    match (ended.status, ready) {
        (Some(status), _) if !app.accepts(status) => {
            bail!("the launch ended with {status}{}", said())
        }
        (Some(_), Readiness::Window(_)) => bail!(
            "the launch ended before it was ready: it showed no such window{}",
            said()
        ),
        (Some(_), Readiness::Line(text)) => bail!(
            "the launch ended before it was ready: it printed no line with {}{}",
            text.display(),
            said()
        ),
        _ => {}
    }
    if let Some(text) = &app.prints
        && !holds(stdout, text.as_ref())
    {
        bail!(
            "the launch printed {}, not {text:?}{}",
            printed(),
            complained()
        );
    }
    if let Some(text) = &app.prints_exactly
        && stdout != text.as_bytes()
    {
        bail!(
            "the launch printed {}, not exactly {text:?}{}",
            printed(),
            complained()
        );
    }
    Ok(())
}
