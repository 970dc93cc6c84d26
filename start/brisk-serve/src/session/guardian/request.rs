//! Decides what a guardian answers to runs that join and to requests to end, and what it means when a peer
//! disconnects.

/// Why a peer is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// It asks questions.
    Asks,
    /// It will start a program in the session. That closes the connection.
    Starts,
    /// It owns the mount: the mount ends with the connection.
    Owns,
}

/// What runs join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Joinable {
    /// A mount that all programs see.
    Mount {
        /// Whether somebody has unmounted it. Something else may be mounted there now.
        gone: bool,
    },
    /// Namespaces, once the first run has built them.
    Namespaces { built: bool },
}

/// The answer to a run that joins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JoinAnswer {
    /// The place of the mount.
    Mount,
    /// Descriptors of the namespaces.
    Namespaces,
    /// No answer: the guardian closes the connection, and the run makes a session of its own.
    Refuse,
    /// The same, for all later runs too.
    RefuseAll,
}

impl Joinable {
    pub(super) fn answer(self) -> JoinAnswer {
        match self {
            Self::Mount { gone: true } => JoinAnswer::RefuseAll,
            Self::Mount { gone: false } => JoinAnswer::Mount,
            Self::Namespaces { built: true } => JoinAnswer::Namespaces,
            Self::Namespaces { built: false } => JoinAnswer::Refuse,
        }
    }

    /// Whether the guardian reads requests of new runs. Until the first run has built the session there is
    /// nothing to join, so they wait.
    pub(super) fn is_open(self) -> bool {
        self != Self::Namespaces { built: false }
    }

    /// What it means when a peer with this role disconnects.
    pub(super) fn without(self, role: Role) -> Loss {
        match (role, self) {
            (Role::Asks, _) => Loss::Nothing,
            (Role::Owns, Self::Mount { .. }) => Loss::Mount,
            (_, Self::Namespaces { built: false }) => Loss::Session,
            (Role::Starts | Role::Owns, _) => Loss::Starter,
        }
    }
}

/// What is lost with a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    Nothing,
    /// It has become its program, or has failed: the guardian must look for programs.
    Starter,
    /// The mount, which the peer owned: the guardian unmounts it.
    Mount,
    /// The session: the first run failed before there was anything to join.
    Session,
}

/// The answer to a request to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndAnswer {
    /// The session goes on: programs run, and the answer names them.
    Busy,
    /// The guardian unmounts, if nothing in the mount is open.
    Unmount,
    /// The guardian hides the mount at once. It ends when nothing in it is open.
    TakeOut,
    /// The session ends now.
    EndNow,
    /// The session ends with its last program, and no run can join any more.
    EndWithLast,
}

/// Where programs see the images of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// In its namespaces.
    InNamespaces,
    /// AtOwnPlace, at a place that only this session has.
    AtOwnPlace,
    /// AtOwnPlace, at a place that somebody has named, so that later ones may need it.
    AtNamedPlace,
}

impl EndAnswer {
    /// `in_use`: programs run or are about to start. `lazy`: the end may come later.
    pub(super) fn to(in_use: bool, lazy: bool, seen: Seen) -> Self {
        match (in_use, lazy, seen) {
            (true, false, _) => Self::Busy,
            (_, true, Seen::AtNamedPlace) => Self::TakeOut,
            (_, true, _) => Self::EndWithLast,
            (false, false, Seen::InNamespaces) => Self::EndNow,
            (false, false, _) => Self::Unmount,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNT: Joinable = Joinable::Mount { gone: false };
    const GONE: Joinable = Joinable::Mount { gone: true };
    const BUILT: Joinable = Joinable::Namespaces { built: true };
    const UNBUILT: Joinable = Joinable::Namespaces { built: false };

    #[test]
    fn a_run_joins_what_is_there() {
        for (joinable, answer, open) in [
            (MOUNT, JoinAnswer::Mount, true),
            (GONE, JoinAnswer::RefuseAll, true),
            (BUILT, JoinAnswer::Namespaces, true),
            (UNBUILT, JoinAnswer::Refuse, false),
        ] {
            assert_eq!(joinable.answer(), answer, "{joinable:?}");
            assert_eq!(joinable.is_open(), open, "{joinable:?}");
        }
    }

    #[test]
    fn a_session_is_lost_with_its_first_run_and_a_mount_with_its_owner() {
        for (role, joinable, loss) in [
            (Role::Asks, MOUNT, Loss::Nothing),
            (Role::Asks, GONE, Loss::Nothing),
            (Role::Asks, BUILT, Loss::Nothing),
            (Role::Asks, UNBUILT, Loss::Nothing),
            (Role::Starts, MOUNT, Loss::Starter),
            (Role::Starts, GONE, Loss::Starter),
            (Role::Starts, BUILT, Loss::Starter),
            (Role::Starts, UNBUILT, Loss::Session),
            (Role::Owns, MOUNT, Loss::Mount),
            (Role::Owns, GONE, Loss::Mount),
            // No session has an owner.
            (Role::Owns, BUILT, Loss::Starter),
            (Role::Owns, UNBUILT, Loss::Session),
        ] {
            assert_eq!(joinable.without(role), loss, "{role:?} of {joinable:?}");
        }
    }

    #[test]
    fn a_session_in_use_ends_only_lazily() {
        use Seen::{AtNamedPlace, AtOwnPlace, InNamespaces};
        for (in_use, lazy, seen, answer) in [
            (false, false, InNamespaces, EndAnswer::EndNow),
            (false, false, AtOwnPlace, EndAnswer::Unmount),
            (false, false, AtNamedPlace, EndAnswer::Unmount),
            (false, true, InNamespaces, EndAnswer::EndWithLast),
            (false, true, AtOwnPlace, EndAnswer::EndWithLast),
            (false, true, AtNamedPlace, EndAnswer::TakeOut),
            (true, false, InNamespaces, EndAnswer::Busy),
            (true, false, AtOwnPlace, EndAnswer::Busy),
            (true, false, AtNamedPlace, EndAnswer::Busy),
            (true, true, InNamespaces, EndAnswer::EndWithLast),
            (true, true, AtOwnPlace, EndAnswer::EndWithLast),
            (true, true, AtNamedPlace, EndAnswer::TakeOut),
        ] {
            let found = EndAnswer::to(in_use, lazy, seen);
            assert_eq!(found, answer, "in use {in_use}, lazy {lazy}, {seen:?}");
        }
    }
}
