//! Stops what takes pages out of memory although there is room. It would drop pages that were read ahead
//! before they are used.

use std::fs::OpenOptions;
use std::io::Write;

use anyhow::{Context, Result};
use brisk_mount::Reclaimer;

use super::undo::Undo;
use brisk::warn;

/// Stops them all, and returns their names. Warns on standard error about one that this process may not stop.
pub fn stop(undo: &mut Undo) -> Result<Vec<String>> {
    let Some(reclaimers) = Reclaimer::all() else {
        warn("the system does not show whether something takes pages out of memory");
        return Ok(Vec::new());
    };
    let mut stopped = Vec::new();
    for reclaimer in reclaimers {
        let Reclaimer { name, switch, .. } = reclaimer;
        let mut opened = match OpenOptions::new().write(true).open(&switch) {
            Ok(opened) => opened,
            Err(e) => {
                let place = switch.display();
                warn(&format!(
                    "{name} takes pages out of memory while the lab measures, and cannot be stopped: {place}: {e}"
                ));
                continue;
            }
        };
        undo.write(&switch, reclaimer.on)?;
        opened.write_all(reclaimer.off.as_bytes()).with_context(|| {
            format!(
                "cannot stop {name}, which takes pages out of memory, by writing {} to {}; stop it first",
                reclaimer.off,
                switch.display()
            )
        })?;
        stopped.push(name);
    }
    Ok(stopped)
}

/// A sentence that says what was stopped, to append to others.
pub fn sentence(stopped: &[String]) -> String {
    match stopped.is_empty() {
        true => String::new(),
        false => format!(
            " Stopped during the measurement, because it takes pages that were not used lately: {}.",
            stopped.join(", ")
        ),
    }
}
