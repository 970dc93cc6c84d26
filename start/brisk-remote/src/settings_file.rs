//! Files with settings of the user.

use std::io::{self, Read};
use std::path::Path;

use brisk_io::open_at_once;

/// The most bytes that are read of one.
const MOST: u64 = 1 << 20;

/// What is in the file, for whose writer this does not wait.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let mut file = open_at_once(path)?.take(MOST + 1);
    match file.read_to_string(&mut text)? as u64 > MOST {
        true => Err(io::ErrorKind::FileTooLarge.into()),
        false => Ok(text),
    }
}
