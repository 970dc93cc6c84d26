//! Messages to the person at the terminal, on stderr, and their words.
//!
//! That nobody reads them is no reason to stop: what cannot be written is dropped.

use std::io::{self, Write};

use crate::names;

/// Says `text`, which may hold names from outside.
pub fn say(text: &str) {
    // A failure has nowhere to be reported.
    writeln!(io::stderr().lock(), "{}", names::printable(text)).ok();
}

/// Says `text` as a warning.
pub fn warn(text: &str) {
    say(&format!("brisk: warning: {text}"));
}

/// A number of things.
pub fn count(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}
