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
