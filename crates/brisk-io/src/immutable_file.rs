use std::fs::File;

/// A file that nobody changes, so that its bytes can be borrowed from a mapping.
///
/// The operating system lets any process with access write to a mapped file, and the bytes of every mapping change
/// with it. A borrowed slice (`&[u8]`) must never change: code that has checked a `str`, a length or an offset in it
/// would otherwise read outside its memory. Rust cannot keep other processes from writing, so somebody has to promise
/// that they do not. Making this value is that promise, and the only place where it is made.
///
/// Whoever cannot promise it gives [`load`](crate::load) the [`File`], which is then copied, or reads through a
/// [`Mapping`](crate::Mapping), which only copies too.
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
    /// From this call until this value and all that was made from it are dropped (mappings, what was
    /// [loaded](crate::load), images opened from it), no process, this one included, writes to the file, cuts it, or
    /// punches a hole into it. These files keep the promise:
    ///
    /// * one that appears under its name by `rename` and that no program writes afterwards, such as an image of
    ///   `brisk pack`, or a file of a package that is installed;
    /// * one on a read-only filesystem, or sealed against writing (`F_SEAL_WRITE` and `F_SEAL_SHRINK`);
    /// * a temporary file without a name that this process has finished writing.
    ///
    /// A file on a network or a FUSE filesystem is as immutable as its server makes it.
    ///
    /// A disk that fails breaks nothing: touching a page that cannot be read ends the process by SIGBUS, or, after
    /// [`guard_mappings`](crate::guard_mappings), reads zeros and makes `check` an error.
    pub unsafe fn new(file: File) -> Self {
        Self(file)
    }

    /// The file.
    pub fn as_file(&self) -> &File {
        &self.0
    }
}
