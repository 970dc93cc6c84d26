//! What a session's own processes may do.
//!
//! Servers and learners decode bytes of images and packs in C code, and everybody may have written those. So each
//! process of a session gives up what its [`Role`] does not need, before it reads any of them:
//!
//! * its [`capabilities`],
//! * the chance to get more by executing a program (`no_new_privs`),
//! * the system calls that are not on its list ([`calls`]),
//! * the files that it does not need ([`files`]).
//!
//! This also holds for root: without capabilities, uid 0 is an ordinary user who owns root's files, and Landlock keeps
//! the process from opening them.
//!
//! Nothing here fails. What a kernel lacks is left out, and [`Confinement`] says what is in force.

mod calls;
mod capabilities;
mod files;
mod role;

use std::fmt;

use rustix::thread::{CapabilitySet, set_no_new_privs};

use crate::session::log::say;

pub(crate) use self::calls::can_filter_calls;
pub(crate) use self::files::{Files, landlock_version};
pub(crate) use self::role::Role;

/// Which limits a process of a session has put on itself.
///
/// What is missing is something that the kernel does not have or does not allow, or that the process needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Confinement {
    /// It has only the capabilities that it needs, and can get no others: a program that it executed would have no
    /// rights from a set-user-id bit.
    pub capabilities: bool,
    /// It can make only the system calls that it needs (seccomp).
    pub calls: bool,
    /// It can open only the files that it needs (Landlock).
    pub files: bool,
}

impl Confinement {
    const NAMES: [&'static str; 3] = ["capabilities", "calls", "files"];

    fn parts(self) -> [bool; 3] {
        [self.capabilities, self.calls, self.files]
    }

    /// Reads what [`Display`](fmt::Display) writes.
    pub(crate) fn parse(text: &str) -> Self {
        let [capabilities, calls, files] =
            Self::NAMES.map(|name| text.split(", ").any(|word| word == name));
        Self {
            capabilities,
            calls,
            files,
        }
    }
}

impl fmt::Display for Confinement {
    /// `capabilities, calls, files`, or `nothing`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = Self::NAMES.into_iter().zip(self.parts());
        let limited: Vec<_> = parts
            .filter_map(|(name, limited)| limited.then_some(name))
            .collect();
        match limited.as_slice() {
            [] => f.write_str("nothing"),
            limited => f.write_str(&limited.join(", ")),
        }
    }
}

/// Limits the calling process to what its role needs, for ever, and says what is in force.
///
/// The process must have one thread: others would keep what they have.
pub(crate) fn confine(role: Role, files: &Files<'_>) -> Confinement {
    let unprivileged = set_no_new_privs(true).is_ok();
    // Before the system calls are limited, which this needs.
    let files = match role {
        // Landlock forbids its processes to unmount.
        Role::Guardian { .. } | Role::Watchdog { .. } => false,
        Role::Server | Role::Learner => told(files::limit(files), "its files"),
    };
    let capabilities = told(capabilities::keep_only(role.needs()), "its capabilities");
    let calls = told(calls::limit(role, files), "its system calls");
    Confinement {
        capabilities: unprivileged && capabilities,
        calls,
        files,
    }
}

/// Like [`confine`], for a guardian or a watchdog that starts `fusermount3`. That program gets its rights from a
/// set-user-id bit. So only the capabilities are limited.
pub(crate) fn confine_caller_of_fusermount() -> Confinement {
    let capabilities = capabilities::keep_only(CapabilitySet::empty());
    Confinement {
        capabilities: told(capabilities, "its capabilities"),
        calls: false,
        files: false,
    }
}

/// Limits a process that only starts a program, which has no rights either: it can get none, and has no capabilities.
pub(crate) fn confine_starter() {
    if set_no_new_privs(true).is_err() {
        say("a program that is started may get rights");
    }
    told(
        capabilities::keep_only(CapabilitySet::empty()),
        "its capabilities",
    );
}

/// Whether a limit is in force. What went wrong goes to the session's log. That the kernel does not have such a limit
/// does not: `brisk doctor` says so, and `brisk stat` says what a session has.
fn told(limited: Result<bool, String>, what: &str) -> bool {
    limited.unwrap_or_else(|why| {
        say(&format!("{what} cannot be limited: {why}"));
        false
    })
}

#[cfg(test)]
mod tests;
