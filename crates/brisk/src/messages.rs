//! Messages to the person at the terminal, on stderr.
//!
//! If nobody can read them, the work goes on: a message that cannot be written is dropped.

use std::io::{self, Write};

use crate::names;

/// Prints `text`, which may hold names from outside.
pub fn say(text: &str) {
    let line = format!("{}\n", names::printable(text));
    // At once, so that no line of another process comes between. There is no other place to report a failure.
    io::stderr().lock().write_all(line.as_bytes()).ok();
}

/// Prints `text` as a warning.
pub fn warn(text: &str) {
    say(&format!("brisk: warning: {text}"));
}

/// A number and its noun: "1 file", "2 files".
pub fn count(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}
