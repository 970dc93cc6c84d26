use std::io::IoSlice;

use rustix::io::Errno;

use super::node::Fail;
use super::wire::{AttrOut, EntryOut, StatfsOut};

/// What a server answers from: an image or a directory.
///
/// 1. A number of a node means the same as long as the connection lives, and is not 0; that of the
///    root directory is [`ROOT`](super::wire::ROOT).
/// 2. Whatever is answered stays so: the kernel asks for nothing twice.
pub(super) trait FileSystem: Sync {
    /// What `name` is in the node `directory`; none if it is absent.
    fn look_up(&self, directory: u64, name: &[u8]) -> Result<Option<EntryOut>, Fail>;

    fn attributes(&self, node: u64) -> Result<AttrOut, Fail>;

    /// The target of a symbolic link.
    fn link(&self, node: u64) -> Result<Vec<u8>, Fail>;

    /// Calls `answer` once, with the bytes of a file from `offset` on: `size`, or what there is up
    /// to the file's end. Returns how many.
    fn read(
        &self,
        node: u64,
        offset: u64,
        size: u32,
        answer: &mut dyn FnMut(&[IoSlice<'_>]) -> Result<(), Errno>,
    ) -> Result<u64, Fail>;

    /// At most `size` bytes of a listing, from the place `offset` on, as READDIR wants them, or
    /// with attributes as READDIRPLUS does. None at the end.
    fn list(&self, node: u64, offset: u64, size: usize, plus: bool) -> Result<Vec<u8>, Fail>;

    fn statistics(&self) -> Result<StatfsOut, Fail>;

    /// The value of an extended attribute. ENOSYS if nothing has any.
    fn xattr(&self, node: u64, name: &[u8]) -> Result<Vec<u8>, Fail>;

    /// The names of the extended attributes, with a NUL behind each. ENOSYS if nothing has any.
    fn xattr_names(&self, node: u64) -> Result<Vec<u8>, Fail>;
}
