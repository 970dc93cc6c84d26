//! What takes pages out of memory although there is room, and is stopped while a lab measures: it would take what
//! was read ahead before it is used.

use std::fs::OpenOptions;
use std::io::Write;

use anyhow::{Context, Result};
use brisk_mount::Reclaimer;

use super::undo::Undo;
use brisk::warn;

/// Stops it, and returns the names of what is stopped. Says so on standard error if it may not be.
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
                    "{name} takes pages out of memory meanwhile, and cannot be stopped: {place}: {e}"
                ));
                continue;
            }
        };
        undo.write(&switch, reclaimer.on)?;
        opened.write_all(reclaimer.off.as_bytes()).with_context(|| {
            format!(
                "cannot stop {name}, which takes pages out of memory, by writing {} to {}; stop it before",
                reclaimer.off,
                switch.display()
            )
        })?;
        stopped.push(name);
    }
    Ok(stopped)
}

/// What was stopped, as a sentence behind others.
pub fn sentence(stopped: &[String]) -> String {
    match stopped.is_empty() {
        true => String::new(),
        false => format!(
            " Stopped meanwhile, as it takes pages not used lately: {}.",
            stopped.join(", ")
        ),
    }
}
