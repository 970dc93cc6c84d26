use rustix::process::{getegid, geteuid};

/// Which owners a mount shows for the files of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owners {
    /// The owners that the image records. A user namespace that does not know them refuses to use their
    /// files: EOVERFLOW.
    AsStored,
    /// One user and one group for everything.
    Everything {
        /// The user's number in the user namespace of the mount.
        uid: u32,
        /// The group's number there.
        gid: u32,
    },
}

impl Owners {
    /// Those of a mount that this process makes: as stored if `privileged`, as root's mounts are, else the calling user.
    pub(crate) fn of_mount(privileged: bool) -> Self {
        match privileged {
            true => Self::AsStored,
            false => Self::Everything {
                uid: geteuid().as_raw(),
                gid: getegid().as_raw(),
            },
        }
    }
}
