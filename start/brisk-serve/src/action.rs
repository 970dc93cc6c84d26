//! What was tried, for the messages of errors.

use brisk_launch::error::Named;

/// What was tried, as far as this crate tries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Attach,
    Mount,
    Unmount,
    Isolate,
    Root,
    Run,
    Probe,
    Serve,
    Look,
    End,
    Fill,
    Trace,
    TraceSystem,
}

impl From<Action> for &'static str {
    fn from(action: Action) -> Self {
        match action {
            Action::Attach => "attach a loop device",
            Action::Mount => "mount",
            Action::Unmount => "unmount",
            Action::Isolate => "enter a mount namespace",
            Action::Root => "make a root directory of",
            Action::Run => "run",
            Action::Probe => "find the read-ahead of",
            Action::Serve => "serve a FUSE file system",
            Action::Look => "look for sessions",
            Action::End => "end the session",
            Action::Fill => "fill from the hot pack of",
            Action::Trace => "trace a launch from",
            Action::TraceSystem => "trace a launch from the whole system",
        }
    }
}

/// The system refuses user namespaces.
pub(crate) const NO_NAMESPACES: Named = Named("no user namespaces");

/// There is no `fusermount3`.
pub(crate) const NO_FUSERMOUNT: Named = Named("no fusermount3");

/// `fusermount3` does not mount.
pub(crate) const FUSERMOUNT_REFUSES: Named = Named("fusermount3 refuses");

/// The system refuses a mount.
pub(crate) const MOUNT_REFUSED: Named = Named("mount refused");

/// The files of a session cannot be made.
pub(crate) const NO_ROOM: Named = Named("no room");
