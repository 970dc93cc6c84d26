//! A launch that brisk has learned. The program `brisk` does this by itself.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use brisk_launch::{
    BackgroundReplay, LAUNCH, LearnedLaunch, LearnedPacks, PlainLaunch, StartPlan, gives_rights,
};
use brisk_terminal::messages::warn;

use crate::advice::with_advice;
use crate::launch_name;

/// Becomes the program of this command, if brisk has learned what there is to know of its launch, and replays that beside
/// it. None if there is more to do, or if something is wrong: `brisk-run` does it, or says what. The error says why the
/// program does not start.
pub fn become_known(command: Vec<OsString>) -> Option<brisk_launch::Error> {
    let launch = PlainLaunch::new(command);
    let program = launch.program().ok()?;
    if gives_rights(&program) {
        return None;
    }
    let packs = LearnedPacks::path_of_user().ok()?;
    let opened = LearnedPacks::open(&packs).ok()?;
    let key = launch_name::key(&opened, &program, &launch.command).ok()?;
    match opened.plan_start(&key, &program, true) {
        StartPlan::LeaveAlone(_) | StartPlan::InMemory => {}
        StartPlan::Replay(known, look) => {
            let mut background = replay_of(Arc::new(known), packs, key);
            background.look = look;
            start_or_warn(background);
        }
        StartPlan::ReplayAndObserve(..) | StartPlan::Observe => return None,
    }
    launch.exec().err()
}

/// The replay of a learned profile. It notes in `packs` what it has found, for the next launch with this key.
pub fn replay_of(known: Arc<LearnedLaunch>, packs: PathBuf, key: String) -> BackgroundReplay {
    let used = known.metadata();
    let mut background = BackgroundReplay::of_learned(known);
    background.watch = Some(LAUNCH);
    background.then = Some(Box::new(move |end| {
        let Ok(used) = used else {
            return;
        };
        // If this cannot be written, the next launch finds the same.
        LearnedPacks::open(&packs)
            .and_then(|packs| packs.after_replay(&key, &used, end))
            .ok();
    }));
    background
}

/// Starts the process that replays. If that fails, the program starts all the same, only slower.
pub fn start_or_warn(background: BackgroundReplay) {
    if let Err(error) = background.start() {
        warn(&format!("{}; nothing is replayed", with_advice(&error)));
    }
}
