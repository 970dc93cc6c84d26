//! One file of an image.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use brisk_image::{FileReader, Image as OpenImage, InodeKind, InodeRef};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView, PySlice};
use rustix::io::Errno;

use crate::fault::Fault;
use crate::image::Image;
use crate::per_process::PerProcess;

/// Up to so many bytes are read without Python's lock and copied under it, which is quicker than to take that lock once more.
pub const SMALL: usize = 128 << 10;

/// So many bytes of a buffer are filled at a time.
const PART: usize = 1 << 20;

/// Bytes that a file of any image may have, to be read at once.
const WHOLE: u64 = 1 << 30;

/// Bytes more, for each byte of the image. Data sets seldom have 10, and a file of nothing but a hole has no bound.
const WHOLE_PER_BYTE: u64 = 32;

/// Reads the file of an image that `Image.open` has found, at any offset. It has no position.
#[pyclass(frozen)]
pub struct Reader {
    image: Py<Image>,
    /// What the caller of `open` named.
    path: Py<PyAny>,
    inode: InodeRef,
    len: u64,
    file: PerProcess<FileReader>,
}

impl Reader {
    /// The file `file` at `inode` of `image`.
    pub fn new(image: Py<Image>, path: Py<PyAny>, inode: InodeRef, file: FileReader) -> Self {
        Self {
            image,
            path,
            inode,
            len: file.len(),
            file: PerProcess::new(file),
        }
    }

    fn file(&self, py: Python<'_>) -> Result<FileReader, Fault> {
        let open = || {
            let image = self.image.get().opened(py)?;
            Ok(image.file(&image.inode(self.inode)?)?)
        };
        let closed = || Fault::Misuse("I/O operation on closed file".to_owned());
        self.file.get(py, open)?.ok_or_else(closed)
    }

    fn raised(&self, py: Python<'_>, fault: Fault) -> PyErr {
        self.image.get().raise(py, fault, Some(self.path.bind(py)))
    }
}

#[pymethods]
impl Reader {
    /// Bytes of the file.
    #[getter]
    fn size(&self) -> u64 {
        self.len
    }

    /// Up to `size` bytes at `offset`: fewer only at the end.
    fn read_at<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        size: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let len = size.min(self.len.saturating_sub(offset));
        self.file(py)
            .and_then(|file| read(py, &file, offset, len, self.image.get().bytes_used()))
            .map_err(|fault| self.raised(py, fault))
    }

    /// Fills `buffer` with the bytes at `offset`, and returns how many: fewer only at the end.
    fn read_into(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>, offset: u64) -> PyResult<usize> {
        self.file(py)
            .and_then(|file| read_into(py, &file, buffer, offset))
            .map_err(|fault| self.raised(py, fault))
    }

    /// Lets the file go. Later calls raise `ValueError`.
    fn close(&self, py: Python<'_>) {
        self.file.close(py);
    }
}

/// The file that `path` leads to.
pub fn file_at(image: &OpenImage, path: &Path) -> Result<(InodeRef, FileReader), Fault> {
    let inode = crate::image::found(image, path)?;
    match inode.kind() {
        InodeKind::File(_) => Ok((inode.reference(), image.file(&inode)?)),
        InodeKind::Directory(_) => Err(Fault::System(Errno::ISDIR, "it is a directory".to_owned())),
        _ => {
            let text = format!("it is a {} and not a file", inode.file_type().name());
            Err(Fault::System(Errno::INVAL, text))
        }
    }
}

/// All bytes of the file at `path`. Its length is added to `sum`, which may not pass what the image gives at once.
pub fn read_whole(image: &OpenImage, path: &Path, sum: &AtomicU64) -> Result<Vec<u8>, Fault> {
    let (_, file) = file_at(image, path)?;
    let before = sum.fetch_add(file.len(), Ordering::Relaxed);
    let most = most_at_once(image.bytes_used());
    if before.saturating_add(file.len()) > most {
        let text = format!(
            "reading these files at once passes the limit of {most} bytes for an image of {} bytes; name fewer files, or open each and read it in parts",
            image.bytes_used()
        );
        return Err(Fault::System(Errno::FBIG, text));
    }
    Ok(file.read_to_vec()?)
}

/// Bytes that an image of `image_len` bytes may give at once.
fn most_at_once(image_len: u64) -> u64 {
    WHOLE.saturating_add(image_len.saturating_mul(WHOLE_PER_BYTE))
}

/// The `len` bytes at `offset` of `file`, if they are no more than an image of `image_len` bytes may give at once.
pub fn read<'py>(
    py: Python<'py>,
    file: &FileReader,
    offset: u64,
    len: u64,
    image_len: u64,
) -> Result<Bound<'py, PyBytes>, Fault> {
    let most = most_at_once(image_len);
    let len = usize::try_from(len).ok().filter(|_| len <= most).ok_or_else(|| {
        let text = format!(
            "reading {len} bytes at once passes the limit of {most} for an image of {image_len} bytes; open the file and read it in parts"
        );
        Fault::System(Errno::FBIG, text)
    })?;
    if len <= SMALL {
        let bytes = py.detach(|| {
            let mut bytes = vec![0; len];
            file.read_at(offset, &mut bytes).map(|_| bytes)
        })?;
        return Ok(PyBytes::new(py, &bytes));
    }
    let mut fault = None;
    let bytes = PyBytes::new_with(py, len, |bytes| {
        fault = py.detach(|| file.read_at(offset, bytes)).err();
        Ok(())
    })?;
    match fault {
        Some(fault) => Err(fault.into()),
        None => Ok(bytes),
    }
}

/// Fills `buffer` from `offset` of `file`, and returns how many bytes there were.
pub fn read_into(
    py: Python<'_>,
    file: &FileReader,
    buffer: &Bound<'_, PyAny>,
    offset: u64,
) -> Result<usize, Fault> {
    // Arrays of other items than bytes are memory, too.
    let flat = PyMemoryView::from(buffer)?.call_method1("cast", ("B",))?;
    let left = file.len().saturating_sub(offset);
    let len = usize::try_from(left).unwrap_or(usize::MAX).min(flat.len()?);
    for from in (0..len).step_by(PART) {
        let to = len.min(from.saturating_add(PART));
        let bytes = read(
            py,
            file,
            offset.saturating_add(from as u64),
            (to - from) as u64,
            0,
        )?;
        flat.set_item(PySlice::new(py, signed(from), signed(to), 1), bytes)?;
    }
    Ok(len)
}

/// A place in a buffer, which has no more bytes than this type can say.
fn signed(place: usize) -> isize {
    isize::try_from(place).unwrap_or(isize::MAX)
}
