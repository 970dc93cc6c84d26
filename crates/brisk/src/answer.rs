//! The answers of verbs.

/// The exit code for a verb that failed, and for wrong arguments.
pub const FAILED: u8 = 2;

/// What a verb found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Done, or true: exit code 0.
    Yes,
    /// Not true, for example when two images differ: exit code 1.
    No,
    /// The program that the verb ran exited with this code.
    Exited(u8),
}
