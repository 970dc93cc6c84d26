//! Opening files of any kind.

use std::fs::File;
use std::io;
use std::path::Path;

/// Opens a file to read it. A pipe cannot stand where a file is expected here, so this is `File::open`.
///
/// # Errors
///
/// Those of `File::open`.
pub fn open_at_once(path: &Path) -> io::Result<File> {
    File::open(path)
}
