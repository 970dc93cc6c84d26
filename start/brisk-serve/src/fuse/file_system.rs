use std::io::IoSlice;

use rustix::io::Errno;

use super::node::Fail;
use super::wire::{AttrOut, EntryOut, StatfsOut};

/// What a program looks for in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SeekTo {
    Data,
    Hole,
}

/// What a server answers from: an image or a directory.
///
/// 1. The number of a node means the same node as long as the connection lives, and is not 0. The root
///    directory has the number [`ROOT`](super::wire::ROOT).
/// 2. Every answer stays true, because the kernel never asks again.
pub(super) trait FileSystem: Sync {
    /// The entry `name` in the directory node. None if it is absent.
    fn look_up(&self, directory: u64, name: &[u8]) -> Result<Option<EntryOut>, Fail>;

    fn attributes(&self, node: u64) -> Result<AttrOut, Fail>;

    /// The target of a symbolic link.
    fn link(&self, node: u64) -> Result<Vec<u8>, Fail>;

    /// Calls `answer` once with the bytes of a file from `offset` on: `size` bytes, or fewer up to the end of
    /// the file. Returns how many.
    fn read(
        &self,
        node: u64,
        offset: u64,
        size: u32,
        answer: &mut dyn FnMut(&[IoSlice<'_>]) -> Result<(), Errno>,
    ) -> Result<u64, Fail>;

    /// The first byte of a file from `offset` on that is in no hole, or that is in one: the end of the file if none is. ENXIO if
    /// there is none.
    fn seek(&self, node: u64, offset: u64, to: SeekTo) -> Result<u64, Fail>;

    /// At most `size` bytes of a listing, from position `offset` on, in the form of READDIR, or with
    /// attributes in the form of READDIRPLUS. Empty at the end.
    fn list(&self, node: u64, offset: u64, size: usize, plus: bool) -> Result<Vec<u8>, Fail>;

    fn statistics(&self) -> Result<StatfsOut, Fail>;

    /// The value of an extended attribute. ENOSYS if no file has any.
    fn xattr(&self, node: u64, name: &[u8]) -> Result<Vec<u8>, Fail>;

    /// The names of the extended attributes, each followed by a NUL. ENOSYS if no file has any.
    fn xattr_names(&self, node: u64) -> Result<Vec<u8>, Fail>;
}
