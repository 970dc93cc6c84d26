//! Paths and names, as Python has them.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyString};

/// A path of an image. Python gives it as text, in which lone surrogates stand for bytes that are not UTF-8 (PEP 383), as bytes, or as
/// an object with `__fspath__`.
pub struct ImagePath<'py> {
    /// As the caller gave it, for exceptions.
    pub given: Bound<'py, PyAny>,
    path: OsString,
    /// Who asks with bytes gets names in bytes, as from `os.listdir`.
    is_bytes: bool,
}

impl<'py> FromPyObject<'_, 'py> for ImagePath<'py> {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let given = given.to_owned();
        if let Ok(text) = given.cast::<PyString>() {
            let path = text.extract()?;
            return Ok(Self {
                given,
                path,
                is_bytes: false,
            });
        }
        let plain = fspath(&given)?;
        let (path, is_bytes) = match plain.cast::<PyBytes>() {
            Ok(bytes) => (OsString::from_vec(bytes.as_bytes().to_vec()), true),
            Err(_) => (plain.extract()?, false),
        };
        Ok(Self {
            given,
            path,
            is_bytes,
        })
    }
}

impl<'py> ImagePath<'py> {
    /// The path.
    pub fn path(&self) -> &Path {
        Path::new(&self.path)
    }

    /// How the caller gets a name or path.
    pub fn name(&self, name: &OsStr) -> Name {
        match self.is_bytes {
            true => Name::Bytes(name.as_bytes().to_vec()),
            false => Name::Text(name.to_owned()),
        }
    }
}

/// A name that Python gets: as bytes, or as text with lone surrogates.
pub enum Name {
    Bytes(Vec<u8>),
    Text(OsString),
}

impl<'py> IntoPyObject<'py> for Name {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = Infallible;

    fn into_pyobject(self, py: Python<'py>) -> Result<Self::Output, Infallible> {
        match self {
            Self::Bytes(bytes) => Ok(PyBytes::new(py, &bytes).into_any()),
            Self::Text(text) => Ok(text.into_pyobject(py)?.into_any()),
        }
    }
}

/// What `os.fspath` says.
pub fn fspath<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    static FSPATH: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = object.py();
    FSPATH.import(py, "os", "fspath")?.call1((object,))
}
