//! Why something failed, until Python's lock is there to raise it.

use std::error::Error as _;
use std::io;

use brisk_image::{Error, ErrorKind};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use rustix::io::Errno;

/// Why something failed.
pub enum Fault {
    /// Reading the image failed.
    Image(Error),
    /// The system's number of what is wrong, and the text.
    System(Errno, String),
    /// The image does not come from the network, or nobody vouches for it: the system's number, and the text, which names it.
    Network(Errno, String),
    /// What was asked for makes no sense.
    Misuse(String),
    /// Python has raised it.
    Raised(PyErr),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Image(error)
    }
}

impl From<PyErr> for Fault {
    fn from(error: PyErr) -> Self {
        Self::Raised(error)
    }
}

impl Fault {
    /// The exception. `path` is what the caller named in the image `image`; Python chooses the class by the number.
    pub fn raise(self, py: Python<'_>, image: &str, path: Option<&Bound<'_, PyAny>>) -> PyErr {
        let (number, text, cause) = match self {
            Self::Misuse(text) => return PyValueError::new_err(text),
            Self::Raised(raised) => return raised,
            Self::System(number, text) => (number.raw_os_error(), format!("{image}: {text}"), None),
            Self::Network(number, text) => (number.raw_os_error(), text, None),
            Self::Image(error) => {
                let error = error.with_path(image);
                let cause = cause_of(py, &error);
                (number_of(&error), whole_text(&error), cause)
            }
        };
        let raised = match path {
            Some(path) => PyOSError::new_err((number, text, path.clone().unbind())),
            None => PyOSError::new_err((number, text)),
        };
        raised.set_cause(py, cause);
        raised
    }
}

/// The text with its reasons.
pub fn whole_text(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(reason) = source {
        text.push_str(&format!(": {reason}"));
        source = reason.source();
    }
    text
}

/// What a file object of Python has raised.
fn cause_of(py: Python<'_>, error: &Error) -> Option<PyErr> {
    let raised: &PyErr = error
        .source()?
        .downcast_ref::<io::Error>()?
        .get_ref()?
        .downcast_ref()?;
    Some(raised.clone_ref(py))
}

fn number_of(error: &Error) -> i32 {
    let number = match error.kind() {
        ErrorKind::NotFound => Errno::NOENT,
        ErrorKind::Unsupported => Errno::NOTSUP,
        ErrorKind::Limit => Errno::FBIG,
        ErrorKind::SymlinkLoop => Errno::LOOP,
        ErrorKind::Input => Errno::INVAL,
        ErrorKind::Io => {
            let system = error.source().and_then(|e| e.downcast_ref::<io::Error>());
            return system
                .and_then(io::Error::raw_os_error)
                .unwrap_or(Errno::IO.raw_os_error());
        }
        _ => Errno::IO,
    };
    number.raw_os_error()
}
