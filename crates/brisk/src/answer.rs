//! What verbs answer.

/// What a verb found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It was done, or it is so: exit code 0.
    Yes,
    /// It is not so, as when two images differ: exit code 1.
    No,
    /// A program was run, and exited with this.
    Exited(u8),
}
