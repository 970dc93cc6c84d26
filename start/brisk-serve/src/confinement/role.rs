//! What the processes of a session are for, and what they need.

use rustix::thread::CapabilitySet;

/// What a process of a session is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Keeps the session, starts the other processes, and unmounts. `by_name`: the mount is one that all programs see,
    /// which is found by its name.
    Guardian { by_name: bool },
    /// Answers the kernel, and fills the page cache.
    Server,
    /// Makes a hot pack.
    Learner,
    /// Unmounts if nobody else can.
    Watchdog { by_name: bool },
}

impl Role {
    pub(super) fn needs(self) -> CapabilitySet {
        match self {
            Self::Server | Self::Learner => CapabilitySet::empty(),
            Self::Guardian { by_name } | Self::Watchdog { by_name } => {
                // To unmount, and to see in which namespace a process is that has capabilities.
                let needs = CapabilitySet::SYS_ADMIN | CapabilitySet::SYS_PTRACE;
                match by_name {
                    // The mount may be in a directory that only another user may enter.
                    true => needs | CapabilitySet::DAC_READ_SEARCH,
                    false => needs,
                }
            }
        }
    }
}
