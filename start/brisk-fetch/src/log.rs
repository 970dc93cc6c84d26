//! The fetcher's log.

use std::fmt;
use std::io::Write;

/// Writes a line to the log, as `eprintln` does. A disk that is full does not end what is being done.
macro_rules! say {
    ($($arg:tt)*) => {
        $crate::log::write(format_args!($($arg)*))
    };
}
pub(crate) use say;

pub fn write(line: fmt::Arguments<'_>) {
    writeln!(std::io::stderr().lock(), "{line}").ok();
}
