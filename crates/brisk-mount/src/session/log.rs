//! What a session's own processes say. Nobody waits for it: it goes to the session's log.

use std::io::{Write, stderr};

/// Writes a line to the session's log.
pub(super) fn say(text: &str) {
    let line = format!("brisk[{}]: {text}\n", std::process::id());
    // Nobody can be told that the log is full.
    stderr().write_all(line.as_bytes()).ok();
}
