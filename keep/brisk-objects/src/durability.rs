//! What a commit waits for.

/// What a commit waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// All of it is on the disk. A loss of power loses nothing that was committed.
    #[default]
    Full,
    /// The records are on the disk, but perhaps not yet the page that says so. A loss of power may undo the last
    /// transaction, and never leaves half of one. A commit takes one wait for the disk instead of two.
    Last,
    /// Nothing: the system writes when it likes. A killed process loses nothing. If the machine stops, by a loss of power or a crash
    /// of the kernel, all is lost that was committed since [`Database::sync`](crate::Database::sync) or since the file was
    /// opened, and what was there before, too: pages that were written before and after are mixed. Such a file is refused
    /// ([`Error::Unsynced`](crate::Error::Unsynced)). For what can be made anew: an import, or a test.
    ///
    /// A file beside it, whose name ends with `-lazy`, says that it is open so. It goes when the last handle does.
    Lazy,
}
