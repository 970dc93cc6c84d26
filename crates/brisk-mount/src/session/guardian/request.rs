//! What a guardian answers to runs that join and to requests to end, and what it means that a peer is
//! gone.

/// What a peer is connected for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// It asks questions.
    Asks,
    /// It is about to start a program in the session, and closes the connection by doing so.
    Starts,
    /// The mount belongs to it: it ends with the connection.
    Owns,
}

/// What is to be joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Joinable {
    /// A mount that all programs see.
    Mount {
        /// Somebody has unmounted it, and its place may be another's.
        gone: bool,
    },
    /// Namespaces, once the first run has built them.
    Namespaces { built: bool },
}

/// The answer to a run that joins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JoinAnswer {
    /// Where the mount is.
    Mount,
    /// Descriptors of the namespaces.
    Namespaces,
    /// None: the connection is closed, and the run makes a session of its own.
    Refuse,
    /// The same, for all runs from now on.
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

    /// Whether runs that connect are heard. Before the first run is done there is nothing to join, so
    /// that they wait.
    pub(super) fn is_open(self) -> bool {
        self != Self::Namespaces { built: false }
    }

    /// What is to be done when a peer of this role is gone.
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
    /// It has become its program, or failed: programs are to be looked for.
    Starter,
    /// The mount belonged to it: it is unmounted.
    Mount,
    /// The first run failed before there was anything to join: the session ends.
    Session,
}

/// What is done about a request to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndAnswer {
    /// Nothing: programs run, and are named.
    Busy,
    /// The mount is unmounted, if nothing in it is open.
    Unmount,
    /// The mount is taken out of the tree of directories, and ends when nothing in it is open.
    TakeOut,
    /// The session ends now.
    EndNow,
    /// The session ends with its last program, and nobody joins it any more.
    EndWithLast,
}

impl EndAnswer {
    /// `in_use`: programs run or are about to. `lazy`: the request is not about now. `for_all`: the
    /// images are mounted for all programs.
    pub(super) fn to(in_use: bool, lazy: bool, for_all: bool) -> Self {
        match (in_use, lazy, for_all) {
            (true, false, _) => Self::Busy,
            (_, true, true) => Self::TakeOut,
            (_, true, false) => Self::EndWithLast,
            (false, false, true) => Self::Unmount,
            (false, false, false) => Self::EndNow,
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
        for (in_use, lazy, for_all, answer) in [
            (false, false, false, EndAnswer::EndNow),
            (false, false, true, EndAnswer::Unmount),
            (false, true, false, EndAnswer::EndWithLast),
            (false, true, true, EndAnswer::TakeOut),
            (true, false, false, EndAnswer::Busy),
            (true, false, true, EndAnswer::Busy),
            (true, true, false, EndAnswer::EndWithLast),
            (true, true, true, EndAnswer::TakeOut),
        ] {
            let found = EndAnswer::to(in_use, lazy, for_all);
            assert_eq!(
                found, answer,
                "in use {in_use}, lazy {lazy}, for all {for_all}"
            );
        }
    }
}
