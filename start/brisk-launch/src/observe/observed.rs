//! What an observation brings.

use brisk_image::profile::Profile;

/// What was observed.
#[derive(Debug)]
#[non_exhaustive]
pub struct Observed {
    /// What the launch asked for, in one run, without digests and
    /// without its command. Its roots are the mounts that have the files.
    pub profile: Profile,
    /// Why nothing more was observed.
    pub end: ObservationEnd,
    /// How many bytes were read by system calls, at least. None if each call was seen.
    pub read: Option<u64>,
    /// Digests of documents that this launch has read, and no earlier one. The profile does not name them.
    pub documents: Vec<u64>,
}

/// Why an observation has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ObservationEnd {
    /// The program and all that it has started have ended, or were let go for their rights.
    Ended,
    /// It took as long as it may take.
    Time,
    /// The program was suspended.
    Suspended,
    /// The program itself traces.
    Tracer,
}

impl ObservationEnd {
    /// In words, as a part of a sentence.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Ended => "until it ended",
            Self::Time => "as long as brisk observes a launch",
            Self::Suspended => "until it was suspended",
            Self::Tracer => "until it traced a process itself",
        }
    }
}
