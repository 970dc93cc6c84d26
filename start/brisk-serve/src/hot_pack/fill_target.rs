//! Where a fill stores pages.

use brisk_image::InodeRef;
use rustix::io::Errno;

/// The page cache of a mount, as its server reaches it.
pub(crate) trait FillTarget: Sync {
    /// The number by which the kernel knows the file of an inode.
    fn node(&self, inode: InodeRef) -> u64;

    /// Puts `bytes` into the page cache at `offset` of a file. Waits until reads of the same pages are
    /// answered. ENOENT if the kernel does not know the node.
    fn store(&self, node: u64, offset: u64, bytes: &[u8]) -> Result<(), Errno>;

    /// Asks whether the page at `offset` of a file is in the page cache, and waits for nothing. The answer comes to
    /// [`Fill::hear`](super::fill::Fill::hear), with the number of the `question`, which is not 0. ENOENT if the kernel does
    /// not know the node: then it has no page of it.
    fn ask_whether_cached(&self, question: u64, node: u64, offset: u64) -> Result<(), Errno>;
}
