use std::fs::File;

/// A file that nobody changes, so that its bytes can be borrowed from a mapping.
///
/// The operating system lets any process with access write to a mapped file, and the bytes of every mapping
/// change with it. A borrowed slice (`&[u8]`) must never change: code that has checked a `str`, a length or
/// an offset in it would otherwise read outside its memory. Rust cannot keep other processes from writing, so
/// the caller has to promise that they do not. Making this value is that promise, and no other call makes it.
///
/// If you cannot promise it, give [`load`](crate::load) the [`File`], which is then copied, or read through a
/// [`Mapping`](crate::Mapping), which also only copies.
///
/// # Example
///
/// ```
/// use brisk_io::{ImmutableFile, ImmutableMapping};
///
/// # fn main() -> std::io::Result<()> {
/// let file = std::fs::File::open("/proc/self/exe")?;
/// // SAFETY: the kernel lets nobody write to a program while it runs (ETXTBSY).
/// let file = unsafe { ImmutableFile::new(file) };
/// let mapping = ImmutableMapping::new(&file)?;
/// assert_eq!(&mapping.as_slice()[..4], b"\x7fELF");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ImmutableFile(File);

impl ImmutableFile {
    /// Promises that nobody changes `file`.
    ///
    /// # Safety
    ///
    /// From this call until this value and everything made from it are dropped (mappings, what was
    /// [loaded](crate::load), images opened from it), no process, including this one, writes to the file,
    /// truncates it, or punches a hole into it. These files keep the promise:
    ///
    /// * a file that gets its name by `rename` and that no program writes afterwards, such as an image of
    ///   `brisk pack`, or a file of an installed package;
    /// * a file on a read-only filesystem, or sealed against writing (`F_SEAL_WRITE` and `F_SEAL_SHRINK`);
    /// * a temporary file without a name that this process has finished writing.
    ///
    /// A file on a network or a FUSE filesystem is as immutable as its server makes it.
    ///
    /// A failing disk does not break the promise: touching an unreadable page ends the process with SIGBUS.
    /// After [`guard_mappings`](crate::guard_mappings) it reads zeros, and `check` returns an error.
    pub unsafe fn new(file: File) -> Self {
        Self(file)
    }

    /// The file.
    pub fn as_file(&self) -> &File {
        &self.0
    }
}
