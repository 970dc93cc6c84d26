//! Messages to the person at the terminal, on stderr.
//!
//! If nobody can read them, the work goes on: a message that cannot be written is dropped.

use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use anyhow::Context;

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

/// A span of time in its two largest units.
pub fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    let units = [("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)];
    let mut rest = seconds;
    let parts = units.map(|(unit, len)| {
        let number = rest / len;
        rest %= len;
        (number, unit)
    });
    let first = parts.iter().position(|(number, _)| *number > 0);
    let parts = parts.iter().skip(first.unwrap_or(3)).take(2);
    let shown = parts.filter(|(number, _)| *number > 0 || seconds == 0);
    let shown: Vec<_> = shown
        .map(|(number, unit)| format!("{number} {unit}"))
        .collect();
    shown.join(" ")
}

/// A moment in UTC, to the second, and how long ago it was.
pub fn moment(time: SystemTime) -> anyhow::Result<String> {
    // A clock that was put back can make it a moment to come.
    let age = time.elapsed().unwrap_or_default();
    let time = jiff::Timestamp::try_from(time).context("the time is outside of the calendar")?;
    Ok(format!("{time:.0}, {} ago", span(age)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_two_units() {
        for (seconds, expected) in [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (260, "4 min 20 s"),
            (3600, "1 h"),
            (3659, "1 h"),
            (7260, "2 h 1 min"),
            (90_000, "1 d 1 h"),
        ] {
            assert_eq!(span(Duration::from_secs(seconds)), expected);
        }
    }

    #[test]
    fn a_moment_has_no_fractions() {
        let moment = moment(SystemTime::UNIX_EPOCH + Duration::from_millis(1_500)).unwrap();
        assert!(
            moment.starts_with("1970-01-01T00:00:01Z, ") && moment.ends_with(" ago"),
            "{moment}"
        );
    }
}
