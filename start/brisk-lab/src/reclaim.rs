//! Stops what takes pages out of memory although there is room. It would drop pages that were read ahead
//! before they are used.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};

use anyhow::Result;
use brisk_serve::Reclaimer;
use brisk_terminal::messages::warn;

use super::undo::Undo;

/// Stops them all, and returns their names. Warns on standard error about one that this process may not stop.
pub fn stop(undo: &mut Undo) -> Result<Vec<String>> {
    let Some(reclaimers) = Reclaimer::all() else {
        warn("the system does not show whether something takes pages out of memory");
        return Ok(Vec::new());
    };
    let mut stopped = Vec::new();
    for reclaimer in reclaimers {
        let Reclaimer { name, switch, .. } = reclaimer;
        undo.write(&switch, reclaimer.on)?;
        let written = OpenOptions::new()
            .write(true)
            .open(&switch)
            .and_then(|mut opened| opened.write_all(reclaimer.off.as_bytes()));
        let is_on = || fs::read_to_string(&switch).map_or(true, |text| text.trim() == reclaimer.on);
        if let Err(e) = still_takes(written, is_on) {
            let place = switch.display();
            warn(&format!(
                "{name} takes pages out of memory while the lab measures, and cannot be stopped: {place}: {e}"
            ));
            continue;
        }
        stopped.push(name);
    }
    Ok(stopped)
}

/// Fails if a reclaimer goes on after it was to be stopped. The kernel refuses to stop one that somebody else
/// has just stopped, which another lab may do.
fn still_takes(stopping: io::Result<()>, is_on: impl FnOnce() -> bool) -> io::Result<()> {
    stopping.or_else(|e| if is_on() { Err(e) } else { Ok(()) })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_somebody_else_stopped_is_stopped() {
        let refused = || Err(io::Error::from(rustix::io::Errno::PERM));
        assert!(still_takes(Ok(()), || panic!("nobody asks")).is_ok());
        assert!(still_takes(refused(), || false).is_ok());
        let kept = still_takes(refused(), || true).unwrap_err();
        assert_eq!(kept.kind(), io::ErrorKind::PermissionDenied);
    }
}
