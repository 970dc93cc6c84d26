/// Who owns what is in an image, as a mount shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owners {
    /// Who the image says. In a user namespace that does not know them, their files cannot be
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
