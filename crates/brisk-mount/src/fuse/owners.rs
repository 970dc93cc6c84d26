/// Which owners a mount shows for the files of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owners {
    /// Those that the image records. In a user namespace that does not know them, their files cannot be
    /// used: EOVERFLOW.
    AsStored,
    /// One user and one group, whatever the image says.
    Everything {
        /// The user's number in the user namespace of the mount.
        uid: u32,
        /// The group's.
        gid: u32,
    },
}
