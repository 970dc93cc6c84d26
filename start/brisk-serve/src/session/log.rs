//! Messages of a session's own processes. Nobody waits for them, so they go to the session's log.

use std::io::{Write, stderr};

/// Writes a line to the session's log.
pub(crate) fn say(text: &str) {
    let line = format!("brisk[{}]: {text}\n", std::process::id());
    // If the log is full, there is no place to say so.
    stderr().write_all(line.as_bytes()).ok();
}
