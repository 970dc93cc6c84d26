//! Images in a file object of Python.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use brisk_io::ByteSource;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// A file object that can seek and read, in binary mode.
///
/// 1. The mutex is waited for only without Python's lock: who holds it waits for that lock.
#[derive(Clone)]
pub struct FileObject(Arc<Locked>);

struct Locked {
    object: Py<PyAny>,
    /// Held from a seek to the read behind it.
    position: Mutex<()>,
}

impl FileObject {
    /// The file object `object`.
    pub fn new(object: Py<PyAny>) -> Self {
        let position = Mutex::new(());
        Self(Arc::new(Locked { object, position }))
    }

    fn at<T>(
        &self,
        place: (u64, i32),
        then: impl for<'py> FnOnce(&Bound<'py, PyAny>) -> PyResult<T>,
    ) -> io::Result<T> {
        let _position = self
            .0
            .position
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        Python::attach(|py| {
            let object = self.0.object.bind(py);
            object.call_method1("seek", place)?;
            then(object)
        })
        .map_err(|e: PyErr| io::Error::other(e))
    }
}

impl ByteSource for FileObject {
    fn size(&self) -> io::Result<u64> {
        self.at((0, 2), |object| object.call_method0("tell")?.extract())
    }

    fn read_bytes_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.at((offset, 0), |object| {
            let read = object.call_method1("read", (buf.len(),))?;
            let bytes = read.cast::<PyBytes>()?.as_bytes();
            let n = bytes.len().min(buf.len());
            buf[..n].copy_from_slice(&bytes[..n]);
            Ok(n)
        })
    }
}
