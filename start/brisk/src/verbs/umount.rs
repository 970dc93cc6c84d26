//! `brisk umount`: ends a mount, or a session.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use crate::advice::with_advice;
use anyhow::{Context, bail};
use brisk_serve::{
    SessionEnd, SessionStatus, end_sessions, image_is_mounted, remove_logs, sessions,
};
use brisk_terminal::answer::Answer;
use brisk_terminal::messages::{count, say, warn};
use brisk_terminal::names::shown;

/// How long the end of a session takes without a word.
const SILENT: Duration = Duration::from_secs(10);

/// What to end.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A session is what the runs of an image by one user share (see brisk run). Users end their own sessions and \
unmount their own mounts. Root unmounts what root has mounted, and what --kernel has. brisk unmounts only \
images.")]
pub struct Args {
    /// The directory that the image is mounted on, or the image whose sessions to end, also if the file was deleted.
    #[arg(required_unless_present = "all")]
    path: Option<PathBuf>,

    /// Ends all sessions of the user, and unmounts what brisk mount has mounted for this user, except with --kernel. Also removes
    /// the logs of sessions that have ended.
    #[arg(short, long, conflicts_with = "path")]
    all: bool,

    /// Ends a session when its last program ends, and lets no run join it. Hides a mount in a directory that you named at
    /// once, even if programs use it; the kernel lets go of the image when the last of them ends.
    #[arg(short, long)]
    lazy: bool,
}

pub fn run(args: &Args) -> anyhow::Result<Answer> {
    match &args.path {
        Some(path) => end(path, args.lazy),
        None => end_all(args.lazy),
    }
}

/// Ends all sessions. Those that cannot end do not keep the others from it.
fn end_all(lazy: bool) -> anyhow::Result<Answer> {
    let mut found = sessions()?;
    let all = found.len();
    let mut busy = Vec::new();
    // A session that was made in another one is a program of that. So as long as some end, the others are asked again.
    while !found.is_empty() {
        let ended = told_to_wait(|| end_sessions(&found, lazy))?;
        let (mut left, before) = (Vec::new(), found.len());
        for (session, ended) in found.into_iter().zip(ended) {
            match ended {
                Ok(end) => tell(&session, end),
                Err(error) => left.push((session, error)),
            }
        }
        if left.len() == before {
            busy = left;
            break;
        }
        found = left.into_iter().map(|(session, _)| session).collect();
    }
    remove_logs()?;
    if all == 0 {
        say("there is no session to end");
        return Ok(Answer::No);
    }
    for (session, error) in &busy {
        warn(&format!("{}: {}", names(session), with_advice(error)));
    }
    let left = busy.len();
    match left {
        0 => Ok(Answer::Yes),
        _ => bail!(
            "{} of {} left",
            left,
            count(all as u64, "session is", "sessions are")
        ),
    }
}

fn end(path: &Path, lazy: bool) -> anyhow::Result<Answer> {
    let is_mounted = image_is_mounted(path).context("cannot read /proc/self/mountinfo")?;
    let mut found = sessions()?;
    // What the caller sees at the path decides, not what programs of a session see there.
    found.retain(|session| match is_mounted {
        true => session.is_about_mount(path),
        false => session.is_about(path),
    });
    // One that ends by itself keeps nobody from ending another.
    if found.iter().any(|session| !session.ending) {
        found.retain(|session| !session.ending);
    }
    if found.is_empty() {
        brisk_serve::unmount(path, lazy)?;
    }
    let ended = told_to_wait(|| end_sessions(&found, lazy))?;
    for (session, ended) in found.iter().zip(ended) {
        tell(session, ended?);
    }
    Ok(Answer::Yes)
}

/// The images of a session, for people.
fn names(session: &SessionStatus) -> String {
    let images = session.images.iter().map(|image| shown(&image.path));
    images.collect::<Vec<_>>().join(", ")
}

/// Says that something still uses a session that was asked to end at once.
fn tell(session: &SessionStatus, end: SessionEnd) {
    if end == SessionEnd::SeenElsewhere {
        say(&format!(
            "{} is unmounted; a program in another mount namespace, such as another session or a container, still sees it, and \
             brisk stat lists it until that ends",
            names(session)
        ));
    }
}

/// Says what `work` waits for, if it takes long.
fn told_to_wait<T>(work: impl FnOnce() -> T) -> T {
    let (working, ends) = mpsc::channel::<()>();
    thread::spawn(move || {
        if let Err(RecvTimeoutError::Timeout) = ends.recv_timeout(SILENT) {
            say(
                "waiting for a session to end; a program in another mount namespace may still use its image",
            );
        }
    });
    let result = work();
    drop(working);
    result
}
