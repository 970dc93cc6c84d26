//! Opening files of any kind.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};

/// Opens a file to read it. Unlike `File::open`, this does not wait for a writer if the file is a pipe, which others can
/// put where a file is expected. Such a pipe is empty then.
///
/// # Errors
///
/// Those of `open`.
pub fn open_at_once(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(openat(CWD, path, flags, Mode::empty())?.into())
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use rustix::fs::{FileType, mknodat};

    use super::*;

    #[test]
    fn a_pipe_without_a_writer_is_empty() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
        let mut text = String::new();
        let read = open_at_once(&path).and_then(|mut file| file.read_to_string(&mut text));
        assert_eq!(read.expect("it is open"), 0);
    }
}
